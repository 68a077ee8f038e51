"""One blocking connection, and a pool of them that threads and forked children can share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from redis.connection import Connection
from redis.exceptions import ConnectionError as LineBroken
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as NoReply

from schedq.connection import faults, greeting
from schedq.connection.address import Address
from schedq.connection.place import REPLY_S, Place
from schedq.connection.resp import NOTHING
from schedq.connection.wire import Wire
from schedq.durability import Wait
from schedq.errors import ClosedError
from schedq.operations import Argument
from schedq.settings import Settings

_MOST_IDLE: Final = 8
"""Connections that a pool keeps for later; more may be out at a time."""


class Line:
    """One connection. Not for two threads at once.

    Args:
        reply_s: seconds that each step may take, of connecting and of an answer, if not the usual ones.
    """

    def __init__(self, address: Address, queue: Settings, reply_s: float | None = None) -> None:
        self._address = address
        self._queue = queue
        self._reply_s = reply_s
        self._connection: Connection | None = None
        self._wire: Wire | None = None
        self._known: Place | None = None
        self._sure: set[Wait] = set()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._wire is not None

    def connect(self) -> None:
        """Find the server that holds the queue now, connect, and look whether it can be trusted.

        Raises:
            SchedqError: it can't; see `greeting.judge`.
        """
        self.close()
        place = self._address.find(self._queue.keys.prefix)
        self._connection = place.connection(f"schedq-{self._queue.name}", self._reply_s)
        try:
            self._connection.connect()
            self._wire = Wire(self._connection)
            asked = greeting.commands(self._queue, place, is_known=place == self._known)
            greeting.judge(asked, self._exchange(self._wire, asked) if asked else [], self._queue, place)
        except ResponseError as error:  # refused at the door, as with protected mode
            self.close()
            raise faults.named(error, "connect", self._address) from error
        except BaseException:
            self.close()  # or the next request would find a connection, and not ask again
            raise
        self._known = place
        self._sure = set()
        if self._queue.listed:
            self._address.enlist(self._queue.name)

    def ask(self, commands: Sequence[tuple[Argument, ...]], waits: Sequence[Wait] = ()) -> list[Any]:
        """Send commands together, and what is to be waited for behind them; the replies to all, errors as values.

        Raises:
            ConnectionError, TimeoutError, OSError: of the client library; the connection is closed.
            UsageError, StoreUnavailable: the server can't keep such waits; nothing was sent.
        """
        wire = self._wire or self._connected()
        try:
            if not waits:
                replies = self._exchange(wire, commands)
            else:
                self._try(wire, [wait for wait in waits if wait not in self._sure])
                replies = self._exchange(wire, commands, waits)
                self._sure -= greeting.not_kept(waits, replies)
        except BaseException:
            self.close()
            raise
        if any(map(faults.is_demoted, replies)):
            self.close()
        return replies

    def wait(self, command: tuple[Argument, ...], most_s: float) -> Any:
        """Send a command that blocks in Redis; its reply, or None after `most_s` seconds, the connection closed."""
        wire = self._wire or self._connected()
        try:
            wire.send([command])
            reply = wire.reply_within(most_s)
        except BaseException:
            self.close()
            raise
        if reply is NOTHING or faults.is_demoted(reply):
            self.close()
        return None if reply is NOTHING else reply

    def listen(self, most_s: float) -> Any:
        """The next message of a subscribed connection, or None after `most_s` seconds."""
        try:
            if self._wire is None:
                raise LineBroken("the connection was closed")  # a new one would hear nothing
            message = self._wire.reply_within(most_s)
        except BaseException:
            self.close()
            raise
        return None if message is NOTHING else message

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._wire = None
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _connected(self) -> Wire:
        if self._wire is None:
            self.connect()
        assert self._wire is not None
        return self._wire

    def _try(self, wire: Wire, waits: Sequence[Wait]) -> None:
        """Look whether the server can keep waits that this connection has not seen kept."""
        if waits:
            assert self._known is not None
            greeting.judge_waits(waits, self._exchange(wire, greeting.trials(waits)), self._known)
            self._sure.update(waits)

    @staticmethod
    def _exchange(wire: Wire, commands: Sequence[tuple[Argument, ...]], waits: Sequence[Wait] = ()) -> list[Any]:
        """The replies to the commands, and to `waits`, which may take their time."""
        wire.send([*commands, *(wait.command for wait in waits)] if waits else commands)
        replies = wire.replies(len(commands))
        for wait in waits:
            reply = wire.reply_within(wait.most_s + REPLY_S)
            if reply is NOTHING:
                raise NoReply("no answer in time")
            replies.append(reply)
        return replies


class Pool:
    """The connections of one queue object in one process. Threads share it; a forked child begins with an empty one."""

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        self._lock = threading.Lock()
        self._idle: list[Line] = []
        self._pid = os.getpid()
        self._is_closed = False

    @contextmanager
    def line(self) -> Iterator[Line]:
        """A connection for one caller, for a while.

        Raises:
            ClosedError: the queue was closed.
        """
        line = self.take()
        try:
            yield line
        finally:
            self.give_back(line)

    def close(self) -> None:
        """Close what is idle; what is out is closed when it comes back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()

    def take(self) -> Line:
        """A connection for one caller, who gives it back.

        Raises:
            ClosedError: the queue was closed.
        """
        if self._pid != os.getpid():  # not told by a hook: servers written in C may fork without Python's
            # The parent's sockets are not ours to use, nor to close.
            self._lock, self._idle, self._pid = threading.Lock(), [], os.getpid()
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"queue {self._queue.name} is closed")
            if self._idle:
                return self._idle.pop()
        return Line(self._address, self._queue)

    def give_back(self, line: Line) -> None:
        """The end of what `take` began."""
        with self._lock:
            if not self._is_closed and line.is_connected and len(self._idle) < _MOST_IDLE:
                self._idle.append(line)
                return
        line.close()
