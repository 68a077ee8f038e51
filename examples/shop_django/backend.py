"""A backend for Django's tasks (django.tasks, Django 6; django_tasks before): copy this file and name it in TASKS.

    TASKS = {"default": {"BACKEND": "shop_django.backend.SchedqBackend", "OPTIONS": {"redis": "redis://localhost:6379"}}}

Every name in QUEUES is a schedq queue of that name, and OPTIONS are `schedq.Queue`'s: visibility_ms, max_attempts,
backoff and so on. `enqueue` takes effect at once; to wait for the database transaction, use
`transaction.on_commit(partial(task.enqueue, ...))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from schedq import JobRecord, Queue, UsageError, current_job

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
STATUS: Final = {"pending": READY, "delayed": READY, "processing": RUNNING, "completed": SUCCESSFUL}
"""A job in any other state (failed, cancelled) has ended for good."""

# Django creates a backend per thread; the queues are shared by the whole site.
_tasks: dict[str, dict[str, Task]] = {}
_queues: dict[tuple[str, str], Queue] = {}


class SchedqBackend(BaseTaskBackend):
    """Tasks as schedq jobs: now or at `run_after`, sync or async, retried with backoff, with results."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def validate_task(self, task: Task) -> None:
        """Reject tasks that can't run here; register the others, so that a worker finds them by name."""
        super().validate_task(task)
        _tasks.setdefault(self.alias, {}).setdefault(task.module_path, task)

    def queue(self, name: str) -> Queue:
        """The schedq queue with this name in QUEUES."""
        key = (self.alias, name)
        found = _queues.get(key)
        return found or _queues.setdefault(key, Queue(name, **self.options))

    def application(self, name: str) -> Queue:
        """The queue with the functions that run its jobs, for `schedq worker`; import the site's tasks first."""
        queue = self.queue(name)
        for path, task in _tasks.get(self.alias, {}).items():
            queue.task(name=path)(self._runner(task))
        return queue

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Store one job; raises what `schedq.Queue.enqueue` raises."""
        self.validate_task(task)
        payload = {"task": task.module_path, "args": list(args), "kwargs": dict(kwargs)}
        job_id = self.queue(task.queue_name).enqueue(payload, run_at=task.run_after)
        result = self.get_result(job_id)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """The state of a job, and its result.

        Raises:
            TaskResultDoesNotExist: the job is not stored, or is not a task of this site.
        """
        for name in sorted(self.queues):
            try:
                job = self.queue(name).get_job(result_id)
            except UsageError:
                break
            if job is not None:
                return self._result(job)
        raise TaskResultDoesNotExist(result_id)

    def _result(self, job: JobRecord) -> TaskResult:
        call = job.payload if isinstance(job.payload, dict) else {}
        task = _tasks.get(self.alias, {}).get(call.get("task", ""))
        if task is None:
            raise TaskResultDoesNotExist(job.id)
        status = STATUS.get(job.status, FAILED)
        workers = [str(attempt["worker"]) for attempt in job.history]
        if job.worker and len(workers) < job.attempts:
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
                result = await sync_to_async(self.get_result)(current_job().id)
                await task_started.asend(type(self), task_result=result)
                try:
                    value = await task.func(*_context(task, result), *args, **kwargs)
                except BaseException as error:
                    await task_finished.asend(type(self), task_result=_ended(result, FAILED, error=error))
                    raise
                await task_finished.asend(type(self), task_result=_ended(result, SUCCESSFUL, value))
                return value

            return arun

        @wraps(task.func)
        def run(*args: Any, **kwargs: Any) -> Any:
            close_old_connections()
            result = self.get_result(current_job().id)
            task_started.send(type(self), task_result=result)
            try:
                value = task.func(*_context(task, result), *args, **kwargs)
            except BaseException as error:
                task_finished.send(type(self), task_result=_ended(result, FAILED, error=error))
                raise
            finally:
                close_old_connections()
            task_finished.send(type(self), task_result=_ended(result, SUCCESSFUL, value))
            return value

        return run


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
