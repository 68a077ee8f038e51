"""One blocking connection, and a pool of them that threads and forked children can share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from redis.exceptions import ResponseError

from schedq.connection import faults, greeting
from schedq.connection.address import Address
from schedq.errors import ClosedError
from schedq.operations import Argument
from schedq.settings import Settings

_MOST_IDLE: Final = 8
"""Connections that a pool keeps for later; more may be out at a time."""


class Line:
    """One connection. Not for two threads at once."""

    def __init__(self, address: Address, queue: Settings) -> None:
        self._address = address
        self._queue = queue
        if address.is_embedded:
            address.start_server()
        self._connection = address.connection(f"schedq-{queue.name}")
        self._is_greeted = False

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return bool(self._connection.is_connected)

    def connect(self) -> None:
        """Connect, and look once whether the server can be trusted.

        Raises:
            SchedqError: it can't; see `greeting.judge`.
        """
        try:
            self._connection.connect()
        except ResponseError as error:  # refused at the door, as with protected mode
            raise faults.named(error, "connect", self._address) from error
        except faults.BROKEN_LINE:
            if not self._address.is_embedded:
                raise
            # It ends itself when nobody uses it, and is started again for who comes back.
            self._address.start_server()
            self._connection.connect()
        if not self._is_greeted:
            info, _ = self.ask(greeting.commands(self._queue))
            try:
                greeting.judge(info, self._queue, self._address)
            except BaseException:
                self.close()  # or the next request would find a connection, and not ask again
                raise
            self._is_greeted = True

    def ask(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """Send commands together; their replies, errors as values.

        Raises:
            ConnectionError, TimeoutError, OSError: of the client library; the connection is closed.
        """
        connection = self._connection
        if not connection.is_connected:
            self.connect()
        try:
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            replies = [self._read() for _ in commands]
        except BaseException:
            self.close()
            raise
        if any(map(faults.is_demoted, replies)):
            self.close()
        return replies

    def wait(self, command: tuple[Argument, ...], most_s: float) -> Any:
        """Send a command that blocks in Redis; its reply, or None after `most_s` seconds, the connection closed."""
        connection = self._connection
        if not connection.is_connected:
            self.connect()
        try:
            connection.send_packed_command(connection.pack_command(*command), check_health=False)
            if connection.can_read(most_s):
                return self._read()
        except BaseException:
            self.close()
            raise
        self.close()
        return None

    def listen(self, most_s: float) -> Any:
        """The next message of a subscribed connection, or None after `most_s` seconds."""
        try:
            return self._read() if self._connection.can_read(most_s) else None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.disconnect()

    def _read(self) -> Any:
        try:
            return self._connection.read_response(disconnect_on_error=False)
        except ResponseError as error:
            return error


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
        line = self._take()
        try:
            yield line
        finally:
            self._give_back(line)

    def close(self) -> None:
        """Close what is idle; what is out is closed when it comes back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()

    def _take(self) -> Line:
        if self._pid != os.getpid():
            # The parent's sockets are not ours to use, nor to close.
            self._lock, self._idle, self._pid = threading.Lock(), [], os.getpid()
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"queue {self._queue.name} is closed")
            if self._idle:
                return self._idle.pop()
        return Line(self._address, self._queue)

    def _give_back(self, line: Line) -> None:
        with self._lock:
            if not self._is_closed and line.is_connected and len(self._idle) < _MOST_IDLE:
                self._idle.append(line)
                return
        line.close()
