"""Functions that run as jobs: the registry, a task, and the handle on a job that was enqueued.

User code is found by name in a registry of functions that the application registered; nothing from Redis is
unpickled, evaluated or imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from schedq import backoff as plans
from schedq.errors import JobGone, UsageError
from schedq.instants import Duration, Instant, duration_ms
from schedq.job import ClaimedJob, JobRecord, NewJob, Options
from schedq.lifecycle import Cancellation
from schedq.outcome import BackoffFunction
from schedq.settings import checked_attempts

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Calls = Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
"""Arguments of several calls: [((positional, ...), {name: value, ...}), ...]."""


class BlockingDoor(Protocol):
    """What a task and a job need of the blocking queue."""

    def enqueue_many(self, jobs: Sequence[Any], /) -> list[str]:
        """Store jobs; their ids."""
        ...

    def get_job(self, job_id: str) -> JobRecord | None:
        """All that is stored of a job."""
        ...

    def cancel(self, job_id: str) -> Cancellation:
        """Cancel a job."""
        ...

    def renew(self, job: ClaimedJob) -> bool:
        """Let a lease begin anew."""
        ...

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a job's result."""
        ...

    def wait(self, job_id: str, timeout: Duration | None = None) -> bool:
        """Wait for a job's end."""
        ...


class AsyncDoor(Protocol):
    """What a task and a job need of the asyncio queue."""

    async def enqueue_many(self, jobs: Sequence[Any], /) -> list[str]:
        """Store jobs; their ids."""
        ...

    async def get_job(self, job_id: str) -> JobRecord | None:
        """All that is stored of a job."""
        ...

    async def cancel(self, job_id: str) -> Cancellation:
        """Cancel a job."""
        ...

    async def renew(self, job: ClaimedJob) -> bool:
        """Let a lease begin anew."""
        ...

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a job's result."""
        ...

    async def wait(self, job_id: str, timeout: Duration | None = None) -> bool:
        """Wait for a job's end."""
        ...


class Doors(Protocol):
    """The two ways to one queue."""

    @property
    def blocking(self) -> BlockingDoor:
        """The queue for threads."""
        ...

    @property
    def aio(self) -> AsyncDoor:
        """The queue for an event loop."""
        ...


