"""The two clients of a queue: `Queue`, whose verbs block, and `AsyncQueue`, whose verbs are awaited."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload
from weakref import WeakValueDictionary

from schedq.aliases import QueueAliases
from schedq.connection.address import Address
from schedq.errors import UsageError
from schedq.model import backoff as plans
from schedq.model.durability import Durability
from schedq.model.keys import checked_id
from schedq.model.outcome import BackoffFunction, ErrorTypes
from schedq.model.payload import encode
from schedq.model.settings import Settings
from schedq.model.times import Duration
from schedq.queue.batch_methods import AsyncBatchMethods, BatchMethods
from schedq.queue.control_verbs import ControlVerbs
from schedq.queue.extensions import Extensions
from schedq.queue.gathering import gather_results
from schedq.queue.hooks import OnFailure, OnRetry, OnSuccess
from schedq.queue.job import Job
from schedq.queue.other_engines import OtherQueueNames
from schedq.queue.queue_verbs import AttemptVerbs, QueueVerbs
from schedq.queue.registry import NO_PAYLOAD, Registry, owner_of, schedule_options, scheduled_payload
from schedq.queue.requests import Connections, acarry_out, carry_out
from schedq.queue.task import Task
from schedq.queue.verb import AsyncVerbs, BlockingVerbs, verb
from schedq.queue.workflows import WorkflowDecorator
from schedq.transitions import RoundTrips, announce, unwrap

if TYPE_CHECKING:  # imported when they are used: most programs only enqueue
    from schedq.dependencies.lifespan import Lifespan
    from schedq.model.gates import Gate, Rates
    from schedq.model.unique import Uniqueness
    from schedq.queue.gate_options import KeyBy
    from schedq.queue.gates import AsyncGates, Gates
    from schedq.queue.inspector import AsyncInspector, Inspector
    from schedq.queue.schedules import AsyncSchedules, Schedules
    from schedq.schedules.definition import ScheduleOptions

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
all_queues: Final[WeakValueDictionary[int, QueueBase]] = WeakValueDictionary()
"""The queues of this process, each once, oldest first; tests connect them to another server."""
_numbers = count()
_NO_SETTINGS: Final = ("self", "redis", "lifespan", "concurrency", "rate")


class QueueBase(QueueVerbs, ControlVerbs, AttemptVerbs, Extensions, WorkflowDecorator, QueueAliases, OtherQueueNames):
    """One queue with the functions that run its jobs: what `Queue` and `AsyncQueue` share.

    Attributes:
        settings: the queue's settings.
        address: where its Redis is.
        registry: the registered functions.
        connections: the connections of both clients.
        lifespan: what its workers enter before their first claim, or None.
    """

    connections: Connections
    _blocking: Queue
    _aio: AsyncQueue

    def __init__(
        self,
        name: str,
        *,
        redis: object = None,
        visibility_ms: int = 10_000,
        max_attempts: int = 3,
        backoff: plans.Plan = plans.Exponential(base=2, factor=2, cap=600, jitter=0.5),  # noqa: B008 - frozen
        completed_ttl: Duration = 3600,
        failed_ttl: Duration | None = None,
        completed_history: int = 100_000,
        failed_history: int | None = 10_000,
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
        lifespan: Lifespan | None = None,
        concurrency: int | None = None,
        rate: Rates | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in _NO_SETTINGS}
        if lifespan is not None and not callable(lifespan):
            raise UsageError(f"lifespan must be a function that returns a context manager, got {lifespan!r:.200}")
        self.lifespan = lifespan
        self.address = Address(redis)
        self.registry = Registry(name)
        self._connect(Settings(**given, tagged=self.address.is_cluster, db=self.address.db))
        if concurrency is not None or rate is not None:
            from schedq.model.gates import declare, queue_limits

            declare(self.settings.gates, queue_limits(concurrency, rate))

    @classmethod
    def for_operator(
        cls, name: str, *, redis: object = None, retry_for: Duration = 5, allow_eviction: bool = False
    ) -> Self:
        """A queue for a process that does not have the application's code, such as a tool for operators.

        It trims no history and does not register the queue's name. `load_settings` gives it the application's settings.

        Raises:
            UsageError: an argument is invalid.
        """
        made = cls(name, redis=redis, retry_for=retry_for, allow_eviction=allow_eviction)
        made._connect(replace(made.settings.without_application(), listed=False))
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, redis={self.address.label!r})"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.settings.name

    @property
    def blocking(self) -> Queue:
        """The blocking queue with the same settings and functions."""
        return self._blocking

    @property
    def aio(self) -> AsyncQueue:
        """The asyncio queue with the same settings and functions."""
        return self._aio

    def _connect(self, settings: Settings) -> None:
        """Create the connections and the other client; sends nothing."""
        self.settings, self.connections = settings, Connections(self.address, settings)
        self.connections.plain_tasks, self.registry.connections = self.registry.plain_names, self.connections
        all_queues[next(_numbers)] = self
        self._blocking = self if isinstance(self, Queue) else object.__new__(Queue)
        self._aio = self if isinstance(self, AsyncQueue) else object.__new__(AsyncQueue)
        for client in (self._blocking, self._aio):
            client.__dict__.update(self.__dict__)
            client._follow(self.connections)

    @verb
    def load_settings(self) -> RoundTrips[None]:
        """Use the queue settings that the application's workers stored; for a process without its code."""
        (reply,) = yield [announce.read_settings(self.settings)]
        settings = self.settings.with_fields(unwrap(reply))
        self.connections.use(settings)
        self._blocking.settings = self._aio.settings = settings

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
        completed_ttl: Duration | None = None,
        failed_ttl: Duration | None = None,
        retry_on: ErrorTypes | None = None,
        discard_on: ErrorTypes | None = None,
        on_success: OnSuccess | None = None,
        on_failure: OnFailure | None = None,
        on_retry: OnRetry | None = None,
        isolate: bool | None = None,
        unique: Uniqueness | None = None,
        gate: Gate | str | None = None,
        key: KeyBy | None = None,
        concurrency: int | None = None,
        rate: Rates | None = None,
        key_concurrency: int | None = None,
        key_rate: Rates | None = None,
        serial: bool | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:  # type: ignore[misc] # the overloads name the options
        """Register a function, plain or async, that jobs call by name. Use it bare or with options.

        None for an option means the queue's setting, or none where the queue has no such setting.

        Args:
            function: the function, when used bare.
            options: name (by default the function's), max_attempts, backoff (a plan, or a function
                (attempt, error) → seconds), timeout (seconds or a timedelta for one attempt), durability,
                completed_ttl and failed_ttl (how long records of its finished jobs are kept); retry_on and discard_on
                (exception types that are worth another attempt, or are not); on_success (attempt, result), on_failure
                (attempt, error) and on_retry (attempt, error, delay), functions that are called at these ends; isolate
                (True: run this plain function in a child process; False: never do; by default the worker's `pool`);
                unique (True, or a `Unique` or `Debounce` that says which jobs count as the same); gate (whose limits
                its jobs share with others) or limits of its own (concurrency, rate, key_concurrency, key_rate, serial),
                and key (a parameter or a function of the arguments; jobs of different keys take turns).

        Raises:
            UsageError: the name is taken by another function, an option is invalid, or calling this would not do the
                work: it is a class, a generator, or a method without its object.
        """
        if function is None:
            return partial(_registered, self, options)
        return self._add(function, options)

    def _add(self, function: Callable[..., Any], options: dict[str, Any]) -> Task[..., Any]:
        task = Task(function, self.connections, **options)
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
        """Run the function, or the task, at the times of a cron expression; a worker stores it when it starts.

        Args:
            expression: 5 fields, or 6 with seconds first.
            id: the schedule's id; by default the task's name.
            args: positional arguments of each call.
            kwargs: keyword arguments of each call.
            options: see `ScheduleOptions`.

        Raises:
            UsageError: the expression or an option is invalid, or another schedule has this id.
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
        """Run the function, or the task, at an interval (seconds or a timedelta); otherwise like `cron`.

        Intervals count from `start`, or else from 1970-01-01 UTC: 3600 means on the hour, whenever a worker starts.
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
        from schedq.schedules.definition import define

        is_known = isinstance(function, Task) and self._has(function)
        task = cast(Task[P, R], function if is_known else self._add(function, {}))
        args, kwargs = call
        name = re.sub(r"[^A-Za-z0-9_-]", "-", task.name) if schedule_id is None else schedule_id
        payload, own = scheduled_payload(name, task, NO_PAYLOAD, args, kwargs)
        text = encode(payload, self.settings.max_payload)
        said = schedule_options({**own, "owner": owner_of(task.function)}, options)
        definition = define(name, text, cron=cron, every=every, options=said)
        self.registry.add_schedule(definition, task.function)
        return task

    def _has(self, task: Task[..., Any]) -> bool:
        """Whether it is a task of this queue rather than of another one."""
        known = self.registry.get(task.name)
        return known is not None and known.function is task.function

    def handler(self, function: F) -> F:
        """Register the function for payloads that are not task calls; its return value is the job's result.

        Raises:
            UsageError: there is one already, or it can't be called with one argument.
        """
        self.registry.set_handler(function)
        return function

    def job(self, job_id: str) -> Job[Any]:
        """A handle on a job by its id; sends nothing to Redis.

        Raises:
            UsageError: the id is invalid.
        """
        return Job(checked_id(job_id), self.connections)


