"""One asyncio connection that many coroutines share, and group commit on a connection of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis import exceptions
from redis.asyncio.connection import Connection as RedisConnection

from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.connection.codec import NOTHING, checked, packed, reader
from schedq.connection.endpoint import REPLY_S, Endpoint, name_of
from schedq.connection.handshake import Handshake
from schedq.connection.redis_internals import abandon, abort, transport_of
from schedq.model.durability import Wait
from schedq.model.settings import Settings
from schedq.transitions import Argument

_MOST_TOGETHER: Final = 250


@dataclass(slots=True)
class _Expected:
    """A request that waits for `count` replies until `deadline`, a time of the loop's clock."""

    future: asyncio.Future[list[Any]]
    count: int
    deadline: float


class _ReplyProtocol(asyncio.Protocol):
    """Assigns replies to requests. Redis replies in the order of the requests.

    Args:
        on_loss: called once, when the connection is lost or receives something that is not a valid reply.
    """

    def __init__(self, on_loss: Callable[[Exception], None]) -> None:
        self.asked: deque[_Expected] = deque()
        self._reader = reader()
        self._taken: list[Any] = []
        self._on_loss = on_loss

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and complete the requests whose replies have all arrived."""
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
        except redis_errors.CONNECTION_LOST as error:
            self._on_loss(error)
        except IndexError:  # an unexpected reply: later replies would be assigned to the wrong requests
            self._on_loss(exceptions.ConnectionError("received a reply without a request"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the connection was lost."""
        self._on_loss(exc or exceptions.ConnectionError("the server closed the connection"))


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def open_connection(address: Address, key: str, name: str) -> tuple[RedisConnection, Endpoint]:
    """Connect to the server that holds `key` now; return the connection and that server. CLIENT LIST shows `name`.

    Raises:
        ConnectionError, TimeoutError, OSError: raised by redis-py.
        SchedqError: the server refuses the connection.
    """
    endpoint = await address.locate(key)
    return await connected(endpoint, name, address.label), endpoint


async def connected(endpoint: Endpoint, name: str, label: str, within_s: float = REPLY_S) -> RedisConnection:
    """Connect to a server; errors name `label`.

    Raises:
        ConnectionError, TimeoutError, OSError, SchedqError: as `open_connection`.
    """
    connection = endpoint.async_connection(name)
    try:
        # redis-py's own timeout covers only the TCP handshake, which the kernel of a frozen server still completes.
        async with asyncio.timeout(within_s):
            await connection.connect()
    except exceptions.ResponseError as error:  # rejected immediately, for example in protected mode
        raise redis_errors.translate(error, "connect", label) from error
    except BaseException:
        await abandon(connection)
        raise
    return connection


