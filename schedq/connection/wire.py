"""The socket of a blocking connection, once the client library has opened it and said who we are."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, Final, cast

from redis.connection import Connection
from redis.exceptions import ConnectionError as LineBroken
from redis.exceptions import TimeoutError as NoReply

from schedq.connection.busy_poll import BusyPoll
from schedq.connection.resp import NOTHING, checked, parts, reader
from schedq.operations import Argument

_BYTES: Final = 65_536
_LEAST_S: Final = 0.001


class Wire:
    """Commands out, replies in. Not for two threads at once."""

    def __init__(self, connection: Connection) -> None:
        self._socket = cast(socket.socket, connection._sock)
        self._timeout = self._socket.gettimeout()
        self._reader = reader()
        self._busy_poll = BusyPoll(self._socket)

    def send(self, commands: Sequence[tuple[Argument, ...]]) -> None:
        """Send commands together.

        Raises:
            ConnectionError, OSError: the connection is of no more use.
        """
        for part in parts(commands):
            self._socket.sendall(part)

    def replies(self, count: int) -> list[Any]:
        """The next replies, errors as values.

        Raises:
            ConnectionError, TimeoutError, OSError: the connection is of no more use.
        """
        self._busy_poll.wait()
        return [self._reply() for _ in range(count)]

    def reply_within(self, most_s: float) -> Any:
        """The next reply, or NOTHING if none begins within `most_s` seconds.

        Raises:
            ConnectionError, TimeoutError, OSError: the connection is of no more use.
        """
        reply = self._reader.gets()
        if reply is not NOTHING:
            return checked(reply)
        self._socket.settimeout(max(_LEAST_S, most_s))
        try:
            self._feed()
        except TimeoutError:
            return NOTHING
        finally:
            self._socket.settimeout(self._timeout)
        return self._reply()

    def _reply(self) -> Any:
        take = self._reader.gets
        while (reply := take()) is NOTHING:
            try:
                self._feed()
            except TimeoutError as error:
                raise NoReply("no answer in time") from error
        return checked(reply)

    def _feed(self) -> None:
        found = self._socket.recv(_BYTES)
        if not found:
            raise LineBroken("the server closed the connection")
        self._reader.feed(found)
