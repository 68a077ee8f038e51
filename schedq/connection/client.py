"""The blocking client of a queue, its connections, and a connection pool that is safe for threads and forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, TypeVar, cast

from redis import exceptions
from redis.connection import Connection as RedisConnection

from schedq.connection import channels, redis_errors
from schedq.connection.address import Address
from schedq.connection.codec import NOTHING, Socket
from schedq.connection.endpoint import REPLY_S, name_of, warn_unheard
from schedq.connection.handshake import Handshake
from schedq.connection.redis_internals import socket_of
from schedq.connection.request import BaseClient
from schedq.connection.resolver import wait_for_name
from schedq.errors import ClosedError, SchedqError
from schedq.inspect.wait import POLL_S
from schedq.model.durability import Wait
from schedq.model.settings import Settings
from schedq.model.times import monotonic, sleep
from schedq.transitions import Argument, MarkerWait, Operation, Pipeline, RoundTrips, unwrap

_MOST_IDLE: Final = 8
"""Idle connections that a pool keeps; more may be in use at the same time."""
TROUBLE_S: Final = 0.2
"""Seconds to pause before continuing a wait whose connection was lost."""
_LONGEST_LISTEN_S: Final = 3600.0
T = TypeVar("T")


class Connection:
    """One connection. Only one thread may use it at a time.

    Args:
        reply_s: seconds that each step of connecting and each reply may take; REPLY_S if None.
        accepted: see `Handshake`.
    """

    def __init__(
        self, address: Address, *queues: Settings, reply_s: float | None = None, accepted: set[str] | None = None
    ) -> None:
        self._address = address
        self._key, self._name = queues[0].keys.prefix, name_of(queues)
        self._reply_s = reply_s
        self._connection: RedisConnection | None = None
        self._socket: Socket | None = None
        self._handshake = Handshake(address, *queues, accepted=accepted)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection. Its loss may not have been noticed yet."""
        return self._socket is not None

    def connect(self) -> Socket:
        """Find the server that holds the queue now, connect, and check that it is safe to use.

        Raises:
            SchedqError: the server is unsuitable; see `Handshake.check`.
        """
        self.close()
        endpoint = self._address.find(self._key)
        self._connection = endpoint.connection(self._name, self._reply_s)
        try:
            if self._reply_s and "host" in endpoint.settings:
                wait_for_name(endpoint.settings["host"], self._reply_s)
            self._connection.connect()
            self._socket = sock = Socket(socket_of(self._connection))
            commands = self._handshake.commands(endpoint)
            self._handshake.check(endpoint, commands, _round_trip(sock, commands) if commands else [])
        except exceptions.ResponseError as error:  # rejected immediately, for example in protected mode
            self.close()
            raise redis_errors.translate(error, "connect", self._address.label) from error
        except BaseException:
            self.close()  # otherwise the next request would use this connection without the checks
            raise
        return sock

    def ask(self, commands: Sequence[tuple[Argument, ...]], waits: Sequence[Wait] = ()) -> list[Any]:
        """Send commands followed by WAIT commands; return the replies to all of them, errors as values.

        Raises:
            ConnectionError, TimeoutError, OSError: raised by redis-py; the connection is closed.
            UsageError, StoreUnavailable: the server can't fulfill these waits; nothing was sent.
        """
        sock = self._socket or self.connect()
        try:
            replies = _round_trip(sock, commands) if not waits else self._ask_and_wait(sock, commands, waits)
        except BaseException:
            self.close()
            raise
        if any(map(redis_errors.is_demoted, replies)):
            self.close()
        return replies

    def _ask_and_wait(self, sock: Socket, commands: Sequence[tuple[Argument, ...]], waits: Sequence[Wait]) -> list[Any]:
        if new := self._handshake.unchecked(waits):
            self._handshake.check_waits(new, _round_trip(sock, self._handshake.probes(new)))
        replies = _round_trip(sock, commands, waits, self._handshake.closing(waits))
        replies = self._handshake.confirmed(waits, replies)
        self._handshake.note_unmet(waits, replies)
        return replies

    def wait(self, command: tuple[Argument, ...], most_s: float) -> Any:
        """Send a command that blocks in Redis and return its reply.

        After `most_s` seconds, close the connection and return None.
        """
        sock = self._socket or self.connect()
        try:
            sock.send([command])
            reply = sock.reply_within(most_s)
        except BaseException:
            self.close()
            raise
        if reply is NOTHING or redis_errors.is_demoted(reply):
            self.close()
        return None if reply is NOTHING else reply

    def listen(self, most_s: float) -> Any:
        """Return the next message of a subscribed connection, or None after `most_s` seconds."""
        try:
            if self._socket is None:
                raise exceptions.ConnectionError("the connection was closed")  # a new one would not be subscribed
            message = self._socket.reply_within(most_s)
        except BaseException:
            self.close()
            raise
        return None if message is NOTHING else message

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._socket = None
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


