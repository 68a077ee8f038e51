"""Requests of a queue as data, and how the blocking and the asyncio client carry them out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakSet

from schedq.connection.address import Address
from schedq.connection.async_client import AsyncClient
from schedq.connection.client import Client
from schedq.connection.resolver import in_thread
from schedq.errors import SchedqError
from schedq.inspect import stats, wait
from schedq.inspect.stats import JobStatus
from schedq.inspect.wait import POLL_S, ended, event
from schedq.model.keys import checked_id
from schedq.model.lifecycle import FINISHED
from schedq.model.progress import PROGRESS, OnProgress, of_json
from schedq.model.settings import Settings
from schedq.model.times import Duration, duration_ms, monotonic
from schedq.transitions import Operation, Pipeline, RoundTrips, unwrap

T = TypeVar("T")


class Listen(NamedTuple):
    """Wait for the next message: its text, '' if messages may have been missed, or None when time is up.

    The first `Listen` subscribes.

    Attributes:
        seconds: the longest wait; None for no limit.
    """

    seconds: float | None


class Item(NamedTuple, Generic[T]):
    """A value for the caller."""

    value: T


Steps = Generator[Pipeline | Listen | Item[Any], Any, T]
"""Yields the operations of one round trip, like `RoundTrips`, or a wait for a message, or an item."""


# No dataclasses: making one takes half a millisecond, and every program makes them when it imports schedq.
class Listening(Generic[T]):
    """A request that listens to a channel. A verb returns its first item, a stream all of them."""

    __slots__ = ("channel", "steps")

    def __init__(self, channel: str, steps: Steps[None]) -> None:
        self.channel = channel
        self.steps = steps


class WithCleanup(Generic[T]):
    """Round trips, and what must follow them.

    Attributes:
        trips: the round trips.
        ending: returns an operation to send after them, however they ended.
        undoing: returns round trips to carry out in the background if the caller was cancelled.
    """

    __slots__ = ("ending", "trips", "undoing")

    def __init__(
        self,
        trips: RoundTrips[T],
        ending: Callable[[], Operation[Any]] | None = None,
        undoing: Callable[[], RoundTrips[Any]] | None = None,
    ) -> None:
        self.trips = trips
        self.ending = ending
        self.undoing = undoing


class InThread(Generic[T]):
    """Blocking work without an asyncio variant."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work


class InTurn(Generic[T]):
    """Requests that are made one after another: `steps` yields each and is sent its result or its SchedqError."""

    __slots__ = ("steps",)

    def __init__(self, steps: Generator[AnyRequest[Any], Any, T]) -> None:
        self.steps = steps


AnyRequest = Operation[T] | RoundTrips[T] | Listening[T] | WithCleanup[T] | InThread[T] | InTurn[T]


def carry_out(client: Client, request: AnyRequest[T]) -> T:
    """Carry out a request and return its result; blocks the caller."""
    found: T
    if isinstance(request, Operation):
        found = client.ask(request)
    elif isinstance(request, WithCleanup):
        try:
            found = client.drive(request.trips)
        finally:
            if request.ending is not None:
                client.ask(request.ending())
    elif isinstance(request, Listening):
        with closing(listen(client, request)) as items:
            found = next(items)
    elif isinstance(request, InTurn):
        found = _in_turn(client, request)
    elif isinstance(request, InThread):
        found = request.work()
    else:
        found = client.drive(request)
    return found


def _in_turn(client: Client, request: InTurn[T]) -> T:
    found: Any = None
    while True:
        try:
            step = request.steps.send(found)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            found = carry_out(client, step)
        except SchedqError as error:
            found = error


