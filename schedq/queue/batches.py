"""Batches and chains: many jobs with one end, and calls of which each begins when the one before has completed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from schedq.errors import ArgumentsError, BatchCancelled, BatchFailed, JobGone, UsageError
from schedq.inspect.batch_timeline import BatchTimeline, batch_timeline
from schedq.model.groups import (
    LEAST_TTL_S,
    MOST_LINKS,
    BatchProgress,
    ChildFailure,
    GroupDefinition,
    checked_concurrency,
    checked_group_id,
    checked_tolerate,
)
from schedq.model.ids import new_ids
from schedq.model.payload import decoded, encode
from schedq.model.placeholder import RESULT, RESULT_TEXT
from schedq.model.records import NewJob, Options
from schedq.model.settings import Settings
from schedq.model.times import Duration, duration_ms, monotonic
from schedq.queue.batch_results import BatchResults, progress_of
from schedq.queue.before_enqueue import prepared_options
from schedq.queue.job import Job
from schedq.queue.requests import Connections, Item, Listen, Listening, Steps
from schedq.queue.stored_calls import NOT_OF_CHILDREN, check_queue, fields_of, follow_up, gates_of, stored_call
from schedq.queue.task import Task
from schedq.queue.verb import AsyncVerbs, BlockingVerbs, verb
from schedq.transitions import Operation, RoundTrips, enqueue, groups, unwrap

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")
OnBatchProgress = Callable[[BatchProgress], object]
_LOOK_S: Final = 1.0
_PAGE: Final = 1000


class BatchOptions(NamedTuple):
    """What a batch is given, apart from its id and its task."""

    concurrency: int | None = None
    tolerate: float = 0
    then: Task[..., Any] | NewJob | None = None
    otherwise: Task[..., Any] | NewJob | None = None
    results: bool = True
    ttl: Duration = 604_800
    close_within: Duration | None = 3600


class BatchVerbs:
    """The requests of `Batch` and `AsyncBatch`.

    Attributes:
        id: its id.
        total: how many children it had when this object last asked or added some.
    """

    id: str
    total: int
    _connections: Connections
    _task: Task[..., Any] | None
    _options: BatchOptions
    _made: GroupDefinition | None
    _at: int

    def _start(
        self, connections: Connections, batch_id: str, task: Task[..., Any] | None, options: BatchOptions
    ) -> None:
        if task is not None and not isinstance(task, Task):
            raise UsageError(f"a batch takes a task of the queue, got {task!r:.200}; decorate it with @queue.task")
        check_queue(connections, f"batch {batch_id}", task)
        self.id, self.total, self._at, self._made = checked_group_id(batch_id), 0, 0, None
        self._connections, self._task, self._options = connections, task, options
        if task is not None:
            definition_of(connections, self.id, task, options, None)  # an invalid option is an error here

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @verb
    def add(self, items: Iterable[Any], *, at: int | None = None) -> RoundTrips[int]:
        """Add children, in pages of 1000; returns how many the batch has now.

        The children are numbered. A producer that died and runs again adds the same items in the same order; those that
        are there already are passed over. Or it leaves them out and says so: `batch.add(rest, at=batch.total)`.

        Args:
            items: for each child the one argument of its call, or `task.with_args(...)`. May be a generator.
            at: how many children come before these; by default those that this object has added.

        Raises:
            ArgumentsError: the task can't be called with an item; nothing of its page is added.
            Conflict: a batch of this id exists with another task, call or option.
            QueueFull: Redis's memory is full; run the producer again later.
        """
        return self._fill(items, self._at if at is None else at)

    @verb
    def close(self) -> RoundTrips[None]:
        """Say that all children were added. Leaving the `with` block does this, unless by an exception.

        A batch without children completes at once.
        """
        return self._close()

    @verb
    def progress(self) -> RoundTrips[BatchProgress]:
        """Return how far it is.

        Raises:
            JobGone: nothing is stored under this id.
        """
        return progress_of(self._connections.settings, self.id)

    @verb
    def wait(self, timeout: Duration | None = None, *, on_progress: OnBatchProgress | None = None) -> Listening[bool]:
        """Wait until it is completed, failed or cancelled; False if `timeout` (seconds) ran out first.

        Args:
            timeout: seconds or a timedelta; None waits forever.
            on_progress: called with the `BatchProgress` about once a second, as long as it waits. It must not block.

        Raises:
            JobGone: nothing is stored under this id.
        """
        steps = _follow(self._connections.settings, self.id, timeout, lambda found, _: found.has_ended, on_progress)
        return Listening(channel_of(self._connections.settings, self.id), steps)

    @verb
    def result(self, timeout: Duration | None = None) -> Listening[Any]:
        """Wait for the end, at most `timeout` seconds; returns the last result of a chain, or the `BatchResults`.

        Raises:
            BatchFailed, BatchCancelled, JobGone: there will be no result.
            TimeoutError: it has not ended yet.
        """
        connections, name = self._connections, self.id

        def read(found: BatchProgress, last: str | None) -> Any:
            if not found.has_ended:
                raise TimeoutError(f"batch {name} is {found.status}: {found.completed} of {found.total} have completed")
            if found.status == "cancelled":
                raise BatchCancelled(f"batch {name} was cancelled")
            if found.status == "failed":
                raise BatchFailed(name, found.failed, found.total, found.error, is_chain=last is not None)
            return BatchResults(connections, name) if last is None else decoded(last)

        return Listening(channel_of(connections.settings, name), _follow(connections.settings, name, timeout, read))

    @verb
    def cancel(self) -> Operation[bool]:
        """Call it off; returns False if it has ended.

        No child begins any more. Those that wait are cancelled, those that run are asked to stop, by the promoter.
        """
        return groups.cancel(self._connections.settings, self.id)

    @verb
    def retry(self) -> RoundTrips[int]:
        """Run the children that failed again, or a chain from the call that failed; returns how many.

        At the new end the batch does again what it does at an end.

        Raises:
            UsageError: it has not ended, or was called off before all children were made.
            Conflict: it is being retried already.
        """
        return groups.retry(self._connections.settings, self.id)

    @verb
    def failures(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[ChildFailure]]:
        """Return children that failed, in the order in which they did: a page of at most 1000."""
        return groups.failures(self._connections.settings, self.id, offset, min(limit, _PAGE))

    @verb
    def timeline(self, failures: int = 20) -> RoundTrips[BatchTimeline]:
        """Return its history: its beginning and its end, the first children that failed, and the call at the end.

        Args:
            failures: how many children that failed are shown at most, 0 to 200.

        Raises:
            JobGone: nothing is stored under this id.
        """
        return batch_timeline(self._connections.settings, self.id, failures)

    @verb
    def then_job(self) -> RoundTrips[Job[Any]]:
        """Return the job of the call that was made at the end: `then` if it completed, `otherwise` if it failed.

        Raises:
            JobGone: nothing is stored under this id.
            UsageError: it has not ended, or made no call at its end.
        """
        return _then_job(self._connections, self.id)

    @verb
    def delete(self) -> RoundTrips[bool]:
        """Delete its record; nothing is done at the end of its children then."""
        return groups.drop(self._connections.settings, self.id)

    @property
    def results(self) -> BatchResults[Any]:
        """The results of the children that have completed so far."""
        return BatchResults(self._connections, self.id)

    # -- filling

    def _enter(self) -> RoundTrips[None]:
        self._checked_task()
        found = yield from groups.progress(self._connections.settings, self.id)
        self.total, self._at = 0 if found is None else found.total, 0

    def _checked_task(self) -> Task[..., Any]:
        if self._task is None:
            raise UsageError(f"batch {self.id} was opened without its task: write queue.batch({self.id!r}, task)")
        return self._task

    def _fill(self, items: Iterable[Any], at: int) -> RoundTrips[int]:
        task, queue, rest = self._checked_task(), self._connections.settings, iter(items)
        while some := list(islice(rest, _PAGE)):
            calls = [child_call(task, item, at + n) for n, item in enumerate(some)]
            made = self._definition(calls[0].payload)
            lines = [child_line(queue, made, call) for call in calls]
            for page in groups.pages(lines):
                (reply,) = yield [groups.fill(queue, made, page, at, durability=_durability(queue, task))]
                at += len(page)
                self.total = max(unwrap(reply).total, 0)
            self._at = at
        return self.total

    def _close(self) -> RoundTrips[None]:
        queue, task = self._connections.settings, self._checked_task()
        made = self._definition(None)
        (reply,) = yield [groups.fill(queue, made, (), self._at, close=True, durability=_durability(queue, task))]
        self.total = unwrap(reply).total

    def _definition(self, payload: Any) -> GroupDefinition:
        if self._made is None:
            self._made = definition_of(self._connections, self.id, self._checked_task(), self._options, payload)
        return self._made


class Batch(BatchVerbs, BlockingVerbs):
    """Many calls of one task with one end. In a `with` block it is filled; afterwards this is a handle on it.

    Attributes:
        id: its id.
        total: how many children it had when this object last asked or added some.
    """

    def __init__(
        self,
        connections: Connections,
        batch_id: str,
        task: Task[..., Any] | None = None,
        options: BatchOptions = BatchOptions(),  # noqa: B008 - a named tuple
    ) -> None:
        self._start(connections, batch_id, task, options)
        self._follow(connections)

    def __enter__(self) -> Self:
        self._drive(self._enter())
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self._drive(self._close())


class AsyncBatch(BatchVerbs, AsyncVerbs):
    """`Batch` for asyncio, filled in an `async with` block."""

    def __init__(
        self,
        connections: Connections,
        batch_id: str,
        task: Task[..., Any] | None = None,
        options: BatchOptions = BatchOptions(),  # noqa: B008 - a named tuple
    ) -> None:
        self._start(connections, batch_id, task, options)
        self._follow(connections)

    async def __aenter__(self) -> Self:
        await self._drive(self._enter())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            await self._drive(self._close())


def channel_of(queue: Settings, batch_id: str) -> str:
    """The channel on which the end of a batch is published."""
    return queue.keys.waiter(f"batch:{batch_id}")


# -- calls as they are stored


def child_call(task: Task[..., Any], item: Any, number: int) -> NewJob:
    """The call of a child: of its one argument, or as it was given.

    Raises:
        ArgumentsError, UsageError: the task can't be called with it, or it has options of its own.
    """
    try:
        if not isinstance(item, NewJob):
            return task.new_job((item,), {})
        if not isinstance(item.payload, dict) or item.payload.get("task") != task.name:
            raise ArgumentsError(f"task {task.name!r}: {item.payload!r:.200} is not a call of this task")
    except ArgumentsError as error:
        raise ArgumentsError(f"{error} (item {number})") from None
    own = Options._make(getattr(item, name) for name in Options._fields)
    if own._replace(key=None) != task._options._replace(key=None):
        raise UsageError(
            f"item {number} has options of its own; those of a batch are given with its task: "
            f"queue.batch(id, {task.name}.options(...))"
        )
    return item


def child_line(queue: Settings, made: GroupDefinition, call: NewJob) -> str:
    """A child's item: what is in its payload between head and tail, behind its key if it has one."""
    text = encode(call.payload, queue.max_payload)
    item = text[len(made.head) : -len(made.tail)] or ',"args":[]'
    return f"{call.key or ''} {item}" if made.is_keyed else item


