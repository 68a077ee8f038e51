"""The asyncio client of a queue, for any event loop. Each loop has its own connections, which are closed with it."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.connection.client import TROUBLE_S
from schedq.connection.request import BaseClient
from schedq.errors import ClosedError, SchedqError, UsageError
from schedq.inspect.wait import POLL_S
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.transitions import MarkerWait, Operation, Pipeline, RoundTrips, unwrap

if TYPE_CHECKING:  # imported on the first use of an event loop
    from schedq.connection.async_connection import AsyncConnection


class LoopClose:
    """Replaces the `close` method of one event loop and closes the connections that are still open on it first.

    `asyncio.run` and test runners cancel tasks and close the loop, but do not let libraries close their connections.
    asyncio has no hook for that, so this replaces `close` on the instance. It works with uvloop as well.

    Only the loop refers to this object, so both can be garbage collected together if the loop is never closed.
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
        """Return the LoopClose of this loop, installing it at the first call. Must be called on the loop."""
        found = loop.close
        if isinstance(found, cls):
            return found
        made = cls(loop)
        loop.close = made  # type: ignore[method-assign]
        _all.add(made)
        return made

    def __call__(self) -> None:
        """Close all connections, then the loop."""
        loop = self.loop
        if loop.is_running():
            self._close()  # raises: a running loop can't be closed
        try:
            self.end()
        finally:
            self._close()
            vars(loop).pop("close", None)

    def end(self) -> None:
        """Close all connections. The loop is not running, and will run no more of our code."""
        self.is_closing = True
        try:
            # A forked child shares the parent's epoll instance. If the child unregistered a socket, the parent would
            # no longer be notified of data on it.
            is_ours = self._pid == os.getpid() and not sys.is_finalizing()
            if self._unclosed and is_ours and not self.loop.is_closed():
                _run(self.loop, self._aclose_all())
        finally:
            self._kept.clear()
            self._unclosed.clear()

    def find(self, owner: object) -> LoopConnections | None:
        """Return the connections kept for `owner`, or None."""
        return self._kept.get(weakref.ref(owner))

    def keep(self, owner: object, connections: LoopConnections) -> None:
        """Close `connections` when the loop is closed, or soon after `owner` has been garbage collected."""
        self._kept[weakref.ref(owner, self._collected)] = connections
        self._unclosed.add(connections)

    def _collected(self, owner: weakref.ref[Any]) -> None:
        """Close an owner's connections after it was garbage collected. May be called in any thread, at any moment."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._close_one, owner)

    def _close_one(self, owner: weakref.ref[Any]) -> None:
        task = self.loop.create_task(self.aclose(owner), name="schedq close")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self, owner: weakref.ref[Any]) -> None:
        """Close the connections kept for an owner now."""
        connections = self._kept.get(owner)
        if connections is not None:
            await connections.aclose()
            self._unclosed.discard(connections)  # not reached if cancelled: they are then closed with the loop
            if self._kept.get(owner) is connections:
                del self._kept[owner]

    async def _aclose_all(self) -> None:
        await asyncio.gather(*[connections.aclose() for connections in self._unclosed], return_exceptions=True)


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end on a loop that is not running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop.run_until_complete(work)
        return
    # One loop is closed from inside another. A thread can run only one loop at a time, so use another thread.
    thread = threading.Thread(target=loop.run_until_complete, args=(work,), name="schedq close", daemon=True)
    thread.start()
    thread.join()


_all: Final[weakref.WeakSet[LoopClose]] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Close the connections of loops that were never closed."""
    for each in list(_all):
        if not each.loop.is_running():
            each.end()


_LAST_S: Final = 5.0
"""Seconds that background work may take to finish when its connections are closed."""
T = TypeVar("T")


