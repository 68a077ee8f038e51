"""The asyncio client of a queue: on any event loop, with connections of each loop's own, closed with the loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.connection.async_connection import AsyncConnection, GroupCommit, cancelled
from schedq.connection.client import TROUBLE_S
from schedq.connection.pubsub import PubSub
from schedq.connection.request import BaseClient
from schedq.errors import ClosedError, SchedqError, UsageError
from schedq.inspect.wait import POLL_S
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.transitions import MarkerWait, Operation, Pipeline, RoundTrips, unwrap


class LoopClose:
    """Stands in for the `close` of one event loop: first closes what was left open on it.

    `asyncio.run` and test runners cancel tasks and close the loop; none of them asks libraries to close their
    connections. asyncio has no hook for that, so the loop's `close` is replaced on the instance. This works for uvloop
    as well.

    The loop owns what is kept here, so both can be collected together if nobody ever closes the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._close: Callable[[], None] = loop.close
        self._pid = os.getpid()
        self._kept: dict[weakref.ref[Any], LoopConnections] = {}
        self._unclosed: set[LoopConnections] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closing = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> LoopClose:
        """The one of this loop, installed at the first call. Call it on the loop."""
        found = loop.close
        if isinstance(found, cls):
            return found
        made = cls(loop)
        loop.close = made  # type: ignore[method-assign]
        _all.add(made)
        return made

    def __call__(self) -> None:
        """Close everything, then the loop."""
        loop = self.loop
        if loop.is_running():
            self._close()  # which says that this can't be
        try:
            self.end()
        finally:
            self._close()
            vars(loop).pop("close", None)

    def end(self) -> None:
        """Close everything; the loop stands still, and will run nothing of ours again."""
        self.is_closing = True
        try:
            # A forked child shares the parent's selector: to take a socket out of it would make the parent deaf.
            is_ours = self._pid == os.getpid() and not sys.is_finalizing()
            if self._unclosed and is_ours and not self.loop.is_closed():
                _run(self.loop, self._aclose_all())
        finally:
            self._kept.clear()
            self._unclosed.clear()

    def find(self, owner: object) -> LoopConnections | None:
        """What is kept for `owner`."""
        return self._kept.get(weakref.ref(owner))

    def keep(self, owner: object, connections: LoopConnections) -> None:
        """Close `connections` when the loop is closed, or soon after `owner` has been collected."""
        self._kept[weakref.ref(owner, self._collected)] = connections
        self._unclosed.add(connections)

    def _collected(self, owner: weakref.ref[Any]) -> None:
        """An owner is gone. Any thread may run this, at any moment."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._close_one, owner)

    def _close_one(self, owner: weakref.ref[Any]) -> None:
        task = self.loop.create_task(self.aclose(owner), name="schedq close")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self, owner: weakref.ref[Any]) -> None:
        """Close what is kept for an owner, now."""
        connections = self._kept.get(owner)
        if connections is not None:
            await connections.aclose()
            self._unclosed.discard(connections)  # if this is cancelled, it is closed with the loop
            if self._kept.get(owner) is connections:
                del self._kept[owner]

    async def _aclose_all(self) -> None:
        await asyncio.gather(*[connections.aclose() for connections in self._unclosed], return_exceptions=True)


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run it on a loop that stands still."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop.run_until_complete(work)
        return
    # One loop is closed from within another, and a thread runs only one at a time.
    thread = threading.Thread(target=loop.run_until_complete, args=(work,), name="schedq close", daemon=True)
    thread.start()
    thread.join()


_all: Final[weakref.WeakSet[LoopClose]] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Of loops that nobody closed."""
    for each in list(_all):
        if not each.loop.is_running():
            each.end()


_LAST_S: Final = 5.0
"""Seconds that work in the background may take to end when its connections are closed."""
T = TypeVar("T")


