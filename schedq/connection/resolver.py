"""Host names looked up, and sockets opened, without the event loop's thread pool.

`asyncio.to_thread` and asyncio's own look-up of host names share one small pool of threads with the application. While
handlers fill it, a worker that depended on it could not get back to Redis.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from schedq.model.times import monotonic

T = TypeVar("T")
Addresses = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]]
"""As `socket.getaddrinfo` gives them."""
_LOOK_UP_SHARE: Final = 0.8
"""The share of the time for a connection that the look-up of its host may take, so that its error is still reported."""
_lookups: Final[dict[tuple[int, str, int], Future[Addresses]]] = {}
"""Look-ups that have not ended, by process (a fork has none of its parent's threads), host and port."""


async def in_thread(function: Callable[[], T]) -> T:
    """What a function returns that blocks, called in a thread of its own.

    A caller that is cancelled leaves the thread behind; it does not keep the interpreter from ending.

    Raises:
        OSError: the system has no thread to spare.
    """
    work: Future[T] = Future()
    _start(function, work)
    return await _result(work)


def wait_for_name(host: str, within_s: float) -> None:
    """Return once the name of a host is resolved. The client library, which resolves it again, has no limit for that.

    Raises:
        OSError: it has no address, no name server has answered, or the system has no thread to spare.
    """
    try:
        _look_up(host, 0).result(within_s)
    except TimeoutError:
        raise _unanswered() from None


def _look_up(host: str, port: int) -> Future[Addresses]:
    """The addresses of a host, the preferred first.

    Callers at the same time share one look-up: each takes half a minute while no name server replies.
    """
    work: Future[Addresses] = Future()
    with suppress(socket.gaierror):  # it is a name, not an address
        work.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        return work
    key = (os.getpid(), host, port)
    shared = _lookups.setdefault(key, work)
    if shared is work:
        work.add_done_callback(lambda _: _lookups.pop(key, None))
        _start(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), work)
    return shared


async def look_up(host: str, port: int) -> Addresses:
    """The addresses of a host, the preferred first.

    Raises:
        OSError: it has none, or the system has no thread to spare.
        UnicodeError: no host has such a name.
    """
    return await _result(_look_up(host, port))


def _unanswered() -> socket.gaierror:
    return socket.gaierror(socket.EAI_AGAIN, "no name server has answered")


async def open_socket(host: str, port: int, within_s: float) -> socket.socket:
    """A socket that is connected to the first address of a host that accepts within its share of the time.

    Raises:
        OSError: none does; what the last one failed with. Or no name server replies.
        UnicodeError: no host has such a name.
    """
    until = monotonic() + within_s
    try:
        async with asyncio.timeout(within_s * _LOOK_UP_SHARE):
            found = await look_up(host, port)
    except TimeoutError:
        raise _unanswered() from None
    problem = OSError(f"{host} has no address")
    for number, (family, kind, protocol, _, where) in enumerate(found):
        try:
            return await _connected(socket.socket(family, kind, protocol), where, until, len(found) - number)
        except OSError as error:
            problem = error
    raise problem


async def _connected(sock: socket.socket, where: Any, until: float, left: int) -> socket.socket:
    """The socket, connected before an equal share for each of the `left` addresses has passed; else it is closed."""
    try:
        sock.settimeout(0)
        async with asyncio.timeout(max(0.0, until - monotonic()) / left):
            await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _start(function: Callable[[], T], work: Future[T]) -> None:
    """Call a function in a new thread; `work` gets what it returns or raises."""

    def run() -> None:
        try:
            work.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is its caller's
            work.set_exception(error)

    try:
        threading.Thread(target=run, name="schedq-resolver", daemon=True).start()
    except RuntimeError as error:
        work.set_exception(OSError(errno.EAGAIN, str(error)))


async def _result(work: Future[T]) -> T:
    """What `work` ends in; unlike `asyncio.wrap_future` it takes no harm if one of several callers is cancelled."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    def wake_loop(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(wake)

    work.add_done_callback(wake_loop)
    await ended
    return work.result()