class Queue(QueueBase, BatchMethods, BlockingVerbs):
    """A queue whose methods block. Threads may share one, and it survives a fork. Creating one does not connect.

    Args:
        name: 1 to 64 characters of `A-Z a-z 0-9 _ . -`, the first a letter or digit.
        redis: a URL (redis, rediss, unix, redis+cluster, redis+sentinel, embedded), or a redis-py client, of which only
            the connection settings are used. None: `SCHEDQ_REDIS_URL`, else `REDIS_URL`, else
            redis://localhost:6379/0.
        visibility_ms: length of a lease. Workers renew their leases, so it need not cover the longest job.
        max_attempts: claims a job gets.
        backoff: waits between attempts.
        completed_ttl: how long a completed job's record is kept: seconds or a timedelta, like all durations here.
        failed_ttl: how long the record of a failed or cancelled job is kept; None for no limit.
        completed_history: the most completed jobs to keep; the oldest go first, even before `completed_ttl`.
        failed_history: the most failed jobs to keep, and the most cancelled ones; the oldest go first, even before
            `failed_ttl`. None keeps all.
        min_keep: seconds that a finished record is kept at least, whatever the ttls and the caps.
        unknown_for: seconds for which a job whose task no worker knows is put back without spending attempts,
            because a deployment may be in progress; then it fails.
        max_pending: the most jobs that may wait; None for no limit.
        max_payload: the most bytes of JSON in a payload or a result.
        allow_eviction: work with a Redis that may evict keys.
        retry_for: seconds for which a call retries when Redis does not reply.
        clock: a function that returns Unix seconds, used instead of Redis's time; for tests.
        log_size: about how many entries the audit stream keeps; 0 writes none.
        durability: where a new job is before `enqueue` returns: in the primary's "memory", "replicated" to `replicas`
            replicas, or on the primary's disk ("fsync").
        replicas: the number of replicas for "replicated".
        lifespan: a function that returns an async or a plain context manager. A worker enters it before its first claim
            and leaves it after its last job. Tasks get the value it yields by `Depends(lifespan)`.
        concurrency: the most jobs of the queue that run at the same time, all workers together; None for no limit.
        rate: a `Rate`, or several of which all must allow a start, of all jobs of the queue together.

    Raises:
        UsageError: an argument is invalid; the message names it.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def inspector(self) -> Inspector:
        """The operator's side of the queue."""
        from schedq.queue.inspector import Inspector

        return Inspector(self.connections)

    @property
    def gates(self) -> Gates:
        """The queue's gates, as operators see and control them."""
        from schedq.queue.gates import Gates

        return Gates(self.connections)

    @property
    def schedules(self) -> Schedules:
        """The queue's schedules."""
        from schedq.queue.schedules import Schedules

        return Schedules(self.connections, self.registry)

    @overload
    def gather_results(
        self, jobs: Iterable[Job[R]], timeout: Duration | None = None, *, return_exceptions: Literal[False] = False
    ) -> list[R]: ...
    @overload
    def gather_results(
        self, jobs: Iterable[Job[R]], timeout: Duration | None = None, *, return_exceptions: Literal[True]
    ) -> list[R | Exception]: ...
    @overload
    def gather_results(
        self, jobs: Iterable[Job[Any] | str], timeout: Duration | None = None, *, return_exceptions: bool = False
    ) -> list[Any]: ...
    def gather_results(
        self, jobs: Iterable[Job[Any] | str], timeout: Duration | None = None, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for the results of many jobs of this queue in few round trips, at most `timeout` seconds altogether.

        Args:
            jobs: the jobs, or their ids.
            timeout: seconds or a timedelta; None waits forever.
            return_exceptions: return an error in the place of its result, as `asyncio.gather` does. By default a job
                that ended without a result raises, within a second of its end; of several, the first in the list.

        Returns:
            The results, in the order of `jobs`.

        Raises:
            JobFailed, JobCancelled, JobGone: as `result`.
            TimeoutError: a job has not finished yet.
            UsageError: a job belongs to another queue.
        """
        return carry_out(
            self._client, gather_results(self.settings, jobs, timeout, return_exceptions=return_exceptions)
        )

    def close(self) -> None:
        """Close the connections; every later call raises ClosedError."""
        self._client.close()


class AsyncQueue(QueueBase, AsyncBatchMethods, AsyncVerbs):
    """A queue whose methods are awaited. It takes the arguments of `Queue`; creating one does not connect.

    Event loops may share one, in several threads or one after the other. Each loop gets connections of its own, which
    are closed with the loop at the latest.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def inspector(self) -> AsyncInspector:
        """The operator's side of the queue."""
        from schedq.queue.inspector import AsyncInspector

        return AsyncInspector(self.connections)

    @property
    def gates(self) -> AsyncGates:
        """The queue's gates, as operators see and control them."""
        from schedq.queue.gates import AsyncGates

        return AsyncGates(self.connections)

    @property
    def schedules(self) -> AsyncSchedules:
        """The queue's schedules."""
        from schedq.queue.schedules import AsyncSchedules

        return AsyncSchedules(self.connections, self.registry)

    @overload
    async def gather_results(
        self, jobs: Iterable[Job[R]], timeout: Duration | None = None, *, return_exceptions: Literal[False] = False
    ) -> list[R]: ...
    @overload
    async def gather_results(
        self, jobs: Iterable[Job[R]], timeout: Duration | None = None, *, return_exceptions: Literal[True]
    ) -> list[R | Exception]: ...
    @overload
    async def gather_results(
        self, jobs: Iterable[Job[Any] | str], timeout: Duration | None = None, *, return_exceptions: bool = False
    ) -> list[Any]: ...
    async def gather_results(
        self, jobs: Iterable[Job[Any] | str], timeout: Duration | None = None, *, return_exceptions: bool = False
    ) -> list[Any]:
        """`Queue.gather_results`, awaited."""
        return await acarry_out(
            self._client, gather_results(self.settings, jobs, timeout, return_exceptions=return_exceptions)
        )

    async def aclose(self) -> None:
        """Close the connections of this event loop; the next call opens new ones. Waiting calls raise ClosedError."""
        await self._client.aclose()


def _registered(
    queue: QueueBase, options: dict[str, Any], /, *function: Callable[..., Any], **more: Any
) -> Task[..., Any]:
    """Register the function that is decorated with these options."""
    if more or len(function) != 1:
        raise UsageError(
            "queue.task(...) takes a function now, not more options; keep those that tasks share in a dict, as in "
            "@queue.task(**common, max_attempts=1)"
        )
    return queue._add(*function, options)
