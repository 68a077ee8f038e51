"""The keyboard of a terminal, key by key; and the terminal as it was, whatever happens."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SEQUENCE_S: Final = 0.05
"""What follows an escape so soon belongs to it: no finger is as quick."""
_MOST: Final = 64
_NAMED: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "enter",
    b"\x1bOC": "enter",
    b"\x1b[D": "back",
    b"\x1bOD": "back",
    b"\x1b": "back",
    b"\x7f": "back",
    b"\x08": "back",
    b"\r": "enter",
    b"\n": "enter",
}
_ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP)


class HungUpError(Exception):
    """Nobody is at the keyboard any more: the terminal was closed."""


@contextmanager
def single_keys() -> Iterator[None]:
    """Take keys one by one, unseen; Ctrl-C stays. SIGTERM and a closed terminal end this in order, too."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    handlers = {number: signal.signal(number, _leave) for number in _ENDINGS}
    try:
        now = termios.tcgetattr(fd)
        now[3] &= ~(termios.ICANON | termios.ECHO)
        # A stopped process would leave the terminal as it is now to the shell.
        now[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(fd, termios.TCSADRAIN, now)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class Keyboard:
    """Standard input, key by key."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._ahead = b""

    def pressed(self, wait_s: float) -> str | None:
        """The next key, by its name or as it is; None if none comes in `wait_s` seconds.

        Raises:
            HungUpError: none will come any more.
        """
        found = self._byte(wait_s)
        if found == b"\x1b":
            following = self._byte(_SEQUENCE_S)
            if following in (b"[", b"O"):
                found += following + self._rest()
            elif following is not None:
                self._ahead = following
        return None if found is None else _NAMED.get(found) or found.decode(errors="replace")

    def _byte(self, wait_s: float) -> bytes | None:
        if self._ahead:
            found, self._ahead = self._ahead, b""
            return found
        if not select.select([self._fd], [], [], max(0.0, wait_s))[0]:
            return None
        try:
            found = os.read(self._fd, 1)
        except OSError as error:
            raise HungUpError from error
        if not found:
            raise HungUpError
        return found

    def _rest(self) -> bytes:
        """Of a sequence, to the letter or tilde that ends it."""
        found = b""
        while len(found) < _MOST and (byte := self._byte(_SEQUENCE_S)) is not None:
            found += byte
            if byte.isalpha() or byte == b"~":
                break
        return found