class Job(Generic[R]):
    """A handle on one job, with a twin that is awaited for every verb. Making one asks Redis nothing.

    Attributes:
        id: the job's id.
    """

    __slots__ = ("_doors", "id")

    def __init__(self, job_id: str, doors: Doors) -> None:
        self.id = job_id
        self._doors = doors

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def record(self) -> JobRecord | None:
        """All that is stored of it; None if nothing is."""
        return self._doors.blocking.get_job(self.id)

    def status(self) -> str:
        """Where it is: one of `lifecycle.PLACES`.

        Raises:
            JobGone: nothing is stored of it.
        """
        return _status(self.id, self.record())

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until it is completed, failed or cancelled; False when `timeout` (seconds) ran out first.

        Raises:
            JobGone: nothing is stored of it.
        """
        return self._doors.blocking.wait(self.id, timeout)

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for what it returns, at most `timeout` seconds; None waits for ever.

        Raises:
            JobFailed, JobCancelled, JobGone: there will be no result.
            TimeoutError: it is not finished yet.
        """
        found: R = self._doors.blocking.result(self.id, timeout)
        return found

    def cancel(self) -> Cancellation:
        """Cancel it if it waits, ask it to stop if it runs: "cancelled", "asked", or "no" if it is finished."""
        return self._doors.blocking.cancel(self.id)

    async def arecord(self) -> JobRecord | None:
        """Twin of `record`."""
        return await self._doors.aio.get_job(self.id)

    async def astatus(self) -> str:
        """Twin of `status`."""
        return _status(self.id, await self.arecord())

    async def await_(self, timeout: Duration | None = None) -> bool:
        """Twin of `wait`."""
        return await self._doors.aio.wait(self.id, timeout)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Twin of `result`."""
        found: R = await self._doors.aio.result(self.id, timeout)
        return found

    async def acancel(self) -> Cancellation:
        """Twin of `cancel`."""
        return await self._doors.aio.cancel(self.id)


def _status(job_id: str, record: JobRecord | None) -> str:
    if record is None:
        raise JobGone(f"nothing is stored of job {job_id}: trimmed, purged, or never there")
    return record.status


class Task(Generic[P, R]):
    """A function that can run as a job. Called, it is still the plain function.

    Attributes:
        name: its name in payloads, the wire format.
        function: the function.
        max_attempts: claims that its jobs get; None for the queue's.
        backoff: a plan, or a function (attempt, error) → seconds; None for the queue's.
        timeout_ms: what one attempt may take; None for no limit.
    """

    def __init__(
        self,
        function: Callable[P, R],
        doors: Doors,
        *,
        name: str | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | BackoffFunction | None = None,
        timeout: Duration | None = None,
    ) -> None:
        if not callable(function):
            raise UsageError(f"a task must be a function, got {function!r}")
        self.function = function
        self.name = function.__name__ if name is None else name
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 200 or not self.name.isprintable():
            raise UsageError(f"task name {self.name!r} must be 1 to 200 printable characters")
        self.max_attempts = None if max_attempts is None else checked_attempts(max_attempts)
        self.backoff = backoff if backoff is None or callable(backoff) else plans.checked_plan(backoff)
        self.timeout_ms = None if timeout is None else duration_ms(timeout, "timeout") or None
        self._doors = doors
        self._options = Options(
            max_attempts=self.max_attempts,
            backoff=None if callable(self.backoff) else self.backoff,
            timeout=None if self.timeout_ms is None else self.timeout_ms / 1000,
        )
        self.__name__ = self.name
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; no job, no queue."""
        return self.function(*args, **kwargs)

    def options(
        self,
        *,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        job_id: str | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | None = None,
        timeout: Duration | None = None,
    ) -> Task[P, R]:
        """The same task with options for the jobs that are enqueued through it; those not given stay as they are."""
        given: dict[str, Any] = {
            "delay": delay,
            "run_at": run_at,
            "job_id": job_id,
            "max_attempts": max_attempts,
            "backoff": backoff,
            "timeout": timeout,
        }
        twin: Task[P, R] = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._options = replace(self._options, **{key: value for key, value in given.items() if value is not None})
        return twin

    @overload
    def enqueue(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    @overload
    def enqueue(self: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call of the function with these arguments.

        Raises:
            UsageError: the arguments are not JSON.
            Conflict, QueueFull, StoreUnavailable: as `Queue.enqueue`.
        """
        (job_id,) = self._doors.blocking.enqueue_many([self._new_job(args, kwargs)])
        return Job(job_id, self._doors)

    @overload
    async def aenqueue(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    @overload
    async def aenqueue(self: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    async def aenqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Twin of `enqueue`."""
        (job_id,) = await self._doors.aio.enqueue_many([self._new_job(args, kwargs)])
        return Job(job_id, self._doors)

    @overload
    def enqueue_many(self: Task[P, Coroutine[Any, Any, T]], calls: Calls) -> list[Job[T]]: ...
    @overload
    def enqueue_many(self: Task[P, T], calls: Calls) -> list[Job[T]]: ...
    def enqueue_many(self, calls: Calls) -> Any:
        """Enqueue several calls, `[((positional, ...), {name: value}), ...]`, in a few round trips.

        Raises:
            QueueFull: with the ids that were stored; else as `enqueue`.
        """
        ids = self._doors.blocking.enqueue_many([self._new_job(args, kwargs) for args, kwargs in calls])
        return [Job(job_id, self._doors) for job_id in ids]

    @overload
    async def aenqueue_many(self: Task[P, Coroutine[Any, Any, T]], calls: Calls) -> list[Job[T]]: ...
    @overload
    async def aenqueue_many(self: Task[P, T], calls: Calls) -> list[Job[T]]: ...
    async def aenqueue_many(self, calls: Calls) -> Any:
        """Twin of `enqueue_many`."""
        ids = await self._doors.aio.enqueue_many([self._new_job(args, kwargs) for args, kwargs in calls])
        return [Job(job_id, self._doors) for job_id in ids]

    def _new_job(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        payload: dict[str, Any] = {"task": self.name}
        if args:
            payload["args"] = list(args)
        if kwargs:
            payload["kwargs"] = dict(kwargs)
        options = self._options
        return NewJob(
            payload,
            delay=options.delay,
            run_at=options.run_at,
            job_id=options.job_id,
            max_attempts=options.max_attempts,
            backoff=options.backoff,
            timeout=options.timeout,
        )


class Call:
    """What a worker is to do for one payload.

    Attributes:
        function: what to call.
        args: its positional arguments.
        kwargs: its keyword arguments.
        name: for logs: the task's name, or 'handler'.
        max_attempts, backoff, timeout_ms: the task's own, or None.
        is_async: the function is a coroutine function.
    """

    __slots__ = ("args", "backoff", "function", "is_async", "kwargs", "max_attempts", "name", "timeout_ms")

    def __init__(self, name: str, found: Found, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.name = name
        self.function = found.function
        self.is_async = found.is_async
        self.args = args
        self.kwargs = kwargs
        self.max_attempts = found.max_attempts
        self.backoff = found.backoff
        self.timeout_ms = found.timeout_ms


class Found:
    """A registered function, looked at once."""

    __slots__ = ("backoff", "function", "is_async", "max_attempts", "timeout_ms")

    def __init__(self, function: Callable[..., Any], task: Task[..., Any] | None) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async def
        )
        self.max_attempts = task.max_attempts if task else None
        self.backoff = task.backoff if task else None
        self.timeout_ms = task.timeout_ms if task else None


class NoHandler(LookupError):  # noqa: N818 - a fact about a payload, handled by the worker
    """Nothing in this process can run the payload; perhaps a newer release of the application can."""


class Registry:
    """The functions that an application registered for one queue, by name."""

    def __init__(self, queue_name: str) -> None:
        self._queue_name = queue_name
        self._tasks: dict[str, Task[..., Any]] = {}
        self._found: dict[str, Found] = {}
        self._handler: Found | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(self._tasks)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is registered, so that no job could run."""
        return not self._tasks and self._handler is None

    def add(self, task: Task[..., Any]) -> None:
        """Register a task.

        Raises:
            UsageError: another function has this name already.
        """
        other = self._tasks.get(task.name)
        if other is not None and not _is_same(other.function, task.function):
            raise UsageError(
                f"queue {self._queue_name} has a task {task.name!r} already ({_place(other.function)}); "
                f"give {_place(task.function)} another name="
            )
        self._tasks[task.name] = task
        self._found[task.name] = Found(task.function, task)

    def set_handler(self, function: Callable[..., Any]) -> None:
        """Register the function for payloads that are no task call.

        Raises:
            UsageError: there is one already, or this is no function.
        """
        if not callable(function):
            raise UsageError(f"a handler must be a function, got {function!r}")
        if self._handler is not None and not _is_same(self._handler.function, function):
            raise UsageError(f"queue {self._queue_name} has a handler already ({_place(self._handler.function)})")
        self._handler = Found(function, None)

    def find(self, payload: Any) -> Call:
        """What to do for a payload.

        A payload is a task call iff it is an object whose keys are `task` and, optionally, `args` and `kwargs`.

        Raises:
            NoHandler: nothing here can run it.
        """
        if not is_task_call(payload):
            if self._handler is None:
                raise NoHandler("this worker has no handler for payloads that are no task call")
            return Call("handler", self._handler, (payload,), {})
        found = self._found.get(payload["task"])
        if found is None:
            raise NoHandler(f"this worker has no task {payload['task']!r}")
        return Call(payload["task"], found, payload.get("args") or (), payload.get("kwargs") or {})


def is_task_call(payload: object) -> bool:
    """Whether a payload asks for a task by name."""
    return (
        isinstance(payload, dict)
        and isinstance(payload.get("task"), str)
        and payload.keys() <= {"task", "args", "kwargs"}
        and isinstance(payload.get("args", []), list)
        and isinstance(payload.get("kwargs", {}), dict)
    )


def _place(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """The same function, also when its module was loaded anew."""
    return one is other or (_place(one) == _place(other) and "<locals>" not in _place(one))