class LoopConnections:
    """What an asyncio queue has on one event loop. Only that loop may use it.

    Attributes:
        loop: the event loop; None once the connections are closed, for good.
        connection: for requests.
        group_commit: for requests that wait for replicas or a disk.
        pubsub: for messages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, address: Address, queue: Settings) -> None:
        self.loop: asyncio.AbstractEventLoop | None = loop
        self.connection = AsyncConnection(address, queue)
        self.group_commit = GroupCommit(address, queue)
        self.pubsub = PubSub(address, queue)
        self._address = address
        self._queue = queue
        self._idle: list[AsyncConnection] = []
        self._blocked: set[AsyncConnection] = set()
        self._background: set[asyncio.Task[None]] = set()
        """Work that only closing waits for."""

    def check(self) -> None:
        """Check that a wait which began here can go on.

        Raises:
            ClosedError: the connections were closed, or another loop is running now.
        """
        if self.loop is None:
            raise ClosedError(f"queue {self._queue.name} was closed while this was waiting")
        if self.loop is not asyncio.get_running_loop():
            raise ClosedError(f"queue {self._queue.name}: this wait belongs to the event loop on which it began")

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Start some work that only closing waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def aclose(self) -> None:
        """Let work in the background end, then close the connections. What still waits ends in an error."""
        if self._background:
            await asyncio.wait(self._background, timeout=_LAST_S)
        self.loop = None
        await cancelled(*self._background)
        await self.pubsub.aclose()
        await self.group_commit.aclose()
        for connection in (self.connection, *self._idle, *self._blocked):
            await connection.aclose()

    async def wait_for_wake(self, block: MarkerWait) -> None:
        """Wait for the wake marker. Whoever took it claims next, so it need not be given back."""
        server_s = max(0.01, block.seconds + (1 if block.is_exact else 0))
        began = monotonic()
        connection = self._idle.pop() if self._idle else AsyncConnection(self._address, self._queue)
        self._blocked.add(connection)
        command = ("BZPOPMIN", self._queue.keys.wake, f"{server_s:.3f}")
        pause_s = 0.0
        try:
            most_s = block.seconds if block.is_exact else block.seconds + 1
            async with asyncio.timeout(most_s):
                replies = await connection.ask([command], reply_s=server_s + 2)
            pause_s = POLL_S if isinstance(replies[0], Exception) else 0.0
        except TimeoutError:
            connection.close()
        except (*redis_errors.CONNECTION_LOST, SchedqError):
            pause_s = TROUBLE_S
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._blocked.discard(connection)
            self._idle.append(connection)
        if pause_s and self.loop is not None:
            await asyncio.sleep(max(0.0, min(pause_s, block.seconds - (monotonic() - began))))


class AsyncClient(BaseClient):
    """What an asyncio queue sends its requests through."""

    _here: LoopConnections | None = None  # those that were used last, by whichever loop

    def connections(self) -> LoopConnections:
        """The connections of the running loop.

        Raises:
            ClosedError: the loop is being closed.
            UsageError: this is no asyncio event loop.
        """
        loop, here = self._running_loop(), self._here
        if here is None or here.loop is not loop:
            here = self._here = self._connections_of(loop)
        return here

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next request opens them again."""
        await LoopClose.of(self._running_loop()).aclose(weakref.ref(self))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                f"queue {self._queue.name}: awaited verbs need a running asyncio event loop (trio's is another kind); "
                "without one call the blocking verbs in a thread, as in `await anyio.to_thread.run_sync(queue.stats)`"
            ) from None

    def _connections_of(self, loop: asyncio.AbstractEventLoop) -> LoopConnections:
        """The connections of the running loop, which may be new."""
        end = LoopClose.of(loop)
        here = end.find(self)
        if here is not None and here.loop is not None:
            return here
        if end.is_closing:
            raise ClosedError(f"queue {self._queue.name}: this event loop is being closed")
        here = LoopConnections(loop, self._address, self._queue)
        end.keep(self, here)
        return here

    async def ask(self, operation: Operation[T]) -> T:
        """Execute one operation and return its answer.

        Raises:
            SchedqError: the one it ended in.
        """
        return cast(T, unwrap((await self.execute([operation]))[0]))

    async def execute(self, operations: Pipeline) -> list[Any]:
        """Send operations together; returns, for each, its answer or the SchedqError it ended in."""
        request = self._request(operations)
        while request.left:
            here = self.connections()
            try:
                if waits := request.waits():
                    replies = await here.group_commit.ask(request.commands, waits, request.is_in_time)
                else:
                    connection = here.connection
                    if not connection.is_ready:
                        await connection.connect()
                        if not request.is_in_time():
                            continue
                    replies = await connection.ask(request.commands())
                wait = request.on_replies(replies)
            except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
                wait = request.on_error(error)
            if wait:
                await asyncio.sleep(wait)
        return request.answers[: len(operations)]

    async def drive(self, trips: RoundTrips[T]) -> T:
        """Make round trips until they end.

        Raises:
            ClosedError: the connections were closed before it ended.
            SchedqError: they did.
        """
        here = self.connections()
        found: list[Any] | None = None
        try:
            while True:
                step = trips.send(found)
                here.check()
                if isinstance(step, MarkerWait):
                    await here.wait_for_wake(step)
                    here.check()
                    found = None
                else:
                    found = await self.execute(step)
        except StopIteration as stop:
            return cast(T, stop.value)
