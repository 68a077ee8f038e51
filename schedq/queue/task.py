"""Functions that run as jobs: enqueued with their arguments, still plain functions when called."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from schedq.errors import ArgumentsError, UsageError
from schedq.model import backoff as plans
from schedq.model.callables import global_at, name_of, runnable
from schedq.model.durability import Durability
from schedq.model.expiry import Expiry
from schedq.model.headers import merged_headers
from schedq.model.ids import new_ids
from schedq.model.outcome import BackoffFunction
from schedq.model.records import NewJob, Options
from schedq.model.settings import Settings
from schedq.model.tasks import TaskOptions, is_task_call, is_task_name
from schedq.model.times import Duration, Instant
from schedq.queue.before_enqueue import prepared_options, prepared_rows
from schedq.queue.conversion import Conversion
from schedq.queue.enqueue_many import Calls, of_each
from schedq.queue.handler import Handler
from schedq.queue.job import Job
from schedq.queue.other_engines import OtherTaskNames, naming_unknown
from schedq.queue.requests import Connections
from schedq.queue.task_options import (
    GivenOptions,
    checked_names,
    inherited,
    is_keyed,
    keyed,
    of_all,
    of_handler,
    of_jobs,
    with_keys,
)
from schedq.transitions import Operation, RoundTrips, enqueue
from schedq.transitions.enqueue import EncodedJob

if TYPE_CHECKING:  # imported by the first task that has a gate or is unique
    from schedq.model.gates import Gate
    from schedq.model.unique import Uniqueness

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
_NOT_GIVEN: Final = Options()


class TaskQueue(Protocol):
    """What a task needs to know of another queue: `Queue` and `AsyncQueue` have it."""

    @property
    def name(self) -> str:
        """The queue's name."""
        ...

    @property
    def registry(self) -> TasksByName:
        """The functions registered with it."""
        ...


class TasksByName(Protocol):
    """The tasks of a queue."""

    def get(self, name: object) -> Task[..., Any] | None:
        """The task of this name, or None."""
        ...