class AsyncConnection:
    """One connection for any number of coroutines of one event loop, and of queues that are on the same server.

    Requests are sent without waiting for the replies to earlier ones. A cancelled caller keeps its position in the
    reply queue, so its reply is never delivered to someone else.

    Args:
        accepted: see `Handshake`.
    """

    def __init__(self, address: Address, *queues: Settings, accepted: set[str] | None = None) -> None:
        self._address = address
        self._key = queues[0].keys.prefix
        self._name = name_of(queues)
        self._connection: RedisConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._asked: deque[_Expected] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._handshake = Handshake(address, *queues, accepted=accepted)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection. Its loss may not have been noticed yet."""
        return self._transport is not None

    @property
    def is_ready(self) -> bool:
        """Whether a request would be sent immediately, without connecting first."""
        return self._transport is not None and self._connecting is None

    async def connect(self) -> None:
        """Find the server that holds the queue now, connect, and check that it is safe to use.

        Concurrent callers share one attempt.

        Raises:
            SchedqError: the server is unsuitable; see `Handshake.check`.
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
                raise exceptions.ConnectionError("the connection was closed") from None
            raise

    async def ask(
        self, commands: Sequence[tuple[Argument, ...]], reply_s: float = REPLY_S, *, waits: Sequence[Wait] = ()
    ) -> list[Any]:
        """Send commands followed by WAIT commands; return the replies to all of them, errors as values.

        Waits block every other user of the connection.

        Args:
            commands: what to send.
            reply_s: seconds that the replies may take, in addition to the waits.
            waits: what to wait for.

        Raises:
            ConnectionError, TimeoutError, OSError: raised by redis-py; the connection is closed.
            UsageError, StoreUnavailable: the server can't fulfill these waits; nothing was sent.
        """
        if self._transport is None or self._connecting is not None:
            await self.connect()
        if not waits:
            return await self._send(commands, reply_s)
        if new := self._handshake.unchecked(waits):
            self._handshake.check_waits(new, await self._send(self._handshake.probes(new)))
        most_s = sum(wait.most_s for wait in waits)
        together = [*commands, *(wait.command for wait in waits), *self._handshake.closing(waits)]
        replies = await self._send(together, reply_s + most_s)
        try:
            replies = self._handshake.confirmed(waits, replies)
        except exceptions.ConnectionError as error:
            self._disconnect(error)
            raise
        self._handshake.note_unmet(waits, replies)
        return replies

    def close(self, why: str = "the connection was closed") -> None:
        """Close the connection; the next request opens it again. Pending requests fail with the message `why`."""
        self._disconnect(exceptions.ConnectionError(why))

    def finish(self, within_s: float) -> None:
        """Send nothing more. The server then closes the connection, and does not begin requests that wait there.

        Requests in progress fail when it has, at the latest after `within_s`.
        """
        connection, transport = self._connection, self._transport
        if connection is None or transport is None or not transport.can_write_eof():  # TLS can't
            self.close()
            return

        def close() -> None:
            if connection is self._connection:
                self.close()

        self._transport = None  # nothing can be sent any more
        transport.write_eof()
        asyncio.get_running_loop().call_later(within_s, close)

    async def until_answered(self, within_s: float) -> None:
        """Wait until the requests in progress have their replies, for this long at most."""
        if self._asked:
            await asyncio.wait([asked.future for asked in self._asked], timeout=within_s)

    async def aclose(self) -> None:
        """Close the connection and wait until its tasks and its transport have ended."""
        self.close()
        if self._connecting is not None:
            await cancelled(self._connecting)
        await asyncio.sleep(0)  # until the transport has ended

    async def _connect(self) -> None:
        self.close()
        connection, endpoint = await open_connection(self._address, self._key, self._name)
        self._take_over(connection)
        commands = self._handshake.commands(endpoint)
        try:
            self._handshake.check(endpoint, commands, await self._send(commands) if commands else [])
        except BaseException:
            self.close()
            raise

    def _connect_ended(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved: if all callers were cancelled, asyncio would log it

    def _take_over(self, connection: RedisConnection) -> None:
        """Read and write the connection without redis-py from now on. No request may be in progress on it."""

        def broke(error: Exception) -> None:
            if connection is self._connection:
                self._disconnect(error)

        replies = _ReplyProtocol(broke)
        transport = transport_of(connection)
        transport.set_protocol(replies)
        self._connection, self._transport, self._asked = connection, transport, replies.asked

    def send(self, commands: Sequence[tuple[Argument, ...]], reply_s: float = REPLY_S) -> asyncio.Future[list[Any]]:
        """Send commands on the open connection; the future gets the replies to them, for `receive`.

        Raises:
            ConnectionError: the connection is closed.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise exceptions.ConnectionError("the connection is closed")
        loop = asyncio.get_running_loop()
        asked = _Expected(loop.create_future(), len(commands), loop.time() + reply_s)
        words = packed(commands[0]) if len(commands) == 1 else b"".join(map(packed, commands))
        self._asked.append(asked)
        if self._timer is None:
            self._timer = loop.call_at(asked.deadline, self._check_deadlines)
        transport.write(words)
        return asked.future

    async def receive(self, sent: asyncio.Future[list[Any]]) -> list[Any]:
        """Return the replies to what was just sent; see `ask`."""
        connection = self._connection
        replies = await sent
        if any(map(redis_errors.is_demoted, replies)) and connection is self._connection:
            self._demoted()
        return replies

    async def _send(self, commands: Sequence[tuple[Argument, ...]], reply_s: float = REPLY_S) -> list[Any]:
        return await self.receive(self.send(commands, reply_s))

    def _demoted(self) -> None:
        self._disconnect(exceptions.ConnectionError("the server is no longer the primary"))

    def _check_deadlines(self) -> None:
        """Close the connection if a request has waited too long."""
        self._timer = None
        if not self._asked:
            return
        loop = asyncio.get_running_loop()
        deadline = min(asked.deadline for asked in self._asked)
        if deadline <= loop.time():
            self._disconnect(exceptions.TimeoutError("no reply in time"))
        else:
            self._timer = loop.call_at(deadline, self._check_deadlines)

    def _described(self, error: Exception) -> Exception:
        """The error of requests when the connection is lost."""
        return error

    def _disconnect(self, error: Exception) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection, self._connection = self._connection, None
        if connection is not None:
            abort(connection)
        asked, self._asked = self._asked, deque()
        error = self._described(error)
        for one in asked:
            if not one.future.done():
                one.future.set_exception(error)
                one.future.exception()  # marks it as retrieved: its caller may have been cancelled


@dataclass(frozen=True, slots=True)
class _Pending:
    """A request that waits for the next group."""

    commands: Callable[[], Sequence[tuple[Argument, ...]]]
    is_in_time: Callable[[], bool]
    waits: tuple[Wait, ...]
    replies: asyncio.Future[list[Any]]


class GroupCommit:
    """Sends the requests of one event loop whose results wait until replicas or a disk have stored their writes.

    These requests have their own connection, because a wait blocks everything sent after it. While one group is in
    progress, the requests of other coroutines collect and are sent as the next group, so thousands share one wait.
    """

    def __init__(self, address: Address, queue: Settings) -> None:
        self._connection = AsyncConnection(address, queue)
        self._waiting: deque[_Pending] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(
        self,
        commands: Callable[[], Sequence[tuple[Argument, ...]]],
        waits: tuple[Wait, ...],
        is_in_time: Callable[[], bool],
    ) -> list[Any]:
        """Return the replies to the commands, followed by those to the waits.

        Args:
            commands: called when the group is sent; returns the commands.
            waits: what to wait for.
            is_in_time: called just before that; returns False if it is too late to send them.

        Raises:
            ConnectionError, TimeoutError, OSError, SchedqError: as `AsyncConnection.ask`.
        """
        request = _Pending(commands, is_in_time, waits, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._task is None:
            self._start()
        return await request.replies

    async def aclose(self) -> None:
        """Close the connection; pending requests raise an error."""
        if self._task is not None:
            await cancelled(self._task)
        await self._connection.aclose()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="schedq group commit")
        self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        while group := self._next_group():
            await self._send(group)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():  # by `aclose`, or together with all tasks of the loop
            _fail(self._waiting, exceptions.ConnectionError("the connection was closed"))
            self._waiting.clear()
        elif self._waiting:
            self._start()

    def _next_group(self) -> list[_Pending]:
        """Take requests with the same waits. Those of cancelled callers are dropped."""
        group: list[_Pending] = []
        while self._waiting and len(group) < _MOST_TOGETHER:
            if group and self._waiting[0].waits != group[0].waits:
                break
            request = self._waiting.popleft()
            if not request.replies.done():
                group.append(request)
        return group

    async def _send(self, group: Sequence[_Pending]) -> None:
        waits = group[0].waits
        try:
            if not self._connection.is_ready:
                await self._connection.connect()
            late = [request for request in group if not request.is_in_time()]
            _fail(late, exceptions.ConnectionError("too late to send it again"))
            group = [request for request in group if not request.replies.done()]
            if not group:
                return
            theirs = [request.commands() for request in group]
            commands = list(itertools.chain.from_iterable(theirs))
            replies = await self._connection.ask(commands, waits=waits)
        except asyncio.CancelledError:
            _fail(group, exceptions.ConnectionError("the connection was closed"))
            raise
        except Exception as error:  # noqa: BLE001 - the callers raise it
            _fail(group, error)
            return
        coming, kept = iter(replies), replies[len(commands) :]
        for request, own in zip(group, theirs, strict=True):
            own_replies = list(itertools.islice(coming, len(own)))
            if not request.replies.done():
                request.replies.set_result([*own_replies, *kept])


def _fail(requests: Iterable[_Pending], error: Exception) -> None:
    for request in requests:
        if not request.replies.done():
            request.replies.set_exception(error)