async def acarry_out(client: AsyncClient, request: AnyRequest[T]) -> T:
    """Carry out a request on the running event loop and return its result."""
    found: T
    if isinstance(request, Operation):
        found = await client.ask(request)
    elif isinstance(request, WithCleanup):
        found = await _with_cleanup(client, request)
    elif isinstance(request, Listening):
        async with aclosing(alisten(client, request)) as items:
            found = await anext(items)
    elif isinstance(request, InTurn):
        found = await _ain_turn(client, request)
    elif isinstance(request, InThread):
        found = await in_thread(request.work)
    else:
        found = await client.drive(request)
    return found


async def _ain_turn(client: AsyncClient, request: InTurn[T]) -> T:
    found: Any = None
    while True:
        try:
            step = request.steps.send(found)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            found = await acarry_out(client, step)
        except SchedqError as error:
            found = error


async def _with_cleanup(client: AsyncClient, request: WithCleanup[T]) -> T:
    try:
        return await client.drive(request.trips)
    except asyncio.CancelledError:
        if request.undoing is not None:
            client.connections().run_in_background(_undo(client, request.undoing()))
        raise
    finally:
        if request.ending is not None:
            await client.ask(request.ending())


async def _undo(client: AsyncClient, trips: RoundTrips[Any]) -> None:
    try:
        await client.drive(trips)
    except SchedqError:
        return  # no harm done: the leases end, and the promoter sets the marker


def listen(client: Client, request: Listening[T]) -> Generator[T, None, None]:
    """The items of a listening request; blocks the caller between them."""
    messages, is_listening = client.messages(request.channel), False
    found: Any = None
    try:
        while True:
            step = request.steps.send(found)
            if isinstance(step, Item):
                yield step.value
                found = None
            elif isinstance(step, Listen):
                found = messages.send(step.seconds if is_listening else None)
                is_listening = True
            else:
                found = client.execute(step)
    except StopIteration:
        return
    finally:
        messages.close()


async def alisten(client: AsyncClient, request: Listening[T]) -> AsyncGenerator[T, None]:
    """The items of a listening request, on the running event loop."""
    messages, is_listening, here = asyncio.Queue[str](), False, client.connections()
    found: Any = None
    try:
        while True:
            step = request.steps.send(found)
            found = None
            if isinstance(step, Item):
                yield step.value
                continue
            here.check()  # a subscription that began after the close would never end
            if isinstance(step, Listen):
                if not is_listening:
                    is_listening = True
                    await here.pubsub.subscribe(request.channel, messages.put_nowait)
                with suppress(TimeoutError):
                    async with asyncio.timeout(step.seconds):
                        found = await messages.get()
            else:
                found = await client.execute(step)
    except StopIteration:
        return
    finally:
        if is_listening:
            await here.pubsub.unsubscribe(request.channel, messages.put_nowait)


class Follower(Protocol):
    """An object that sends its requests with one of the clients of a `Connections`."""

    def _follow(self, connections: Connections) -> None: ...


class Connections:
    """The connections of one queue, for threads and for event loops. Creating them does not connect.

    Attributes:
        settings: the queue's settings.
        blocking: the client for callers that block.
        aio: the client for coroutines.
        before_enqueue: called before a job is stored; see `queue.before_enqueue`.
        plain_tasks: returns the names of the queue's tasks that are no workflows, as far as they are known here.
        followers: objects that hold one of the clients, and must be notified if it is replaced.
    """

    def __init__(self, address: Address, settings: Settings) -> None:
        self.settings = settings
        self._others: dict[str, tuple[AsyncClient, Settings, Connections]] = {}
        self.followers: WeakSet[Follower] = WeakSet()
        self.before_enqueue: tuple[Callable[[Any], object], ...] = ()
        self.plain_tasks: Callable[[], Sequence[str]] = tuple
        self.blocking = Client(address, settings)
        self.aio = AsyncClient(address, settings)

    def use(self, settings: Settings) -> None:
        """Use other settings of the same queue from now on."""
        self.settings = settings
        self.blocking.use(settings)
        self.aio.use(settings)

    @property
    def address(self) -> Address:
        """Where the queue's Redis is."""
        return self.aio.address

    def of_queue(self, name: str) -> Connections:
        """The connections of another queue of the same Redis, whose own settings are not known here."""
        if name == self.settings.name:
            return self
        aio, settings, made = self._others.get(name, (None, None, None))
        if made is None or aio is not self.aio or settings is not self.settings:
            made = Connections(self.address, replace(self.settings, name=name, listed=False, gates={}))
            self._others[name] = self.aio, self.settings, made
        return made


