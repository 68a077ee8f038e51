"""Ends a child, and what it has started, when its worker is gone, whatever the child does.

The kernel does it, so that even code that holds the interpreter lock is ended.

The worker keeps the write end of a pipe, and writes nothing. When the worker ends, however, the kernel closes it and
signals every process that has asked for signals about the read end. PR_SET_PDEATHSIG would do the same, but only the
thread that started the child counts there, and only Linux has it.

The worker keeps the read end, too. A child may die by itself, and its worker be killed before it has ended what the
child had started. The kernel closes the files of a process from the last to the first. So at the end of the worker the
read end, which has the lower number, is still open when the write end closes, and the group gets the signal even if
the child is gone.

A child is a new interpreter, which may need seconds for its imports on a busy machine. Until they are done, its worker
has asked the kernel in its place: the request belongs to the pipe, which both have open.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
from contextlib import suppress
from typing import Final

_F_SETSIG: Final = 10  # of Linux; Python's fcntl module has no name for it before 3.13


def end_starting(fd: int, pid: int, number: int = signal.SIGKILL) -> None:
    """Let a process that has just started end with this one, which has the write end of the pipe; on Linux only.

    The other process must have the read end `fd` too. The kernel sends it the signal `number`.
    """
    if hasattr(fcntl, "F_OFD_SETLK"):
        _signal_at_end(fd, pid, number)


def end_with(fd: int) -> None:
    """Let this process group end when the write end of the pipe with the read end `fd` is closed."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    _signal_at_end(fd, -os.getpgrp())
    watched = select.poll()
    watched.register(fd, select.POLLIN)
    if watched.poll(0):  # it ended before the kernel knew that this process wants to know
        os._exit(1)


def _signal_at_end(fd: int, owner: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel signal a process, or the group of a negative number, when the pipe's write end is closed."""
    fcntl.fcntl(fd, fcntl.F_SETOWN, owner)
    if hasattr(fcntl, "F_OFD_SETLK"):  # Linux
        with suppress(OSError):
            fcntl.fcntl(fd, _F_SETSIG, number)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