def definition_of(
    connections: Connections, batch_id: str, task: Task[..., Any], options: BatchOptions, payload: Any
) -> GroupDefinition:
    """The definition of a batch; `payload` is that of its first child, None if there is none.

    Raises:
        UsageError: an option is invalid.
    """
    queue, own = connections.settings, task._options
    for name in NOT_OF_CHILDREN:
        if getattr(own, name):
            raise UsageError(f"batch {batch_id}: the jobs of a batch can't have {name}; task {task.name!r} has it")
    if own.job_id is not None:
        raise UsageError(f"batch {batch_id}: its jobs get ids of their own, so its task can't have a job_id")
    if payload is not None and connections.before_enqueue:
        own = prepared_options(connections, payload, own._replace(key=None))._replace(key=task._options.key)
    is_keyed = task._options.key is not None
    template = enqueue.prepare(queue, {"task": task.name}, own._replace(key=None, durability=None))
    then = follow_up(connections, "then", options.then)
    otherwise = follow_up(connections, "otherwise", options.otherwise)
    return GroupDefinition(
        name=batch_id,
        generation=groups.new_generation(),
        head=encode({"task": task.name}, queue.max_payload)[:-1],
        tail="}",
        options=template.fields,
        is_keyed=is_keyed,
        concurrency=checked_concurrency(options.concurrency),
        tolerate=checked_tolerate(options.tolerate),
        keeps_results=bool(options.results),
        then=then,
        otherwise=otherwise,
        channel=channel_of(queue, batch_id),
        kept_ms=_kept_ms(options.ttl),
        close_within_ms=_close_within_ms(options.close_within),
        gates=gates_of([template.fields, fields_of(then), fields_of(otherwise)]),
    )


