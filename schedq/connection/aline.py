"""One asyncio connection that many coroutines share: requests go out as they come, replies are dealt in order.

A caller that is cancelled leaves its place in the order behind, so its reply can't reach somebody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as LineBroken
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as NoReply

from schedq.connection import faults, greeting
from schedq.connection.address import Address
from schedq.connection.place import REPLY_S, Place
from schedq.connection.resolver import in_thread
from schedq.connection.resp import NOTHING, checked, packed, reader
from schedq.durability import Wait
from schedq.operations import Argument
from schedq.settings import Settings


class _Asked:
    """A request that waits for `count` replies until `deadline` (of the loop's clock)."""

    __slots__ = ("count", "deadline", "future")

    def __init__(self, future: asyncio.Future[list[Any]], count: int, deadline: float) -> None:
        self.future = future
        self.count = count
        self.deadline = deadline


class _Replies(asyncio.Protocol):
    """Deals replies, as they come, to those who asked, in the order in which they asked.

    Args:
        broke: called once, when the connection has ended or makes no sense.
    """

    def __init__(self, broke: Callable[[Exception], None]) -> None:
        self.asked: deque[_Asked] = deque()
        self._reader = reader()
        self._taken: list[Any] = []
        self._broke = broke

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        take, asked = self._reader.gets, self.asked
        self._reader.feed(data)
        try:
            while (reply := take()) is not NOTHING:
                self._taken.append(checked(reply))
                if len(self._taken) == asked[0].count:
                    replies, self._taken = self._taken, []
                    future = asked.popleft().future
                    if not future.done():
                        future.set_result(replies)
        except (*faults.BROKEN_LINE, IndexError) as error:  # a reply to nobody: what comes next would be another's
            self._broke(error if isinstance(error, faults.BROKEN_LINE) else LineBroken("a reply that nobody asked for"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._broke(exc or LineBroken("the server closed the connection"))


async def connected(address: Address, key: str, name: str) -> tuple[Connection, Place]:
    """A connection to the server that holds `key` now, and which that is. `name` is shown by CLIENT LIST.

    Raises:
        ConnectionError, TimeoutError, OSError: of the client library.
        SchedqError: the server refuses.
    """
    place = await in_thread(lambda: address.find(key)) if address.is_found_by_asking else address.find(key)
    connection = place.async_connection(name)
    try:
        # Its own timeout ends with the handshake of the network; a frozen server's kernel goes through that.
        async with asyncio.timeout(REPLY_S):
            await connection.connect()
    except ResponseError as error:  # it may be refused at the door, as with protected mode
        raise faults.named(error, "connect", address) from error
    except BaseException:
        drop(connection)
        raise
    return connection, place


def drop(connection: Connection) -> None:
    """Close a connection at once. Not in order: with TLS that takes a reply, for which a loop that ends has no time."""
    if connection._writer is not None:
        connection._writer.transport.abort()
        connection._close()


class AsyncLine:
    """One connection for any number of coroutines of one event loop."""

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._asked: deque[_Asked] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._known: Place | None = None
        self._sure: set[Wait] = set()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._transport is not None

    @property
    def is_ready(self) -> bool:
        """Whether a request would be sent at once."""
        return self._transport is not None and self._connecting is None

    async def connect(self) -> None:
        """Find the server that holds the queue now, connect, and look whether it can be trusted.

        Callers at the same time share one attempt.

        Raises:
            SchedqError: it can't; see `greeting.judge`.
        """
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="schedq connect")
            self._connecting.add_done_callback(self._connect_ended)
        connecting = self._connecting
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if connecting.cancelled() and not (caller is not None and caller.cancelling()):
                raise LineBroken("the connection was closed") from None
            raise

    async def ask(
        self, commands: Sequence[tuple[Argument, ...]], reply_s: float = REPLY_S, *, waits: Sequence[Wait] = ()
    ) -> list[Any]:
        """Send commands together, and what is to be waited for behind them; the replies to all, errors as values.

        Waits hold up whoever else uses the line; `reply_s`: seconds that the replies may take beside them.

        Raises:
            ConnectionError, TimeoutError, OSError: of the client library; the connection is closed.
            UsageError, StoreUnavailable: the server can't keep such waits; nothing was sent.
        """
        if not self.is_ready:
            await self.connect()
        if not waits:
            return await self._send(commands, reply_s)
        await self._try([wait for wait in waits if wait not in self._sure])
        most_s = sum(wait.most_s for wait in waits)
        replies = await self._send([*commands, *(wait.command for wait in waits)], reply_s + most_s)
        self._sure -= greeting.not_kept(waits, replies)
        return replies

    async def _try(self, waits: Sequence[Wait]) -> None:
        """Look whether the server can keep waits that this connection has not seen kept."""
        if waits:
            assert self._known is not None
            greeting.judge_waits(waits, await self._send(greeting.trials(waits)), self._known)
            self._sure.update(waits)

    def close(self, why: str = "the connection was closed") -> None:
        """Close the connection; the next request opens it again. `why` is for those who wait for replies."""
        self._break(LineBroken(why))

    async def aclose(self) -> None:
        """Close the connection and wait until everything about it has ended."""
        connecting = self._connecting
        if connecting is not None:
            connecting.cancel()
        self.close()
        if connecting is not None:
            await asyncio.gather(connecting, return_exceptions=True)
        await asyncio.sleep(0)  # until the transport has ended

    async def _connect(self) -> None:
        self.close()
        connection, place = await connected(self._address, self._queue.keys.prefix, f"schedq-{self._queue.name}")
        self._take_over(connection)
        asked = greeting.commands(self._queue, place, is_known=place == self._known)
        if asked:
            try:
                greeting.judge(asked, await self._send(asked), self._queue, place)
            except BaseException:
                self.close()
                raise
        self._known = place
        self._sure = set()
        if self._queue.listed:
            self._address.enlist(self._queue.name)

    def _connect_ended(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # whoever waits has it; perhaps nobody does

    def _take_over(self, connection: Connection) -> None:
        """Read and write the connection without the client library from here on; nothing is under way on it."""

        def broke(error: Exception) -> None:
            if connection is self._connection:
                self._break(error)

        replies = _Replies(broke)
        assert connection._writer is not None
        transport = cast(asyncio.Transport, connection._writer.transport)
        transport.set_protocol(replies)
        self._connection, self._transport, self._asked = connection, transport, replies.asked

    async def _send(self, commands: Sequence[tuple[Argument, ...]], reply_s: float = REPLY_S) -> list[Any]:
        connection, transport = self._connection, self._transport
        if transport is None or transport.is_closing():
            raise LineBroken("the connection is closed")
        loop = asyncio.get_running_loop()
        asked = _Asked(loop.create_future(), len(commands), loop.time() + reply_s)
        words = packed(commands)
        self._asked.append(asked)
        if self._timer is None:
            self._timer = loop.call_at(asked.deadline, self._check)
        transport.write(words)
        replies = await asked.future
        if any(map(faults.is_demoted, replies)) and connection is self._connection:
            self._break(LineBroken("the server is no longer the primary"))
        return replies

    def _check(self) -> None:
        """Give the connection up when a request has waited too long."""
        self._timer = None
        if not self._asked:
            return
        loop = asyncio.get_running_loop()
        deadline = min(asked.deadline for asked in self._asked)
        if deadline <= loop.time():
            self._break(NoReply("no answer in time"))
        else:
            self._timer = loop.call_at(deadline, self._check)

    def _break(self, error: Exception) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection, self._connection = self._connection, None
        if connection is not None:
            drop(connection)
        asked, self._asked = self._asked, deque()
        for one in asked:
            if not one.future.done():
                one.future.set_exception(error)
                one.future.exception()  # its caller may have been cancelled
