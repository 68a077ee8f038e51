"""Waiting for a reply without falling asleep, for a caller that asks again and again.

Who sleeps is woken through the scheduler, which takes longer than Redis takes to answer: a loop of requests spends
two thirds of its time so. One that has just asked looks for the reply all the time instead, for a moment.
"""

from __future__ import annotations

import inspect
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final

from schedq.clocks import monotonic

_WINDOW_S: Final = 0.0003
"""How long a reply is looked for; on one machine it takes a fifth of that."""
_RECENT_S: Final = 0.001
"""Who asked longer ago than that does not ask in a loop, and sleeps at once."""
_MISS: Final = 8
"""Replies that must have come within the window for one that did not: it costs as much as they save."""
_MOST_CREDIT: Final = 64
_REST: Final = 500
"""Requests that sleep at once when too few replies came: Redis is far away, or the processors are busy."""

_turn = threading.Lock()  # threads that look at the same time would only take the interpreter from each other
os.register_at_fork(after_in_child=lambda: globals().update(_turn=threading.Lock()))


class BusyPoll:
    """How one connection waits for its replies. Not for two threads at once."""

    __slots__ = ("_asked_at", "_credit", "_look", "_rest")

    def __init__(self, sock: socket.socket) -> None:
        self._look = _looking_at(sock)
        self._asked_at = 0.0
        self._credit = _MISS
        self._rest = 0

    def wait(self) -> None:
        """Return when something can be read, or when it is better to sleep until then."""
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
                    self._missed()
                    return
        finally:
            _turn.release()
        self._asked_at = monotonic()
        if self._credit < _MOST_CREDIT:
            self._credit += 1

    def _missed(self) -> None:
        self._credit -= _MISS
        if self._credit < 0:
            self._rest, self._credit = _REST, _MISS


def _looking_at(sock: socket.socket) -> Callable[[int], list[Any]] | None:
    """What tells whether a socket can be read, or None where nobody may look all the time.

    That is on a single processor, which Redis needs for the reply; with TLS, which reads ahead; and where green threads
    stand in for `select.poll`, or have removed it: nobody else would run meanwhile.
    """
    poll: Any = getattr(select, "poll", None)
    if _processors() < 2 or isinstance(sock, ssl.SSLSocket) or not inspect.isbuiltin(poll):
        return None
    looker = poll()
    looker.register(sock, select.POLLIN)
    look: Callable[[int], list[Any]] = looker.poll
    return look


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