def _close_within_ms(within: Duration | None) -> int:
    return 0 if within is None else max(1, duration_ms(within, "close_within"))


def _kept_ms(ttl: Duration) -> int:
    ms = duration_ms(ttl, "ttl")
    if ms < LEAST_TTL_S * 1000:
        raise UsageError(f"ttl must be at least {LEAST_TTL_S} seconds, got {ttl!r}")
    return ms


def begin_chain(
    connections: Connections, calls: tuple[object, ...], chain_id: str | None
) -> tuple[str, RoundTrips[None]]:
    """The id of a chain of these calls, and the requests that start it.

    Raises:
        UsageError, ArgumentsError: a call or the id is invalid.
    """
    if not 1 <= len(calls) <= MOST_LINKS:
        raise UsageError(f"a chain has 1 to {MOST_LINKS} calls, got {len(calls)}")
    for number, call in enumerate(calls):
        check_queue(connections, f"call {number} of a chain", call)
    links = [_link(call, number) for number, call in enumerate(calls)]
    lines = [stored_call(connections, f"call {number} of a chain", link) for number, link in enumerate(links)]
    if RESULT_TEXT in lines[0]:
        raise UsageError("the first call of a chain has no RESULT: nothing comes before it")
    payloads = [encode(link.payload, connections.settings.max_payload) for link in links]
    name = new_ids()[0] if chain_id is None else checked_group_id(chain_id)
    made = GroupDefinition(
        name=name,
        generation=groups.new_generation(),
        is_chained=True,
        keeps_results=False,
        channel=channel_of(connections.settings, name),
        gates=gates_of(map(fields_of, lines)),
        links=hashlib.sha256("\n".join(payloads).encode()).hexdigest()[:16],
    )
    return name, _fill_chain(connections.settings, made, lines)


