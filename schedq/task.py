"""Functions that run as jobs: enqueued with their arguments, still plain functions when called."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar, overload

from schedq import backoff as plans
from schedq.callables import Parameters, check_kinds, name_of, runnable
from schedq.durability import Durability, checked_durability
from schedq.errors import ArgumentsError, UsageError
from schedq.handle import Doors, Job
from schedq.instants import Duration, Instant, checked_timeout
from schedq.job import NewJob
from schedq.outcome import BackoffFunction
from schedq.settings import checked_attempts

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Calls = Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
"""Arguments of several calls: [((positional, ...), {name: value, ...}), ...]."""


class TaskOptions(NamedTuple):
    """What a task says of its jobs, as workers write it down for processes without the application's code.

    Attributes:
        max_attempts: claims that its jobs get; None for the queue's.
        backoff: waits between attempts; None for the queue's, also where the task has a function for that.
        timeout_ms: what one attempt may take; None for no limit.
    """

    max_attempts: int | None = None
    backoff: plans.Plan | None = None
    timeout_ms: int | None = None

    def to_text(self) -> str:
        """JSON text of what is said, or ''."""
        plan = None if self.backoff is None else json.loads(plans.to_text(self.backoff))
        said = {"max_attempts": self.max_attempts, "backoff": plan, "timeout_ms": self.timeout_ms}
        given = {name: value for name, value in said.items() if value is not None}
        return json.dumps(given, separators=(",", ":")) if given else ""

    @classmethod
    def from_text(cls, text: str | None) -> TaskOptions:
        """Read what `to_text` wrote; what makes no sense (foreign or newer data) is passed over."""
        try:
            said = json.loads(text or "{}")
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(said, dict):
            return cls()
        most, timeout = (_positive(said.get(name)) for name in ("max_attempts", "timeout_ms"))
        return cls(most, plans.from_text(json.dumps(said.get("backoff"))), timeout)


_MOST_FITTING: Final = 100
NO_OPTIONS: Final = TaskOptions()


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class Task(Generic[P, R]):
    """A function that can run as a job. Called, it is still the plain function.

    Attributes:
        name: its name in payloads, the wire format.
        function: the function.
        parameters: which arguments it takes.
        max_attempts: claims that its jobs get; None for the queue's.
        backoff: a plan, or a function (attempt, error) → seconds; None for the queue's.
        timeout_ms: what one attempt may take; None for no limit.
        durability: what must have its jobs before `enqueue` returns; None for the queue's.
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
        durability: Durability | None = None,
    ) -> None:
        if isinstance(function, str):
            raise UsageError(f"a task must be a function, got {function!r}; a name is given as name={function!r}")
        given: object = function.function if isinstance(function, Task) else function
        self.function: Callable[P, R] = runnable(given, "task")
        if name is None:
            name = function.name if isinstance(function, Task) else name_of(self.function)
        if isinstance(function, Task):  # of another queue: its options hold unless others are given
            max_attempts = function.max_attempts if max_attempts is None else max_attempts
            backoff = function.backoff if backoff is None else backoff
            timeout = function._timeout_s if timeout is None else timeout
            durability = function.durability if durability is None else durability
        self.name: str = name
        if not is_task_name(self.name):
            raise UsageError(f"task name {self.name!r} must be 1 to 200 printable characters")
        self.parameters = Parameters(self.name, self.function)
        self._least, self._most = self.parameters.least, self.parameters.most
        self._fitting: set[tuple[Any, ...]] = set()
        self.max_attempts: int | None = None if max_attempts is None else checked_attempts(max_attempts)
        self.backoff: plans.Plan | BackoffFunction | None = backoff
        if backoff is not None and not callable(backoff):
            plans.checked_plan(backoff)
        self.timeout_ms = None if timeout is None else checked_timeout(timeout)
        self.durability: Durability | None = None if durability is None else checked_durability(durability)
        self._doors = doors
        self._options = _given(
            max_attempts=self.max_attempts,
            backoff=None if callable(self.backoff) else self.backoff,
            timeout=self._timeout_s,
            durability=self.durability,
        )
        self.__name__ = self.name
        self.__doc__ = self.function.__doc__
        self.__wrapped__ = self.function

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    @property
    def own_options(self) -> TaskOptions:
        """What applies to its jobs, whoever makes them."""
        return TaskOptions(self.max_attempts, None if callable(self.backoff) else self.backoff, self.timeout_ms)

    @property
    def _timeout_s(self) -> float | None:
        return None if self.timeout_ms is None else self.timeout_ms / 1000

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
        durability: Durability | None = None,
        must_create: bool | None = None,
        reuse_id: bool | None = None,
    ) -> Task[P, R]:
        """The same task with options for the jobs that are enqueued through it; those not given stay as they are."""
        twin: Task[P, R] = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._options = self._options | _given(
            delay=delay,
            run_at=run_at,
            job_id=job_id,
            max_attempts=max_attempts,
            backoff=backoff,
            timeout=timeout,
            durability=durability,
            must_create=must_create,
            reuse_id=reuse_id,
        )
        return twin

    @overload
    def enqueue(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    @overload
    def enqueue(self: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call of the function with these arguments.

        Where a `job_id` of your own is given, the job's `created` says whether it is new.

        Raises:
            ArgumentsError: the function can't be called with these arguments.
            UsageError: the arguments are not JSON.
            Conflict, QueueFull, NotAcknowledged, StoreUnavailable: as `Queue.enqueue`.
        """
        payload = self._payload(args, kwargs)
        if "job_id" in self._options:
            job_id, created = self._doors.blocking._create(payload, **self._options)
            return Job(job_id, self._doors, created=created)
        return Job(self._doors.blocking.enqueue(payload, **self._options), self._doors, created=True)

    @overload
    async def aenqueue(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    @overload
    async def aenqueue(self: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    async def aenqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Twin of `enqueue`."""
        payload = self._payload(args, kwargs)
        if "job_id" in self._options:
            job_id, created = await self._doors.aio._create(payload, **self._options)
            return Job(job_id, self._doors, created=created)
        return Job(await self._doors.aio.enqueue(payload, **self._options), self._doors, created=True)

    @overload
    def enqueue_many(self: Task[P, Coroutine[Any, Any, T]], calls: Calls) -> list[Job[T]]: ...
    @overload
    def enqueue_many(self: Task[P, T], calls: Calls) -> list[Job[T]]: ...
    def enqueue_many(self, calls: Calls) -> Any:
        """Enqueue several calls, `[((positional, ...), {name: value}), ...]`, in a few round trips.

        Raises:
            QueueFull: with the ids that were stored; else as `enqueue`.
        """
        if "job_id" in self._options:
            found = self._doors.blocking._create_many(self._new_jobs(calls))
            return [Job(job_id, self._doors, created=created) for job_id, created in found]
        ids = self._doors.blocking.enqueue_many(self._payloads(calls), **self._options)
        return [Job(job_id, self._doors, created=True) for job_id in ids]

    @overload
    async def aenqueue_many(self: Task[P, Coroutine[Any, Any, T]], calls: Calls) -> list[Job[T]]: ...
    @overload
    async def aenqueue_many(self: Task[P, T], calls: Calls) -> list[Job[T]]: ...
    async def aenqueue_many(self, calls: Calls) -> Any:
        """Twin of `enqueue_many`."""
        if "job_id" in self._options:
            found = await self._doors.aio._create_many(self._new_jobs(calls))
            return [Job(job_id, self._doors, created=created) for job_id, created in found]
        ids = await self._doors.aio.enqueue_many(self._payloads(calls), **self._options)
        return [Job(job_id, self._doors, created=True) for job_id in ids]

    def new_job(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        """A job that calls the function with these arguments."""
        return NewJob(self._payload(args, kwargs), **self._options)

    def _new_jobs(self, calls: Calls) -> list[NewJob]:
        try:
            return [self.new_job(args, kwargs) for args, kwargs in calls]
        except (TypeError, ValueError) as error:
            raise self._located(calls, error) from None

    def _payloads(self, calls: Calls) -> list[dict[str, Any]]:
        try:
            return [self._payload(args, kwargs) for args, kwargs in calls]
        except (TypeError, ValueError) as error:
            raise self._located(calls, error) from None

    def _located(self, calls: Calls, error: Exception) -> Exception:
        """The error with the number of the call that it is about, where that can be told."""
        rows: Sequence[object] = calls if isinstance(calls, Sequence) else ()
        for number, call in enumerate(rows):
            if not isinstance(call, Sequence) or isinstance(call, (str, bytes)) or len(call) != 2:
                what = "a call is a pair (positional arguments, keyword arguments)"
                return ArgumentsError(f"task {self.name!r}: {what}, call {number} is {call!r:.200}")
            try:
                self._payload(*call)
            except ArgumentsError as problem:
                return ArgumentsError(f"{problem} (call {number})")
            except (TypeError, ValueError):
                break
        return error

    def _fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.parameters.check(args, kwargs)
        if len(self._fitting) < _MOST_FITTING:
            self._fitting.add((len(args), *kwargs))

    def _payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        # Whether a call fits depends on how many arguments it has and on their names: what has fitted is known.
        if args.__class__ is not tuple and args.__class__ is not list:
            check_kinds(self.name, args, kwargs)
        if kwargs:
            if (len(args), *kwargs) not in self._fitting:
                self._fit(args, kwargs)
        elif not self._least <= len(args) <= self._most:
            self.parameters.check(args, kwargs)
        payload: dict[str, Any] = {"task": self.name}
        if args:
            payload["args"] = list(args)
        if kwargs:
            payload["kwargs"] = dict(kwargs)
        return payload


def is_task_name(name: object) -> bool:
    """Whether a task may have this name."""
    return isinstance(name, str) and 1 <= len(name) <= 200 and name.isprintable()


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}
