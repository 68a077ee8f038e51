"""Encodes commands and decodes replies with hiredis; has the socket of a blocking connection and its busy polling."""

from __future__ import annotations

import inspect
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from hiredis import Reader, pack_command
from redis import exceptions

from schedq.connection.redis_internals import parse_error
from schedq.model.times import monotonic
from schedq.transitions import Argument

_WINDOW_S: Final = 0.0003
"""Seconds to poll for a reply; with Redis on the same machine a reply takes a fifth of that."""
_RECENT_S: Final = 0.001
"""A caller whose last request is older than this is not in a loop, and sleeps without polling."""
_MISS: Final = 8
"""Replies within the window that compensate for one outside it: a miss costs as much as they save."""
_MOST_CREDIT: Final = 64
_REST: Final = 500
"""Requests that sleep without polling after too many misses: Redis is far away, or the CPUs are busy."""
_turn = threading.Lock()  # threads that poll at the same time would only compete for the interpreter lock
os.register_at_fork(after_in_child=lambda: globals().update(_turn=threading.Lock()))


class BusyPoll:
    """Waits for the replies of one connection by polling its socket. Only one thread may use it at a time.

    Waking a sleeping thread takes the operating system longer than Redis takes to reply, so a caller that sends
    requests in a loop polls its socket for a moment before it sleeps. Measured on two otherwise idle CPUs: an enqueue
    in a loop takes 43 us instead of 56 and costs 1.3 to 1.7 times the CPU time. The first request after a pause does
    not change.
    """

    __slots__ = ("_asked_at", "_credit", "_look", "_rest")

    def __init__(self, sock: socket.socket) -> None:
        self._look = _looking_at(sock)
        self._asked_at = 0.0
        self._credit = _MISS
        self._rest = 0

    def wait(self) -> None:
        """Return when data can be read, or when it is better to sleep until then."""
        look = self._look
        if look is None:
            return
        now = monotonic()
        is_in_loop, self._asked_at = now - self._asked_at < _RECENT_S, now
        if not is_in_loop:
            return
        if self._rest:
            self._rest -= 1
            return
        if not _turn.acquire(blocking=False):
            return
        try:
            until = now + _WINDOW_S
            while not look(0):
                if monotonic() > until:
                    self._credit -= _MISS
                    if self._credit < 0:
                        self._rest, self._credit = _REST, _MISS
                    return
        finally:
            _turn.release()
        self._asked_at = monotonic()
        self._credit = min(_MOST_CREDIT, self._credit + 1)


def _looking_at(sock: socket.socket) -> Callable[[int], list[Any]] | None:
    """Return a function that checks whether a socket can be read, or None where polling does harm.

    It does harm in three cases. On a single CPU, polling takes the time that Redis needs to reply. With TLS, data may
    already have been read from the socket. With green threads that replace or remove `select.poll`, nothing else would
    run meanwhile.
    """
    poll: Any = getattr(select, "poll", None)
    if _processors() < 2 or isinstance(sock, ssl.SSLSocket) or not inspect.isbuiltin(poll):
        return None
    looker = poll()
    looker.register(sock, select.POLLIN)
    look: Callable[[int], list[Any]] = looker.poll
    return look


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_pack: Final[Callable[[tuple[Argument | bytes, ...]], bytes]] = cast(Any, pack_command)
_CHUNK: Final = 16_384
"""Bytes after which packed commands are sent, before the rest is packed."""
_READ: Final = 65_536
_LEAST_S: Final = 0.001
NOTHING: Final = object()
"""A reader returns this while the next reply is incomplete."""


def packed(command: tuple[Argument, ...]) -> bytes:
    """Encode a command for sending."""
    try:
        return _pack(command)
    except UnicodeEncodeError:  # bytes that are not UTF-8 were decoded to lone surrogates; restore the bytes
        return _pack(tuple(str(word).encode(errors="surrogateescape") for word in command))


def reader() -> Reader:
    """Return a parser of replies. It returns error replies as exceptions of redis-py's classes."""
    return Reader(
        protocolError=exceptions.InvalidResponse,
        replyError=parse_error,
        encoding="utf-8",
        errors="surrogateescape",
        notEnoughData=NOTHING,
    )


def checked(reply: Any) -> Any:
    """Return the reply, unless it is an error after which the connection can no longer be used.

    Raises:
        ConnectionError: it is such an error; the server is loading its data, or requires a login.
    """
    if isinstance(reply, exceptions.ConnectionError):
        raise reply
    return reply


class Socket:
    """Sends commands and receives replies once redis-py has connected and logged in. Only for one thread at a time.

    Every method may raise ConnectionError, TimeoutError or OSError. The connection can't be used after that.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._timeout = connected.gettimeout()
        self._reader = reader()
        self._busy_poll = BusyPoll(connected)

    def send(self, commands: Sequence[tuple[Argument, ...]]) -> None:
        """Send commands together. If there are many, Redis executes the first ones while the rest are being packed."""
        chunk, size = [], 0
        for command in commands:
            chunk.append(packed(command))
            size += len(chunk[-1])
            if size >= _CHUNK:
                self._socket.sendall(b"".join(chunk))
                chunk, size = [], 0
        if chunk:
            self._socket.sendall(b"".join(chunk))

    def replies(self, count: int) -> list[Any]:
        """Return the next `count` replies, errors as values."""
        self._busy_poll.wait()
        return self._take(count)

    def reply_within(self, most_s: float) -> Any:
        """Return the next reply, or NOTHING if none begins within `most_s` seconds."""
        reply = self._reader.gets()
        if reply is not NOTHING:
            return checked(reply)
        self._socket.settimeout(max(_LEAST_S, most_s))
        try:
            self._read()
        except TimeoutError:
            return NOTHING
        finally:
            self._socket.settimeout(self._timeout)
        return self._take(1)[0]

    def _take(self, count: int) -> list[Any]:
        taken: list[Any] = []
        try:
            while len(taken) < count:
                reply = self._reader.gets()
                if reply is NOTHING:
                    self._read()
                else:
                    taken.append(checked(reply))
        except TimeoutError as error:
            raise exceptions.TimeoutError("no reply in time") from error
        return taken

    def _read(self) -> None:
        received = self._socket.recv(_READ)
        if not received:
            raise exceptions.ConnectionError("the server closed the connection")
        self._reader.feed(received)
