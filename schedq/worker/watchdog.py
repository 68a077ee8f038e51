"""Tells when the event loop stands still and when a handler is slow, with the stack that shows where."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from schedq.clocks import monotonic
from schedq.errors import UsageError
from schedq.logger import log
from schedq.worker import stacks
from schedq.worker.held import Attempt, Held
from schedq.worker.runner import under_way

_LONGEST_PAUSE_S: Final = 0.5
_SHORTEST_S: Final = 0.01


class Watchdog(threading.Thread):
    """Looks after one event loop, at most twice a second; sleeps while no attempt is under way.

    Args:
        worker_id: for the log.
        still: seconds without a turn of the loop after which that is told, once, and again when it turns; 0: never.
            A standstill that is shorter is not told, one that is longer by half a second (or by the half, if that is
            less) always is.
        slow: seconds after which a handler that still runs is told of, once per attempt; 0: never.

    Raises:
        UsageError: a number that makes no sense.
    """

    def __init__(self, worker_id: str, *, still: float, slow: float) -> None:
        super().__init__(name="schedq-watchdog", daemon=True)
        self._worker_id = worker_id
        self._still_s = _checked("watchdog", still)
        self._slow_s = _checked("slow", slow)
        limits = [limit for limit in (self._still_s, self._slow_s) if limit]
        self._pause_s = min(_LONGEST_PAUSE_S, min(limits, default=0.0) / 2)
        self._held: Sequence[Held] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._begun = threading.Event()
        self._stopping = threading.Event()
        self._since: dict[Attempt, float] = {}  # when each one was seen first; infinity: it was told of

    def watch(self, held: Sequence[Held]) -> None:
        """Begin, with the event loop of the calling thread; `held` are the attempts of its worker."""
        if not (self._still_s or self._slow_s):
            return
        self._held = held
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        for each in held:
            each.tell(self._begun)
        self.start()

    def stop(self) -> None:
        """Let the thread end."""
        self._stopping.set()
        self._begun.set()

    def run(self) -> None:
        """Watch until stopped."""
        while not self._stopping.is_set():
            if not any(self._held):
                self._since.clear()
                self._begun.clear()
                if not any(self._held) and not self._stopping.is_set():
                    self._begun.wait()
            if self._still_s and not self._stopping.is_set():
                self._look_at_the_loop()
            if self._slow_s:
                self._look_at_handlers()
            self._pause()

    def _look_at_the_loop(self) -> None:
        assert self._loop is not None
        turned, asked_at = threading.Event(), monotonic()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # it is closed
            self.stop()
            return
        if self._turns_in_time(turned):
            return
        self._tell_of_standstill(monotonic() - asked_at)
        while not turned.wait(_LONGEST_PAUSE_S):
            if self._stopping.is_set():
                return
        self._tell_of_its_end(monotonic() - asked_at)

    def _turns_in_time(self, turned: threading.Event) -> bool:
        """Wait for a turn, in pieces: while the whole process is stopped or starved the loop is not to blame."""
        left = self._still_s
        while left > 0:
            piece, began, used = min(left, self._still_s / 4), monotonic(), time.process_time()
            if turned.wait(piece):
                return True
            passed = monotonic() - began
            # This thread was late as well: the process got no time to work, or C code kept the interpreter's lock.
            left -= passed if passed < 2 * piece else min(passed, time.process_time() - used)
        return False

    def _pause(self) -> None:
        began, used = monotonic(), time.process_time()
        self._stopping.wait(self._pause_s)
        late = monotonic() - began - self._pause_s
        if self._still_s and min(late, time.process_time() - used) >= self._still_s:
            # C code kept the interpreter's lock, and has let it go just now: its caller is where it was.
            self._tell_of_standstill(late)
            self._tell_of_its_end(late)

    def _tell_of_standstill(self, seconds: float) -> None:
        assert self._loop is not None
        attempt = stacks.attempt_of(asyncio.current_task(self._loop))
        where = "" if attempt is None else f", in {stacks.label(attempt)}"
        message = "worker %s: the event loop has stood still for %.2f s%s"
        stack = stacks.of_thread(self._loop_thread)
        stacks.tell(logging.WARNING, message, self._worker_id, seconds, where, stack=stack)

    def _tell_of_its_end(self, seconds: float) -> None:
        log.warning("worker %s: the event loop turns again, after %.2f s", self._worker_id, seconds)

    def _look_at_handlers(self) -> None:
        now, since = monotonic(), self._since
        live = [attempt for attempt in under_way() if attempt.task is not None and not attempt.is_settled]
        ours = [attempt for attempt in live if attempt.task is not None and attempt.task.get_loop() is self._loop]
        self._since = {attempt: since.get(attempt, now) for attempt in ours}
        for attempt, seen_at in self._since.items():
            if now - seen_at >= self._slow_s:
                self._since[attempt] = float("inf")
                message = "%s, is slow: it has run for %.1f s"
                stack = stacks.of_attempt(attempt)
                stacks.tell(logging.WARNING, message, stacks.label(attempt), now - seen_at, stack=stack)


def _checked(name: str, seconds: float) -> float:
    if not (seconds == 0 or _SHORTEST_S <= seconds <= 86_400):
        raise UsageError(f"{name} must be 0 or {_SHORTEST_S} to 86,400 seconds, got {seconds!r}")
    return seconds
