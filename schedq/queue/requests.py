"""What the verbs of a queue ask for, and how either client carries it out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

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
from schedq.model.settings import Settings
from schedq.model.times import Duration, duration_ms, monotonic
from schedq.transitions import Operation, Pipeline, RoundTrips, unwrap

T = TypeVar("T")


class Listen(NamedTuple):
    """Wait for the next message: its text, '' where some may have been missed, or None when time is up.

    The first one subscribes.

    Attributes:
        seconds: how long at most; None for any time.
    """

    seconds: float | None


class Item(NamedTuple, Generic[T]):
    """Something for the caller."""

    value: T


Steps = Generator[Pipeline | Listen | Item[Any], Any, T]
"""Yields the operations of one round trip, as `RoundTrips` do; a wait for a message; or an item."""


@dataclass(frozen=True, slots=True)
class Listening(Generic[T]):
    """A request that listens to a channel. A verb returns its first item, a stream all of them."""

    channel: str
    steps: Steps[None]


@dataclass(frozen=True, slots=True)
class WithCleanup(Generic[T]):
    """Round trips with what has to follow them.

    Attributes:
        trips: the round trips.
        ending: makes an operation that is sent after them, however they ended.
        undoing: makes round trips that are carried out in the background when the caller was cancelled.
    """

    trips: RoundTrips[T]
    ending: Callable[[], Operation[Any]] | None = None
    undoing: Callable[[], RoundTrips[Any]] | None = None


@dataclass(frozen=True, slots=True)
class InThread(Generic[T]):
    """Work that blocks and has no asyncio variant."""

    work: Callable[[], T]


AnyRequest = Operation[T] | RoundTrips[T] | Listening[T] | WithCleanup[T] | InThread[T]


def carry_out(client: Client, request: AnyRequest[T]) -> T:
    """What a request comes to; blocks the caller."""
    found: Any
    if isinstance(request, Operation):
        found = client.ask(request)
    elif isinstance(request, Generator):
        found = client.drive(request)
    elif isinstance(request, WithCleanup):
        try:
            found = client.drive(request.trips)
        finally:
            if request.ending is not None:
                client.ask(request.ending())
    elif isinstance(request, Listening):
        with closing(listen(client, request)) as items:
            found = next(items)
    else:
        found = request.work()
    return cast(T, found)


async def acarry_out(client: AsyncClient, request: AnyRequest[T]) -> T:
    """What a request comes to, on the event loop that is running."""
    found: Any
    if isinstance(request, Operation):
        found = await client.ask(request)
    elif isinstance(request, Generator):
        found = await client.drive(request)
    elif isinstance(request, WithCleanup):
        found = await _with_cleanup(client, request)
    elif isinstance(request, Listening):
        async with aclosing(alisten(client, request)) as items:
            found = await anext(items)
    else:
        found = await in_thread(request.work)
    return cast(T, found)


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
        return  # leases run out, and the promoter sets the marker


def listen(client: Client, request: Listening[T]) -> Generator[T, None, None]:
    """The items of a request that listens; blocks the caller between them."""
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
    """The items of a request that listens, on the event loop that is running."""
    messages, is_listening, here = asyncio.Queue[str](), False, client.connections()
    found: Any = None
    try:
        while True:
            step = request.steps.send(found)
            found = None
            if isinstance(step, Item):
                yield step.value
            elif isinstance(step, Listen):
                if not is_listening:
                    is_listening = True
                    await here.pubsub.subscribe(request.channel, messages.put_nowait)
                with suppress(TimeoutError):
                    found = await asyncio.wait_for(messages.get(), step.seconds)
                here.check()
            else:
                found = await client.execute(step)
    except StopIteration:
        return
    finally:
        if is_listening:
            await here.pubsub.unsubscribe(request.channel, messages.put_nowait)


class Connections:
    """The connections of one queue, for threads and for event loops. Making them connects to nothing.

    Attributes:
        settings: the queue's.
        blocking: for callers that wait.
        aio: for coroutines.
    """

    def __init__(self, address: Address, settings: Settings) -> None:
        self.settings = settings
        self.blocking = Client(address, settings)
        self.aio = AsyncClient(address, settings)

    def use(self, settings: Settings) -> None:
        """Go by other settings of the same queue from now on."""
        self.settings = settings
        self.blocking.use(settings)
        self.aio.use(settings)


def events(queue: Settings, timeout: Duration | None, *, shows_gaps: bool = False) -> Listening[Any]:
    """What happens in a queue; None wherever some of it may have been missed, if asked for.

    It ends after `timeout` of silence.
    """
    return Listening(queue.keys.events, _follow(queue, timeout, shows_gaps=shows_gaps))


def is_finished(queue: Settings, job_id: str, timeout: Duration | None) -> Listening[bool]:
    """Whether a job finished in time."""
    return _when_finished(queue, job_id, timeout, lambda found: found.status in FINISHED)


def result(queue: Settings, job_id: str, timeout: Duration | None) -> Listening[Any]:
    """The result of a job that finished in time.

    Raises:
        JobFailed, JobCancelled, JobGone, TimeoutError: there is none.
    """
    return _when_finished(queue, job_id, timeout, lambda found: ended(job_id, found))


def _when_finished(
    queue: Settings, job_id: str, timeout: Duration | None, read: Callable[[JobStatus], T]
) -> Listening[T]:
    """What `read` makes of a job when it is finished, or when `timeout` has passed."""
    return Listening(queue.keys.waiter(checked_id(job_id)), _follow_job(queue, job_id, timeout, read))


def _follow(queue: Settings, timeout: Duration | None, *, shows_gaps: bool) -> Steps[None]:
    silence = None if timeout is None else duration_ms(timeout, "timeout") / 1000
    (answer,) = yield [stats.reach(queue)]
    unwrap(answer)
    if (yield Listen(silence)) is None:  # the first message says that it listens
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
    queue: Settings, job_id: str, timeout: Duration | None, read: Callable[[JobStatus], Any]
) -> Steps[None]:
    watch = stats.watch(queue, job_id)
    left = math.inf if timeout is None else duration_ms(timeout, "timeout") / 1000
    deadline = monotonic() + left
    if left:
        yield Listen(min(POLL_S, left))  # subscribed: an end from now on is published
    while True:
        (answer,) = yield [watch]
        found: JobStatus | None = unwrap(answer)
        if found is None:
            raise (yield from wait.absent(queue, job_id))
        left = min(POLL_S, deadline - monotonic())
        if found.status in FINISHED or left <= 0:
            yield Item(read(found))
            return
        yield Listen(left)