def _link(call: Any, number: int) -> NewJob:
    if isinstance(call, Task):
        return call.with_args(*(() if number == 0 else (RESULT,)))
    if isinstance(call, NewJob):
        return call
    raise UsageError(f"call {number} of a chain must be a task or task.with_args(...), got {call!r:.200}")


def _fill_chain(queue: Settings, made: GroupDefinition, lines: list[str]) -> RoundTrips[None]:
    at, pages = 0, groups.pages(lines)
    for page in pages:
        is_last = page is pages[-1]
        (reply,) = yield [groups.fill(queue, made, page, at, close=is_last, durability=queue.durability)]
        unwrap(reply)
        at += len(page)


def _durability(queue: Settings, task: Task[..., Any]) -> Any:
    return queue.durability if task._options.durability is None else task._options.durability


# -- looking


def _then_job(connections: Connections, name: str) -> RoundTrips[Job[Any]]:
    fields = yield from groups.read(connections.settings, name)
    if not fields:
        raise JobGone(f"queue {connections.settings.name} has no batch {name}: it was deleted, or never existed")
    found, then_id = (
        BatchProgress.from_fields(name, fields, int(fields["waiting"])),
        f"{name}-then-{fields.get('generation', '')}",
    )
    if not fields.get({"completed": "then", "failed": "otherwise"}.get(found.status, "")):
        way_out = f"; {found.failed} of {found.total} children failed" if found.status == "failed" else ""
        raise UsageError(f"batch {name} is {found.status}, so it has made no call at its end{way_out}")
    return Job(then_id, connections)


def _follow(
    queue: Settings,
    name: str,
    timeout: Duration | None,
    read: Callable[[BatchProgress, str | None], Any],
    on_progress: OnBatchProgress | None = None,
) -> Steps[None]:
    """`read` applied to the progress, and the last result of a chain, at the end or when `timeout` has passed."""
    left = math.inf if timeout is None else duration_ms(timeout, "timeout") / 1000
    deadline = monotonic() + left
    if left:
        yield Listen(min(_LOOK_S, left))  # subscribed: if it ends from now on, a message arrives
    while True:
        replies = yield groups.reading(queue, name)
        fields = groups.of_replies(replies)
        if not fields:
            raise JobGone(f"queue {queue.name} has no batch {name}: it was deleted, or never existed")
        found = BatchProgress.from_fields(name, fields, int(fields["waiting"]))
        if on_progress is not None:
            on_progress(found)
        left = min(_LOOK_S, deadline - monotonic())
        is_chain = fields.get("chained") == "1"
        if is_chain and found.status == "failed":
            for failure in (yield from groups.failures(queue, name, 0, 1)):  # type: ignore[misc]  # no wait is in it
                found = found._replace(error=f"call {failure.number} ({failure.task or 'unknown'}): {failure.error}")
        if found.has_ended or left <= 0:
            yield Item(read(found, fields.get("last", "null") if is_chain else None))
            return
        yield Listen(left)
