"""A backend for Django's tasks: `django.tasks` since Django 6.0, the package django-tasks before.

    TASKS = {
        "default": {
            "BACKEND": "schedq.integrations.django.backend.SchedqBackend",
            "QUEUES": ["default", "mails"],
            "OPTIONS": {"redis": "redis://localhost:6379", "on_commit": True},
        }
    }

Every name in QUEUES is a schedq queue of that name. With `on_commit`, a task that is enqueued within a transaction is
stored when the transaction commits, and not at all if it rolls back. With `outbox`, the transaction itself writes it.
With `language` and `time_zone`, a task runs in those that were active where it was enqueued. The other OPTIONS are
those of `schedq.Queue`: visibility_ms, max_attempts, backoff and so on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, wraps
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, transaction

from schedq.errors import UsageError
from schedq.integrations.django.headers import given_headers
from schedq.integrations.django.locale import active_locale, locale_headers, locale_of_job
from schedq.integrations.django.outbox import DjangoOutbox
from schedq.model.current_job import current_job
from schedq.model.ids import new_ids
from schedq.model.payload import encode
from schedq.model.records import JobRecord, Options
from schedq.queue.before_enqueue import prepared_options
from schedq.queue.queue import Queue
from schedq.transitions.enqueue import prepare

try:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    try:
        from django_tasks import task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
    except ImportError as error:
        raise ImportError(f"Django before 6.0 needs the package {error.name}: pip install 'schedq[django]'") from error

__all__ = ["SchedqBackend", "task_backends"]
READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
STATUS: Final = {"pending": READY, "delayed": READY, "processing": RUNNING, "completed": SUCCESSFUL}
"""A job in any other state (failed, cancelled) has ended for good."""
_OWN: Final = ("on_commit", "outbox", "language", "time_zone")
"""The options that are not those of a queue."""

# Django creates a backend per thread; the queues are shared by the whole site.
_tasks: dict[str, Task] = {}
_queues: dict[tuple[str, str], Queue] = {}


class SchedqBackend(BaseTaskBackend):
    """Tasks as schedq jobs: now or at `run_after`, sync or async, retried with backoff, with results.

    Attributes:
        on_commit: whether a job is stored when the transaction around `enqueue` commits: `True`, or the alias of the
            database whose transaction it is.
        outbox: where its tasks are written instead, or None. The option is `True`, or the alias of the database.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.on_commit: bool | str = self.options.get("on_commit", False)
        given = self.options.get("outbox", False)
        self.outbox = DjangoOutbox(None if given is True else given) if given else None
        if self.outbox and self.on_commit:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: give on_commit or outbox, not both")
        self._locale = {name: self.options.get(name, False) for name in ("language", "time_zone")}
        self._has_locale = any(self._locale.values())
        self._queue_options = {name: value for name, value in self.options.items() if name not in _OWN}

    def validate_task(self, task: Task) -> None:
        """Reject tasks that can't run here; register the others, so that a worker finds them by name."""
        super().validate_task(task)
        _tasks.setdefault(task.module_path, task)

    def queue(self, name: str) -> Queue:
        """The schedq queue with this name in QUEUES."""
        key = (self.alias, name)
        found = _queues.get(key)
        if found is None:
            made = Queue(name, **self._queue_options)
            if self._has_locale:
                made.before_enqueue(locale_headers(**self._locale))
            found = _queues.setdefault(key, made)
        return found

    def application(self, name: str) -> Queue:
        """The queue with the functions that run its jobs, for a worker. The site's tasks must have been imported."""
        queue = self.queue(name)
        for task in list(_tasks.values()):  # of other backends too: `using` may send them here
            self._register(queue, task)
        return queue

    def _register(self, queue: Queue, task: Task) -> None:
        path = task.module_path
        if queue.registry.get(path) is None:
            queue.task(name=path)(self._runner(task))

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Store one job, at once or with `on_commit` when the transaction commits.

        Raises:
            StoreUnavailable: Redis is unavailable. With `on_commit`, the commit raises this, after it has taken effect.
            UsageError: the arguments are no JSON, or an option is invalid.
        """
        if self.outbox is not None:
            return self.write_to_outbox(self.outbox, task, args, kwargs)
        queue, payload = self._call(task, args, kwargs)
        if not self.on_commit:
            job_id = queue.enqueue(payload, run_at=task.run_after, headers=given_headers())
            return self._announced(self.get_result(job_id))
        encode(payload, queue.settings.max_payload)  # raises here, not in the middle of the commit
        (job_id,) = new_ids()
        enqueued = self._waiting(task, job_id, payload)
        database = None if self.on_commit is True else self.on_commit
        headers = {**active_locale(**self._locale), **(given_headers() or {})}  # not those of the commit

        def store() -> None:
            queue.enqueue(payload, run_at=task.run_after, job_id=job_id, headers=headers)
            self._announced(enqueued)

        transaction.on_commit(store, using=database)
        return enqueued

    def write_to_outbox(
        self, outbox: DjangoOutbox, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult:
        """Write one job to an outbox, in the transaction of this thread.

        Raises:
            UsageError: the arguments are no JSON, or an option is invalid.
        """
        queue, payload = self._call(task, args, kwargs)
        (job_id,) = new_ids()
        options = Options(run_at=task.run_after, job_id=job_id, headers=given_headers())
        if queue.connections.before_enqueue:
            options = prepared_options(queue.connections, payload, options)
        outbox.write(queue.settings, prepare(queue.settings, payload, options))
        enqueued = self._waiting(task, job_id, payload)
        transaction.on_commit(partial(self._announced, enqueued), using=outbox.database)
        return enqueued

    def _call(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Queue, dict[str, Any]]:
        """Return the queue and the payload of a call, and register the task, so that a test can run the job here."""
        self.validate_task(task)
        queue = self.queue(task.queue_name)
        self._register(queue, task)
        return queue, {"task": task.module_path, "args": list(args), "kwargs": dict(kwargs)}

    def _announced(self, result: TaskResult) -> TaskResult:
        task_enqueued.send(type(self), task_result=result)
        return result

    def _waiting(
        self, task: Task, job_id: str, call: Mapping[str, Any], enqueued_at: datetime | None = None
    ) -> TaskResult:
        """The result of a job that is not stored yet."""
        return TaskResult(
            task=task,
            id=job_id,
            status=READY,
            enqueued_at=enqueued_at or datetime.now(UTC),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=call["args"],
            kwargs=call["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def get_result(self, result_id: str) -> TaskResult:
        """The state of a job, and its result.

        Raises:
            TaskResultDoesNotExist: the job is not stored, or is not a task of this site.
        """
        if (found := self._stored(result_id)) is not None:
            return self._result(*found)
        if self.outbox is not None:
            if (row := self.outbox.unsent(result_id)) is not None:
                call = json.loads(row.payload)
                return self._waiting(self._task(call, row.queue), row.job_id, call, _instant(row.created_at_ms))
            if (found := self._stored(result_id)) is not None:  # a relay has sent it in the meantime
                return self._result(*found)
        raise TaskResultDoesNotExist(result_id)

    def _stored(self, job_id: str) -> tuple[str, JobRecord] | None:
        """The queue and the record of a job."""
        for name in sorted(self.queues):
            try:
                job = self.queue(name).get_job(job_id)
            except UsageError:
                break
            if job is not None:
                return name, job
        return None

    def _task(self, call: Mapping[str, Any], queue: str) -> Task:
        task = _tasks.get(call.get("task", ""))
        if task is None:
            raise TaskResultDoesNotExist(f"no task {call.get('task')!r:.200}")
        return task if task.backend == self.alias else task.using(backend=self.alias, queue_name=queue)

    def _result(self, queue: str, job: JobRecord) -> TaskResult:
        call = job.payload if isinstance(job.payload, dict) else {}
        task = self._task(call, queue)
        status = STATUS.get(job.status, FAILED)
        workers = [str(attempt["worker"]) for attempt in job.history]
        if len(workers) < job.attempts:
            workers.append(job.worker)
        first = job.history[0]["started_at_ms"] if job.history else job.started_at_ms
        is_over = status in (SUCCESSFUL, FAILED)
        result = TaskResult(
            task=task,
            id=job.id,
            status=status,
            enqueued_at=_instant(job.enqueued_at_ms),
            started_at=_instant(first),
            finished_at=_instant(job.completed_at_ms or job.last_error_at_ms) if is_over else None,
            last_attempted_at=_instant(job.started_at_ms),
            args=call.get("args", []),
            kwargs=call.get("kwargs", {}),
            backend=self.alias,
            errors=[_error(job)] if job.last_error else [],
            worker_ids=workers,
        )
        return _with_value(result, job.result)

    def _runner(self, task: Task) -> Callable[..., Any]:
        """The callable that schedq runs for a task: the function, its context if it takes one, and Django's signals."""
        if iscoroutinefunction(task.func):

            @wraps(task.func)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                # Django's ORM runs in asgiref's thread, whose connections these are.
                await sync_to_async(close_old_connections)()
                try:
                    with self._around():
                        return await self._arun(task, args, kwargs)
                finally:
                    await sync_to_async(close_old_connections)()

            return arun

        @wraps(task.func)
        def run(*args: Any, **kwargs: Any) -> Any:
            close_old_connections()
            try:
                with self._around():
                    return self._run(task, args, kwargs)
            finally:
                close_old_connections()

        return run

    def _around(self) -> AbstractContextManager[None]:
        return locale_of_job() if self._has_locale else nullcontext()

    async def _arun(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = await sync_to_async(self.get_result)(current_job().id)
        await task_started.asend(type(self), task_result=result)
        try:
            value = await task.func(*_context(task, result), *args, **kwargs)
        except BaseException as error:
            await task_finished.asend(type(self), task_result=_ended(result, FAILED, error=error))
            raise
        await task_finished.asend(type(self), task_result=_ended(result, SUCCESSFUL, value))
        return value

    def _run(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = self.get_result(current_job().id)
        task_started.send(type(self), task_result=result)
        try:
            value = task.func(*_context(task, result), *args, **kwargs)
        except BaseException as error:
            task_finished.send(type(self), task_result=_ended(result, FAILED, error=error))
            raise
        task_finished.send(type(self), task_result=_ended(result, SUCCESSFUL, value))
        return value


def _context(task: Task, result: TaskResult) -> tuple[TaskContext, ...]:
    return (TaskContext(task_result=result),) if task.takes_context else ()


def _ended(
    result: TaskResult, status: TaskResultStatus, value: object = None, error: BaseException | None = None
) -> TaskResult:
    """The result at the end of this attempt; schedq decides afterwards whether a retry follows."""
    errors = [*result.errors]
    if error is not None:
        kind = type(error)
        errors.append(
            TaskError(
                exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                traceback="".join(format_exception(error)),
            )
        )
    ended = replace(result, status=status, finished_at=datetime.now(UTC), errors=errors)
    return _with_value(ended, value)


def _with_value(result: TaskResult, value: object) -> TaskResult:
    # As Django's own backends do: the field is frozen and not an argument of __init__.
    object.__setattr__(result, "_return_value", value)
    return result


def _error(job: JobRecord) -> TaskError:
    """The last error. A traceback's last line starts with the class name, qualified unless it is a builtin."""
    text = job.fields.get("traceback", "") or job.last_error
    name = text.strip().splitlines()[-1].partition(":")[0].strip()
    path = name if "." in name else f"builtins.{name}"
    return TaskError(exception_class_path=path, traceback=text)


def _instant(at_ms: int) -> datetime | None:
    return datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms else None