class Task(OtherTaskNames, Generic[P, R_co]):
    """A function that can run as a job. Calling it calls the plain function.

    Attributes:
        name: its name in payloads.
        function: the plain function.
        parameters: the arguments it takes.
        max_attempts: how often its jobs may be claimed; None for the queue's setting.
        backoff: a plan, or a function (attempt, error) → seconds; None for the queue's setting.
        timeout_ms: the longest an attempt may take; None for no limit.
        durability: where its jobs must be before `enqueue` returns; None for the queue's setting.
    """

    _own: GivenOptions

    def __init__(
        self,
        function: Callable[P, R_co],
        connections: Connections,
        *,
        name: str | None = None,
        **options: Unpack[GivenOptions],
    ) -> None:
        if isinstance(function, str):
            raise UsageError(f"a task must be a function, got {function!r}; a name is given as name={function!r}")
        given: object = function
        if isinstance(function, Task):  # a task of another queue: its options apply unless others are given
            given, name = function.function, function.name if name is None else name
            options = inherited(function._own, options)
        found = runnable(given, "task")
        self.name: str = name_of(found) if name is None else name
        if not is_task_name(self.name):
            raise UsageError(f"task name {self.name!r} must be 1 to 200 printable characters")
        self._own = checked_names(self.name, options)
        self._handler = handler = Handler(self.name, found, **of_handler(options))
        self._payload, handler.connections = handler.payload, connections
        self.function: Callable[P, R_co] = handler.function
        self.parameters = handler.parameters
        self.max_attempts: int | None = handler.max_attempts
        self.backoff: plans.Plan | BackoffFunction | None = handler.backoff
        self.timeout_ms: int | None = handler.timeout_ms
        self._connections = connections
        self._options = self._defaults = of_jobs(connections.settings, handler, options)
        self.durability: Durability | None = self._defaults.durability
        self.__name__, self.__doc__, self.__wrapped__ = self.name, self.function.__doc__, self.function
        self.__module__ = str(getattr(found, "__module__", ""))
        self.__qualname__ = str(getattr(found, "__qualname__", self.name))

    def __copy__(self) -> Task[P, R_co]:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __reduce__(self) -> str | tuple[Callable[..., Any], tuple[Task[P, R_co], Options]]:
        """Pickle it as its module and name, as functions are; of a copy made by `options`, the options too.

        Raises:
            UsageError: the module has no such task.
        """
        name = self.__qualname__
        found: object = global_at(self.__module__, name)
        if found is self:
            return name
        if not isinstance(found, Task) or found._handler is not self._handler:
            raise UsageError(
                f"task {self.name!r} can't be pickled: {self.__module__}.{name} is {found!r:.100}; define "
                "it at the top of a module, in a variable with the function's name"
            )
        return _with_options, (found, self._options)

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    @property
    def own_options(self) -> TaskOptions:
        """The options of its jobs, whichever process enqueues them."""
        plan, it = None if callable(self.backoff) else self.backoff, self._handler
        return TaskOptions(it.max_attempts, plan, it.timeout_ms, it.completed_ttl_ms, it.failed_ttl_ms)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function in this process, without a job."""
        result: R_co = self._handler.entry(*args, **kwargs)
        return result

    @naming_unknown
    def options(
        self,
        *,
        queue: TaskQueue | None = None,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        job_id: str | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | None = None,
        timeout: Duration | None = None,
        durability: Durability | None = None,
        must_create: bool | None = None,
        reuse_id: bool | None = None,
        expires: Expiry | None = None,
        headers: Mapping[str, str] | None = None,
        completed_ttl: Duration | None = None,
        failed_ttl: Duration | None = None,
        unique: Uniqueness | None = None,
        gate: Gate | str | None = None,
        key: str | int | None = None,
    ) -> Task[P, R_co]:
        """Return a copy of the task with options for its jobs; options that are not given stay as they are.

        `headers` are added to those given before; one with the same name is replaced.

        `queue` is a `Queue` or `AsyncQueue` with which a task of this name is registered too. The jobs then go there,
        with the options of that task where none are given. Here `key` is the key itself; '' for none.

        Raises:
            UsageError: an option is unknown or invalid, or `queue` has no task of this name.
        """
        task = copy.copy(self) if queue is None else self._in(queue)
        headers = merged_headers(task._options.headers, headers)
        given = (delay, run_at, job_id, max_attempts, backoff, timeout, durability)
        rest = (expires, headers, completed_ttl, failed_ttl, None, None, None)
        enqueue.check(task._connections.settings, Options._make((*given, False, False, *rest)))
        new = (*given, must_create, reuse_id, *rest)
        task._options = Options._make(old if it is None else it for old, it in zip(task._options, new, strict=True))
        task._options = with_keys(task._connections.settings, task._handler, task._options, unique, gate, key)
        return task

    def _in(self, queue: TaskQueue) -> Task[P, R_co]:
        """A copy of the task of this name in another queue, with the options that were given for this one."""
        if not hasattr(queue, "registry"):
            raise UsageError(f"queue must be a Queue or an AsyncQueue, got {queue!r:.200}")
        found = queue.registry.get(self.name)
        if found is None:
            raise UsageError(f"queue {queue.name} has no task {self.name!r}: register the function with it too")
        task = cast(Task[P, R_co], copy.copy(found))
        task._options = _without(self._options, self._defaults, instead=found._options)
        return task

    def with_args(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return a call for `enqueue_many` of the task or of the queue, with the options of this task.

        Raises:
            ArgumentsError: the function can't be called with these arguments.
        """
        return self.new_job(args, kwargs)

    @overload
    def enqueue(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    @overload
    def enqueue(self: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call of the function with these arguments.

        With a `job_id` of your own, or if the task is `unique`, `created` of the returned job says whether it is new.

        Raises:
            ArgumentsError: the function can't be called with these arguments.
            UsageError: the arguments are not JSON.
            Conflict, QueueFull, NotAcknowledged, StoreUnavailable: as `Queue.enqueue`.
        """
        found = self._connections.blocking.ask(self._created(args, kwargs))
        return self._job(found[0], created=found[1])

    @overload
    async def aenqueue(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    @overload
    async def aenqueue(self: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...
    async def aenqueue(self, *args: Any, **kwargs: Any) -> Any:
        """`enqueue` for asyncio."""
        found = await self._connections.aio.ask(self._created(args, kwargs))
        return self._job(found[0], created=found[1])

    @overload
    def enqueue_many(self: Task[P, Coroutine[Any, Any, T]], calls: Calls) -> list[Job[T]]: ...
    @overload
    def enqueue_many(self: Task[P, T], calls: Calls) -> list[Job[T]]: ...
    def enqueue_many(self, calls: Calls) -> Any:
        """Enqueue calls in a few round trips, each as `with_args(...)` or as `((positional, ...), {name: value})`.

        Options that a call from `with_args` was given take precedence over those of this task.

        Raises:
            ArgumentsError: the function can't be called with some arguments, or a call is one of another task.
            QueueFull: `stored` has the ids that were stored; otherwise as `enqueue`.
        """
        return self._connections.blocking.drive(self._created_many(calls))

    @overload
    async def aenqueue_many(self: Task[P, Coroutine[Any, Any, T]], calls: Calls) -> list[Job[T]]: ...
    @overload
    async def aenqueue_many(self: Task[P, T], calls: Calls) -> list[Job[T]]: ...
    async def aenqueue_many(self, calls: Calls) -> Any:
        """`enqueue_many` for asyncio."""
        return await self._connections.aio.drive(self._created_many(calls))

    def _job(self, job_id: str, *, created: bool) -> Job[Any]:
        return Job(job_id, self._connections, created=created, conversion=self._conversion)

    @property
    def _conversion(self) -> Conversion | None:
        return None if self._handler.converter is None else self._handler.converter.conversion

    def _created(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Operation[tuple[str, bool]]:
        """The request that stores a call; it returns the job's id and whether it is new."""
        queue, options = self._connections.settings, self._options
        payload = self._payload(args, kwargs)
        if is_keyed(options):
            options = keyed(self._handler, options, args, kwargs)
        if self._connections.before_enqueue:
            options = prepared_options(self._connections, payload, options)
        return enqueue.create(queue, enqueue.prepare(queue, payload, options, is_marked=options.job_id is not None))

    def prepare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Settings, EncodedJob, Job[Any]]:
        """Check a call, for a program that stores it later: the queue, what `enqueue` would send, and the job."""
        queue, payload = self._connections.settings, self._payload(args, kwargs)
        options = keyed(self._handler, self._options, args, kwargs)
        is_marked = options.job_id is not None
        options = options if is_marked else options._replace(job_id=new_ids()[0])
        if self._connections.before_enqueue:
            options = prepared_options(self._connections, payload, options)
        encoded = enqueue.prepare(queue, payload, options, is_marked=is_marked)
        return queue, encoded, self._job(encoded.job_id, created=True)

    def _created_many(self, calls: Calls) -> RoundTrips[list[Job[Any]]]:
        queue, options = self._connections.settings, self._options
        is_common = options.job_id is None and not is_keyed(options)
        rows: Iterable[Any] = of_each(self.name, calls, self._payload if is_common else self.new_job, self._own_call)
        options = of_all(options)
        if self._connections.before_enqueue:
            rows, options = prepared_rows(self._connections, rows, options), _NOT_GIVEN
        prepared = enqueue.prepare_many(queue, rows, options, is_marked=True)
        created = yield from enqueue.create_many(queue, prepared)
        connections, conversion = self._connections, self._conversion
        return [Job(job_id, connections, created=is_new, conversion=conversion) for job_id, is_new in created]

    def new_job(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        """Return a job that calls the function with these arguments."""
        return NewJob(self._payload(args, kwargs), **keyed(self._handler, self._options, args, kwargs)._asdict())

    def _own_call(self, call: NewJob) -> NewJob:
        """A call from `with_args`, with only the options that it was given."""
        if not is_task_call(call.payload) or call.payload["task"] != self.name:
            raise ArgumentsError(f"task {self.name!r}: {call.payload!r:.200} is not a call of this task")
        given = _without(Options._make(getattr(call, name) for name in Options._fields), self._defaults)
        job_id = self._options.job_id if given.job_id is None else given.job_id
        return NewJob(call.payload, **given._replace(job_id=job_id)._asdict())


def _with_options(task: Task[P, R_co], options: Options) -> Task[P, R_co]:
    """A copy of a task with exactly these options for its jobs."""
    made = copy.copy(task)
    made._options = options
    return made


def _without(options: Options, defaults: Options, *, instead: Options = _NOT_GIVEN) -> Options:
    """The options that differ from a task's own, and others instead of the rest."""
    return Options._make(
        other if value == own else value for value, own, other in zip(options, defaults, instead, strict=True)
    )