def _round_trip(
    sock: Socket,
    commands: Sequence[tuple[Argument, ...]],
    waits: Sequence[Wait] = (),
    closing: Sequence[tuple[Argument, ...]] = (),
) -> list[Any]:
    """Return the replies to the commands, then those to `waits`, which get additional time, then those to `closing`."""
    sock.send([*commands, *[wait.command for wait in waits], *closing] if waits else commands)
    replies = sock.replies(len(commands))
    for wait in waits:
        reply = sock.reply_within(wait.most_s + REPLY_S)
        if reply is NOTHING:
            raise exceptions.TimeoutError("no reply in time")
        replies.append(reply)
    return [*replies, *sock.replies(len(closing))] if closing else replies


class ConnectionPool:
    """The connections of one queue object in one process, shared by its threads. A forked child starts with none."""

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._pid = os.getpid()
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection to one caller for the duration of a `with` block.

        Raises:
            ClosedError: the queue was closed.
        """
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def take(self) -> Connection:
        """Return a connection for one caller, which must pass it to `give_back` afterwards.

        Raises:
            ClosedError: the queue was closed.
        """
        if self._pid != os.getpid():  # not os.register_at_fork: servers written in C may fork without Python's hooks
            # The parent's sockets must be neither used nor closed here.
            self._lock, self._idle, self._pid = threading.Lock(), [], os.getpid()
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"queue {self._queue.name} is closed")
            if self._idle:
                return self._idle.pop()
        return Connection(self._address, self._queue)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection from `take` for later, or close it."""
        with self._lock:
            if not self._is_closed and connection.is_connected and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()


class Client(BaseClient):
    """Sends the requests of a blocking queue. Threads may share it."""

    def __init__(self, address: Address, queue: Settings) -> None:
        super().__init__(address, queue)
        self._pool = ConnectionPool(address, queue)

    def close(self) -> None:
        """Close the connections; every later call raises ClosedError."""
        self._pool.close()

    def ask(self, operation: Operation[T]) -> T:
        """Execute one operation and return its result.

        Raises:
            SchedqError: the operation failed.
        """
        return cast(T, unwrap(self.execute([operation])[0]))

    def execute(self, operations: Pipeline) -> list[Any]:
        """Send operations together; return, for each, its result or a SchedqError."""
        request = self._request(operations)
        while request.left:
            try:
                connection = self._pool.take()
                try:
                    if not connection.is_connected:
                        connection.connect()
                        if not request.is_in_time():
                            continue
                    replies = connection.ask(request.commands(), request.waits())
                finally:
                    self._pool.give_back(connection)
            except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
                wait = request.on_error(error)
            else:
                wait = request.on_replies(replies)
            if wait:
                sleep(wait)
        return request.answers[: len(operations)]

    def drive(self, trips: RoundTrips[T]) -> T:
        """Execute round trips until they end, and return their result.

        Raises:
            SchedqError: a round trip failed.
        """
        found: list[Any] | None = None
        try:
            while True:
                step = trips.send(found)
                if isinstance(step, MarkerWait):
                    self._block(step)
                    found = None
                else:
                    found = self.execute(step)
        except StopIteration as stop:
            return cast(T, stop.value)

    def messages(self, channel: str) -> Generator[str | None, float | None, None]:
        """Yield the messages of a channel, and '' where some may have been missed.

        That is at the start, and before and after reconnecting. Send the generator the number of seconds to wait for
        the next message, or None for no limit; it yields None when that time has passed.
        """
        wait: float | None = 0.0
        while True:
            with (
                self._pool.connection() as connection,
                closing(connection),
                suppress(*redis_errors.CONNECTION_LOST),
            ):
                if refused := channels.refused(connection.ask(channels.subscribe(self._queue, channel))):
                    warn_unheard(self._address.label, refused)
                wait = yield ""
                while True:
                    message = connection.listen(_LONGEST_LISTEN_S if wait is None else wait)
                    wait = yield channels.text_of(message, (channel,)) if message is not None else None
            sleep(POLL_S if wait is None else min(POLL_S, wait))
            wait = yield ""

    def _block(self, block: MarkerWait) -> None:
        """Wait for the wake marker. The process that takes it claims next, so it need not put the marker back."""
        server_s = max(0.01, block.seconds + (1 if block.is_exact else 0))
        began, pause_s = monotonic(), POLL_S
        try:
            with self._pool.connection() as connection:
                reply = connection.wait(
                    ("BZPOPMIN", *self._queue.keys.wakes_of(), f"{server_s:.3f}"),
                    block.seconds if block.is_exact else block.seconds + 1,
                )
        except (*redis_errors.CONNECTION_LOST, SchedqError) as error:
            reply = error
            pause_s = TROUBLE_S
        if isinstance(reply, Exception):
            sleep(max(0.0, min(pause_s, block.seconds - (monotonic() - began))))
