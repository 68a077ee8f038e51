"""SIGUSR1 asks a process where its threads and tasks are; it answers whatever its main thread does.

A handler of Python's own has to wait until the main thread has a moment, which a call into C may never give it. So one
of C's comes first: it writes where the signal found the thread into a pipe, and a thread that sleeps at the other end
does the rest. When C code keeps the interpreter's lock, that first stack is told when it lets it go.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Final

from schedq.logger import log
from schedq.worker import stacks

_MOST_BYTES: Final = 65_536
_QUIET_S: Final = 0.05
"""The C handler writes in pieces; it is done when nothing has come for so long."""
_PYTHONS: Final = b"\0"
"""What the handler of Python's own writes, which C's never does."""


def answer_inquiries() -> None:
    """From now on SIGUSR1 makes this process log its stacks. In the main thread only, before others start.

    A parent starts its children with the signal blocked, so that none of them dies by one that comes too early.
    """
    _Inquiry().start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


class _Inquiry(threading.Thread):
    """Waits for signals and answers them."""

    def __init__(self) -> None:
        super().__init__(name="schedq-stacks", daemon=True)
        self._is_heard = False  # by the C handler; that of Python's own has yet to run for it
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)  # a signal handler that waits would never end
        # A thread that only begins to be Python's may get the signal, while the one that starts it blocks all; of that
        # one C's handler can say nothing.
        signal.signal(signal.SIGUSR1, self._signalled)
        # Not of all threads: the others go on meanwhile, and reading their stacks without the lock may end in a crash.
        faulthandler.register(signal.SIGUSR1, file=self._writing, all_threads=False, chain=True)
        _let_calls_go_on()
        os.register_at_fork(after_in_child=_forget)

    def run(self) -> None:
        """Answer for ever."""
        while found := os.read(self._reading, _MOST_BYTES):
            self._is_heard = True
            _let_calls_go_on()
            while select.select([self._reading], [], [], _QUIET_S)[0]:
                found += os.read(self._reading, _MOST_BYTES)
            self._is_heard = _PYTHONS not in found
            first = found.replace(_PYTHONS, b"").decode(errors="replace")
            try:
                stack = (f"the signal found it at\n{first}" if first else "") + stacks.report()
                stacks.tell(logging.INFO, "stacks of process %d", os.getpid(), stack=stack)
            except Exception:  # noqa: BLE001 - what is looked at changes meanwhile; who asks again must get an answer
                log.exception("the stacks could not be told")

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_heard:
            self._is_heard = False
        else:
            with suppress(BlockingIOError):  # it is full of others
                os.write(self._writing, _PYTHONS)


def _let_calls_go_on() -> None:
    """A system call of somebody's C code is begun anew, not ended by EINTR; C's handler forgets this each time."""
    signal.siginterrupt(signal.SIGUSR1, False)  # noqa: FBT003


def _forget() -> None:
    """A process that a handler has forked must not write into its parent's pipe."""
    faulthandler.unregister(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
