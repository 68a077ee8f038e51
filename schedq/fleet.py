"""The parent of `--processes`: starts workers as processes of their own and replaces the dead."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from types import FrameType
from typing import Final

from schedq.clocks import monotonic, sleep
from schedq.service import PARENT_FD

log: Final = logging.getLogger("schedq")
_QUICK_S: Final = 10.0
_LONGEST_WAIT_S: Final = 30.0
_OVERTIME_S: Final = 15.0
_TICK_S: Final = 0.1


class _Child:
    """One worker process, now or again soon."""

    def __init__(self, command: Sequence[str], number: int) -> None:
        self._command = command
        self._number = number
        self._deaths = 0
        self._started_at = 0.0
        self.start_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self.has_ended_well = False

    def start(self) -> None:
        ear, self._pipe = os.pipe()
        os.set_inheritable(ear, True)  # noqa: FBT003 - has no keyword
        environment = {**os.environ, PARENT_FD: str(ear)}
        self.process = subprocess.Popen(self._command, env=environment, pass_fds=(ear,))  # noqa: S603
        os.close(ear)
        self._started_at = monotonic()
        log.info("worker process %d: started, pid %d", self._number, self.process.pid)

    def say_stop(self) -> None:
        """One stop; the second means at once."""
        if self.process is not None:
            try:
                os.write(self._pipe, b"s")
            except OSError:
                return  # it is gone already

    def look(self) -> None:
        """Notice its end, and say when it starts again."""
        if self.process is None or self.process.poll() is None:
            return
        code = self.process.returncode
        os.close(self._pipe)
        self.process = None
        self.has_ended_well = code == 0
        if self.has_ended_well:
            return
        quick = monotonic() - self._started_at < _QUICK_S
        self._deaths = self._deaths + 1 if quick else 1
        wait = min(_LONGEST_WAIT_S, 0.25 * 2.0 ** min(self._deaths - 1, 10))
        self.start_at = monotonic() + wait
        how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        log.error("worker process %d: %s; a new one starts in %.1f s", self._number, how, wait)


class Fleet:
    """Runs `count` copies of a command until SIGTERM or SIGINT.

    Args:
        command: starts one worker.
        count: how many.
        grace: seconds that the command gives its jobs; a child that takes much longer is killed.
    """

    def __init__(self, command: Sequence[str], count: int, grace: float) -> None:
        self._children = [_Child(command, number + 1) for number in range(count)]
        self._grace = grace
        self._stops = 0
        self._kill_at: float | None = None

    def run(self) -> int:
        """Start the children and mind them; answers the exit code: 0 if all ended well."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        passed_on = 0
        while self._mind():
            while passed_on < self._stops:
                passed_on += 1
                for child in self._children:
                    child.say_stop()
            sleep(_TICK_S)
        return 0 if all(child.has_ended_well for child in self._children) else 1

    def _mind(self) -> bool:
        """Replace the dead; answers whether anything is left to mind."""
        now = monotonic()
        for child in self._children:
            child.look()
            if child.process is None and not child.has_ended_well and not self._stops and now >= child.start_at:
                child.start()
            if child.process is not None and self._kill_at is not None and now >= self._kill_at:
                log.error("worker process %d does not end; killed", child.process.pid)
                child.process.kill()
        waiting = not self._stops and any(not child.has_ended_well for child in self._children)
        return waiting or any(child.process is not None for child in self._children)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self._stops += 1
        self._kill_at = monotonic() + (self._grace if self._stops == 1 else 0) + _OVERTIME_S
