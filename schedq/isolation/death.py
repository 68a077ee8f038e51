"""How a child process has ended, in words, and the stack at which it was ended."""

from __future__ import annotations

import linecache
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_FRAME: Final = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
_THREAD: Final = re.compile(r"^(Stack \(|(Current thread|Thread) 0x)")
_FROM_OUTSIDE: Final = "killed from outside, often by the kernel for lack of memory"


class ProcessDied(RuntimeError):  # noqa: N818 - what happened to the process, as the stored error says it
    """The child process of an attempt has ended before the attempt.

    Attributes:
        stack: where the function was, as a traceback, or ''.
    """

    def __init__(self, how: str, stack: str = "") -> None:
        super().__init__(how)
        self.stack = stack


def described(code: int | None) -> str:
    """Return how the process of a job ended that the worker did not end; see `manner`."""
    return f"its process {manner(code)}"


def manner(code: int | None) -> str:
    """Return how a process ended: "was ended by" which signal, or "ended with" which exit code.

    Args:
        code: the exit code, negative for a signal; None if it is unknown.
    """
    if code is None:
        return "ended"
    if code >= 0:
        return f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        return f"was {_FROM_OUTSIDE} (SIGKILL)"
    with suppress(ValueError):
        number = signal.Signals(-code)
        return f"was ended by signal {-code} ({number.name}: {signal.strsignal(number)})"
    return f"was ended by signal {-code}"


def traceback_of(dump: str, machinery: Sequence[str]) -> str:
    """Return the first stack of a faulthandler dump in the form of a traceback, innermost call last.

    Args:
        dump: what faulthandler wrote; it lists the innermost call first and no source lines.
        machinery: prefixes of files whose frames are left out.
    """
    left_out = (*machinery, "<string>")
    frames: list[str] = []
    has_begun = False
    for line in dump.splitlines():
        if _THREAD.match(line):
            if has_begun:
                break
            has_begun = True
        elif has_begun and (found := _FRAME.match(line)) and not found["file"].startswith(left_out):
            source = linecache.getline(found["file"], int(found["line"])).strip()
            below = f"    {source}\n" if source else ""
            frames.append(f'  File "{found["file"]}", line {found["line"]}, in {found["name"]}\n{below}')
    return f"The process was here (most recent call last):\n{''.join(reversed(frames))}" if frames else ""
