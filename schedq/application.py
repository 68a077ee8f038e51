"""What the two doors of a queue share, however one waits for Redis: settings, place, registered functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, ParamSpec, Self, TypeVar, Unpack, cast, overload

from schedq import backoff as plans
from schedq.connection.address import Address
from schedq.connection.asender import AsyncSender
from schedq.connection.sender import Sender
from schedq.durability import Durability
from schedq.errors import UsageError
from schedq.handle import AsyncDoor, BlockingDoor, Job
from schedq.instants import Duration, seconds_of
from schedq.job import ClaimedJob
from schedq.keys import checked_id
from schedq.outcome import BackoffFunction, Policy
from schedq.registry import Registry, defined, owner_of
from schedq.schedule import ScheduleOptions
from schedq.settings import Settings
from schedq.task import Task

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Application:
    """One queue with the functions that run its jobs. Making one connects to nothing.

    Args:
        name: 1 to 64 of `A-Z a-z 0-9 _ . -`, the first a letter or digit.
        redis: a URL (redis, rediss, unix, redis+cluster, redis+sentinel, embedded), or a redis-py client, which is
            taken for its connection settings only. None: `SCHEDQ_REDIS_URL`, else `REDIS_URL`, else
            redis://localhost:6379/0.
        visibility_ms: length of a lease. Workers renew theirs, so it need not cover the longest job.
        max_attempts: claims a job gets.
        backoff: waits between attempts.
        completed_ttl: seconds, or a timedelta, that a completed job's record is kept; so for other durations.
        completed_history: most completed jobs that are kept; the oldest go first, also before `completed_ttl`.
        failed_history: failed jobs that are kept, and cancelled ones.
        min_keep: seconds that a finished record stays at the least.
        unknown_for: seconds for which a job whose task no worker knows is put back, without spending attempts, before
            it fails: a deploy may be under way.
        max_pending: most jobs that may wait; None for no limit.
        max_payload: bytes of JSON that a payload or a result may have.
        allow_eviction: work with a Redis that may evict keys.
        retry_for: seconds for which a call re-sends when Redis does not answer.
        clock: Unix seconds in place of Redis's time, called anew each time; for tests.
        log_size: entries that the audit stream keeps, about; 0 writes none.
        durability: what has a new job before `enqueue` returns: "memory" (the primary), "replicated" (so many
            replicas too) or "fsync" (the primary's disk).
        replicas: how many, for "replicated".

    Raises:
        UsageError: an argument makes no sense; the message names it.
    """

    _doors: ClassVar[dict[str, type[Application]]] = {}
    _door: ClassVar[str]
    _sender: Sender | AsyncSender

    def __init_subclass__(cls, *, door: str, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls._door = door
        if door:
            Application._doors[door] = cls

    def __init__(
        self,
        name: str,
        *,
        redis: object = None,
        visibility_ms: int = 10_000,
        max_attempts: int = 3,
        backoff: plans.Plan = plans.Exponential(base=2, factor=2, cap=600, jitter=0.5),  # noqa: B008 - frozen
        completed_ttl: Duration = 3600,
        completed_history: int = 100_000,
        failed_history: int = 10_000,
        min_keep: Duration = 30,
        unknown_for: Duration = 3600,
        max_pending: int | None = None,
        max_payload: int = 262_144,
        allow_eviction: bool = False,
        retry_for: Duration = 5,
        clock: Callable[[], float] | None = None,
        log_size: int = 1000,
        durability: Durability = "memory",
        replicas: int = 1,
    ) -> None:
        self.address = Address(redis)
        self.settings = Settings(
            name,
            visibility_ms=visibility_ms,
            max_attempts=max_attempts,
            backoff=backoff,
            completed_ttl=seconds_of(completed_ttl),
            completed_history=completed_history,
            failed_history=failed_history,
            min_keep=seconds_of(min_keep),
            unknown_for=seconds_of(unknown_for),
            max_pending=max_pending,
            max_payload=max_payload,
            allow_eviction=allow_eviction,
            retry_for=seconds_of(retry_for),
            clock=clock,
            log_size=log_size,
            durability=durability,
            replicas=replicas,
            tagged=self.address.is_cluster,
            db=self.address.db,
        )
        self.registry = Registry(name)
        self._twins: dict[str, Application] = {self._door: self}
        self._open()

    @classmethod
    def visiting(
        cls, name: str, *, redis: object = None, retry_for: Duration = 5, allow_eviction: bool = False
    ) -> Self:
        """A queue for a process without the application's code, such as a tool for operators.

        It trims nothing and does not put its name on the list of queues; `learn_settings` tells it the application's
        settings.

        Raises:
            UsageError: an argument makes no sense.
        """
        made = cls(name, redis=redis, retry_for=retry_for, allow_eviction=allow_eviction)
        made.settings = replace(made.settings.without_application(), listed=False)
        made._open()
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, redis={self.address.label!r})"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.settings.name

    @property
    def blocking(self) -> BlockingDoor:
        """The blocking queue with the same settings and functions."""
        return cast(BlockingDoor, self._twin("blocking"))

    @property
    def aio(self) -> AsyncDoor:
        """The asyncio queue with the same settings and functions."""
        return cast(AsyncDoor, self._twin("aio"))

    def _go_by(self, stored: dict[str, str]) -> None:
        """Take over what the `settings` hash says, in both doors."""
        settings = self.settings.with_fields(stored)
        for twin in self._twins.values():
            twin.settings = settings
            twin._sender.use(settings)

    def _policy(self, job: ClaimedJob) -> Policy:
        """What applies to a job that was claimed by hand."""
        task = self.registry.task_of(job.payload)
        if task is None:
            return Policy.of(self.settings, job)
        return Policy.of(self.settings, job, task.max_attempts, task.backoff)

    def _open(self) -> None:
        """Set up what only this door has; connect to nothing."""
        raise TypeError("use Queue or AsyncQueue")

    def _twin(self, door: str) -> Application:
        if door not in self._twins:
            twin = object.__new__(self._doors[door])
            twin.settings, twin.address, twin.registry = self.settings, self.address, self.registry
            twin._twins = self._twins
            twin._open()
            self._twins.setdefault(door, twin)  # another thread may have been first
        return self._twins[door]

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | BackoffFunction | None = None,
        timeout: Duration | None = None,
        durability: Durability | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:  # type: ignore[misc] # the overloads name the options
        """Register a function, plain or async, that jobs can ask for by name. Bare, or with options.

        Args:
            function: when used bare.
            options: name (the function's own, if not given), max_attempts, backoff (a plan, or a function
                (attempt, error) → seconds), timeout (seconds or a timedelta for one attempt), durability.

        Raises:
            UsageError: the name is taken by another function, an option makes no sense, or this is no function whose
                call does its work: a class, a generator, a method without its object.
        """
        if function is None:
            return lambda found: self.task(found) if not options else self._add(found, options)
        return self._add(function, options)

    def _add(self, function: Callable[..., Any], options: dict[str, Any]) -> Task[..., Any]:
        task = Task(function, self, **options)
        self.registry.add(task)
        return task

    def cron(
        self,
        expression: str,
        *,
        id: str | None = None,  # noqa: A002 - what it is called everywhere
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Run the function, or the task, whenever a cron expression says; it is stored when a worker starts.

        Args:
            expression: 5 fields, or 6 with seconds first.
            id: of the schedule; the task's name, if not given.
            args: of each call.
            kwargs: of each call.
            options: see `ScheduleOptions`.

        Raises:
            UsageError: the expression or an option can't be meant, or another schedule has the id.
        """
        if not isinstance(expression, str):
            raise UsageError(f'cron needs an expression, as in @queue.cron("0 3 * * *"), got {expression!r:.200}')
        return lambda function: self._recur(function, id, expression, None, (args, kwargs), options)

    def every(
        self,
        interval: Duration,
        *,
        id: str | None = None,  # noqa: A002 - as `cron`
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Run the function, or the task, every so often (seconds or a timedelta): else as `cron`.

        Intervals are counted from `start`, else from 1970-01-01 UTC: every 3600 is on the hour, whoever starts when.
        """
        if callable(interval):
            raise UsageError(f"every needs an interval, as in @queue.every(60), got {interval!r:.200}")
        return lambda function: self._recur(function, id, None, interval, (args, kwargs), options)

    def _recur(
        self,
        function: Callable[P, R],
        schedule_id: str | None,
        cron: str | None,
        every: Duration | None,
        call: tuple[Sequence[Any], Mapping[str, Any] | None],
        options: ScheduleOptions,
    ) -> Task[P, R]:
        is_known = isinstance(function, Task) and self._has(function)
        task = cast(Task[P, R], function if is_known else self._add(function, {}))
        args, kwargs = call
        name = re.sub(r"[^A-Za-z0-9_-]", "-", task.name) if schedule_id is None else schedule_id
        owned: ScheduleOptions = {"owner": owner_of(task.function), **options}
        definition = defined(
            name, self.settings.max_payload, owned, cron=cron, every=every, task=task, args=args, kwargs=kwargs
        )
        self.registry.add_schedule(definition, task.function)
        return task

    def _has(self, task: Task[..., Any]) -> bool:
        """Whether it is a task of this queue, and not of another one."""
        known = self.registry.get(task.name)
        return known is not None and known.function is task.function

    def handler(self, function: F) -> F:
        """Register the function for payloads that are no task call; what it returns is the job's result.

        Raises:
            UsageError: there is one already, or this can't be called with a payload.
        """
        self.registry.set_handler(function)
        return function

    def job(self, job_id: str) -> Job[Any]:
        """A handle on a job by its id; asks Redis nothing.

        Raises:
            UsageError: this can't be an id.
        """
        return Job(checked_id(job_id), self)
