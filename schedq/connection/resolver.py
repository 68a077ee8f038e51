"""Resolves host names and opens sockets without the event loop's thread pool.

`asyncio.to_thread` and asyncio's own name resolution share one small thread pool with the application. If a worker
depended on it, it could not reconnect to Redis while handlers occupy all threads of the pool.
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
"""In the form that `socket.getaddrinfo` returns."""
_LOOK_UP_SHARE: Final = 0.8
"""The share of the connection timeout that name resolution may take, so that its error can still be reported."""
_lookups: Final[dict[tuple[int, str, int], Future[Addresses]]] = {}
"""Lookups in progress, by process, host and port. A forked child has none of its parent's threads."""
_calls: Final[dict[tuple[int, object], Future[Any]]] = {}
"""Calls in progress that are shared, by process and what they are for."""


async def in_thread(function: Callable[[], T]) -> T:
    """Call a blocking function in a new thread and return its result.

    If the caller is cancelled, the thread continues. It does not prevent the interpreter from exiting.

    Raises:
        OSError: the system can't start another thread.
    """
    work: Future[T] = Future()
    _start(function, work)
    return await _result(work)


async def in_shared_thread(what: object, function: Callable[[], T]) -> T:
    """The same; callers with the same `what` share one call while it is in progress.

    Raises:
        OSError: the system can't start another thread.
    """
    work: Future[T] = Future()
    key = (os.getpid(), what)
    shared: Future[T] = _calls.setdefault(key, work)
    if shared is work:
        work.add_done_callback(lambda _: _calls.pop(key, None))
        _start(function, work)
    return await _result(shared)


def wait_for_name(host: str, within_s: float) -> None:
    """Return once a host name is resolved. redis-py resolves it again afterwards, but without a timeout.

    Raises:
        OSError: the host has no address, no name server replied, or the system can't start another thread.
    """
    try:
        _look_up(host, 0).result(within_s)
    except TimeoutError:
        raise _unanswered() from None


def _look_up(host: str, port: int) -> Future[Addresses]:
    """Resolve a host; the preferred address comes first.

    Concurrent callers share one lookup, because each takes half a minute while no name server replies.
    """
    work: Future[Addresses] = Future()
    with suppress(socket.gaierror):  # raised if `host` is a name rather than an address
        work.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        return work
    key = (os.getpid(), host, port)
    shared = _lookups.setdefault(key, work)
    if shared is work:
        work.add_done_callback(lambda _: _lookups.pop(key, None))
        _start(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), work)
    return shared


async def look_up(host: str, port: int) -> Addresses:
    """Resolve a host; the preferred address comes first.

    Raises:
        OSError: the host has no address, or the system can't start another thread.
        UnicodeError: the host name is invalid.
    """
    return await _result(_look_up(host, port))


def _unanswered() -> socket.gaierror:
    return socket.gaierror(socket.EAI_AGAIN, "no name server replied in time")


async def open_socket(host: str, port: int, within_s: float) -> socket.socket:
    """Return a socket connected to the first address of a host that accepts within its share of the time.

    Raises:
        OSError: no address accepts, with the error of the last one; or no name server replies.
        UnicodeError: the host name is invalid.
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
    """Connect a socket within this address's share of the remaining time, or close it. `left` addresses share it."""
    try:
        sock.settimeout(0)
        async with asyncio.timeout(max(0.0, until - monotonic()) / left):
            await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _start(function: Callable[[], T], work: Future[T]) -> None:
    """Call a function in a new thread and store its result or exception in `work`."""

    def run() -> None:
        try:
            work.set_result(function())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            work.set_exception(error)

    try:
        threading.Thread(target=run, name="schedq-resolver", daemon=True).start()
    except RuntimeError as error:
        work.set_exception(OSError(errno.EAGAIN, str(error)))


async def _result(work: Future[T]) -> T:
    """Wait for `work`. Unlike with `asyncio.wrap_future`, cancelling one of several callers does not cancel `work`."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    def wake_loop(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(wake)

    work.add_done_callback(wake_loop)
    await ended
    return work.result()