def events(queue: Settings, timeout: Duration | None, *, shows_gaps: bool = False) -> Listening[Any]:
    """The events of a queue; with `shows_gaps`, None where some may have been missed.

    Ends after `timeout` of silence.
    """
    return Listening(queue.keys.events, _follow(queue, timeout, shows_gaps=shows_gaps))


def is_finished(
    queue: Settings, job_id: str, timeout: Duration | None, on_progress: OnProgress | None = None
) -> Listening[bool]:
    """Whether a job finishes within `timeout`; `on_progress` is called with what it reports until then."""
    channel = queue.keys.waiter(checked_id(job_id))
    steps = _follow_job(queue, job_id, timeout, lambda found: found.status in FINISHED, on_progress)
    return Listening(channel, steps)


def result(queue: Settings, job_id: str, timeout: Duration | None) -> Listening[Any]:
    """The result of a job that finishes within `timeout`.

    Raises:
        JobFailed, JobCancelled, JobGone, TimeoutError: there is none.
    """
    channel = queue.keys.waiter(checked_id(job_id))
    return Listening(channel, _follow_job(queue, job_id, timeout, lambda found: ended(job_id, found)))


def _follow(queue: Settings, timeout: Duration | None, *, shows_gaps: bool) -> Steps[None]:
    silence = None if timeout is None else duration_ms(timeout, "timeout") / 1000
    (reply,) = yield [stats.reach(queue)]
    unwrap(reply)
    if (yield Listen(silence)) is None:  # the first message confirms the subscription
        return
    last_at, left, is_gap_shown = monotonic(), silence, False
    while True:
        text = yield Listen(left)
        if text and (found := event(text)) is not None:
            yield Item(found)
            last_at, is_gap_shown = monotonic(), False
        elif text == "" and shows_gaps and not is_gap_shown:
            yield Item(None)
            is_gap_shown = True
        if silence is not None:
            left = silence - (monotonic() - last_at)
            if left <= 0:
                return


def _follow_job(
    queue: Settings,
    job_id: str,
    timeout: Duration | None,
    read: Callable[[JobStatus], Any],
    on_progress: OnProgress | None = None,
) -> Steps[None]:
    """`read` applied to a job's status when it has finished, or when `timeout` has passed."""
    watch = stats.watch(queue, job_id)
    left = math.inf if timeout is None else duration_ms(timeout, "timeout") / 1000
    deadline = monotonic() + left
    if left:
        yield Listen(min(POLL_S, left))  # subscribed: if the job ends from now on, a message arrives
    if on_progress is not None:
        (reply,) = yield [stats.read_progress(queue, job_id)]
        if (progress := unwrap(reply)) is not None:
            on_progress(progress)
    while True:
        (reply,) = yield [watch]
        found: JobStatus | None = unwrap(reply)
        if found is None:
            raise (yield from wait.absent(queue, job_id))
        left = min(POLL_S, deadline - monotonic())
        if found.status in FINISHED or left <= 0:
            yield Item(read(found))
            return
        yield from _until_news(left, on_progress)


def _until_news(seconds: float, on_progress: OnProgress | None) -> Steps[None]:
    """Wait for a message that may be of the job's end, at most for this long."""
    until = monotonic() + seconds
    while text := (yield Listen(max(0.0, until - monotonic()))):
        found = event(text)
        if found is None or found.get("status") != PROGRESS:
            return
        if on_progress is not None and (progress := of_json(found)) is not None:
            on_progress(progress)