class LoopConnections:
    """The connections of an asyncio queue on one event loop. Only that loop may use them.

    Attributes:
        loop: the event loop; None once the connections have been closed. They are never reopened.
        connection: for requests; see `AsyncClient.share`.
        own: the connection for requests while none is shared.
        group_commit: for requests that wait for replicas or a disk.
        pubsub: for messages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, address: Address, queue: Settings) -> None:
        from schedq.connection.async_connection import AsyncConnection, GroupCommit
        from schedq.connection.pubsub import PubSub

        self.loop: asyncio.AbstractEventLoop | None = loop
        self.connection = self.own = AsyncConnection(address, queue)
        self.group_commit = GroupCommit(address, queue)
        self.pubsub = PubSub(address, queue)
        self._address = address
        self._queue = queue
        self._idle: list[AsyncConnection] = []
        self._blocked: set[AsyncConnection] = set()
        self._background: set[asyncio.Task[None]] = set()
        """Tasks that nothing but `aclose` waits for."""

    def check(self) -> None:
        """Check that a wait that began with these connections can continue.

        Raises:
            ClosedError: the connections were closed, or another loop is running now.
        """
        if self.loop is None:
            raise ClosedError(f"queue {self._queue.name} was closed while this was waiting")
        if self.loop is not asyncio.get_running_loop():
            raise ClosedError(f"queue {self._queue.name}: this wait must continue on the event loop where it began")

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that nothing but `aclose` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def aclose(self) -> None:
        """Let background work finish, then close the connections. Pending requests and waits raise an error."""
        from schedq.connection.async_connection import cancelled

        if self._background:
            await asyncio.wait(self._background, timeout=_LAST_S)
        self.loop = None
        await cancelled(*self._background)
        await self.pubsub.aclose()
        await self.group_commit.aclose()
        for connection in (self.own, *self._idle, *self._blocked):
            await connection.aclose()

    async def wait_for_wake(self, block: MarkerWait) -> None:
        """Wait for the wake marker. The process that takes it claims next, so it need not put the marker back."""
        server_s = max(0.01, block.seconds + (1 if block.is_exact else 0))
        began = monotonic()
        connection = self._idle.pop() if self._idle else type(self.own)(self._address, self._queue)
        self._blocked.add(connection)
        command = ("BZPOPMIN", *self._queue.keys.wakes_of(), f"{server_s:.3f}")
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
    """Sends the requests of an asyncio queue."""

    _here: LoopConnections | None = None  # the connections used last, on whichever loop

    def connections(self) -> LoopConnections:
        """The connections of the running loop.

        Raises:
            ClosedError: the loop is being closed.
            UsageError: no asyncio event loop is running.
        """
        loop, here = self._running_loop(), self._here
        if here is None or here.loop is not loop:
            here = self._here = self._connections_of(loop)
        return here

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next request opens them again."""
        await LoopClose.of(self._running_loop()).aclose(weakref.ref(self))

    def share(self, connection: AsyncConnection) -> Callable[[], None]:
        """Send the requests of the running loop on a connection of several queues, which is closed elsewhere.

        Returns:
            ends that. Call it before the connection is closed.
        """
        here = self.connections()
        here.connection = connection

        def end() -> None:
            here.connection = here.own

        return end

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                f"queue {self._queue.name}: awaited verbs need a running asyncio event loop (trio's is not one); "
                "without one, call the blocking verbs in a thread, as in `await anyio.to_thread.run_sync(queue.stats)`"
            ) from None

    def _connections_of(self, loop: asyncio.AbstractEventLoop) -> LoopConnections:
        """Return the connections of the running loop; create them at the first call."""
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
        """Execute one operation and return its result.

        Raises:
            SchedqError: the operation failed.
        """
        return cast(T, unwrap((await self.execute([operation]))[0]))

    async def execute(self, operations: Pipeline) -> list[Any]:
        """Send operations together; return, for each, its result or a SchedqError."""
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
        """Execute round trips until they end, and return their result.

        Raises:
            ClosedError: the connections were closed meanwhile.
            SchedqError: a round trip failed.
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
