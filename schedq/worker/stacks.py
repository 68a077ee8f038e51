"""Logs the stacks of threads and tasks with their jobs: on SIGUSR1, and when an event loop or a handler is slow."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Final
from weakref import WeakSet

from schedq.errors import UsageError
from schedq.logs import log
from schedq.model.escaping import harmless
from schedq.model.times import monotonic
from schedq.worker.attempt import OPEN, Attempt, InFlight, running_attempts

loops: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()
"""The event loops whose tasks are logged."""


def label(attempt: Attempt) -> str:
    """Describe an attempt in the log."""
    return f"job {harmless(attempt.job.id)}: {harmless(attempt.name) or 'its handler'}, attempt {attempt.job.attempts}"


def attempt_of(task: asyncio.Task[Any] | None) -> Attempt | None:
    """Return the attempt that a task belongs to. For tasks started by a handler this needs Python 3.12 or later."""
    if task is None:
        return None
    inherited: list[object] = []
    if sys.version_info >= (3, 12):
        inherited += task.get_context().values()
    for attempt in running_attempts():
        if attempt.task is task or (attempt.current is not None and any(it is attempt.current for it in inherited)):
            return attempt
    return None


def of_thread(thread_id: int) -> str:
    """Return the stack of a thread, outermost call first; '' if the thread has ended."""
    frame = sys._current_frames().get(thread_id)
    return "" if frame is None else "".join(traceback.format_stack(frame))


def of_task(task: asyncio.Task[Any]) -> str:
    """Return the stack of a task: its coroutine, the one that it awaits or calls, and so on."""
    frames = list(_awaited(task))
    if len(frames) == 1:  # it may be running, and then does not say what it awaits
        frames = _called(frames[0]) or list(_awaited(task))
    return "".join(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames).format())


def of_attempt(attempt: Attempt) -> str:
    """Return the stack of a handler: of its thread, or of its waiting task."""
    if attempt.thread_id is not None:
        return of_thread(attempt.thread_id)
    return "" if attempt.task is None else of_task(attempt.task)


def report() -> str:
    """Return the stacks of all threads and tasks of this process, each with its job."""
    by_thread = {attempt.thread_id: attempt for attempt in running_attempts()}
    parts = []
    for thread in threading.enumerate():
        attempt = by_thread.get(thread.ident or 0)
        runs = "" if attempt is None else f", {label(attempt)}"
        parts.append(f"thread {harmless(thread.name)}{runs}\n{of_thread(thread.ident or 0)}")
    for loop in list(loops):
        running = asyncio.current_task(loop)
        for task in sorted(asyncio.all_tasks(loop), key=_age):
            attempt = attempt_of(task)
            runs = "" if attempt is None else f", {label(attempt)}"
            # With its stack, since that of the thread was taken earlier and may show another task.
            where = "  runs now, on the thread of its event loop\n" if task is running else ""
            parts.append(f"task {harmless(task.get_name())}{runs}\n{where}{of_task(task)}")
    return "".join(parts)


def _awaited(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    awaited: Any = task.get_coro()
    while awaited is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(awaited, f"{kind}_frame")), "")
        frame = getattr(awaited, f"{kind}_frame", None)
        if frame is None:
            return
        yield frame
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def _called(outermost: FrameType) -> list[FrameType]:
    """Return the frames of a thread from this one on; none if no thread runs it."""
    for innermost in sys._current_frames().values():
        frames, frame = [innermost], innermost.f_back
        while frames[-1] is not outermost and frame is not None:
            frames.append(frame)
            frame = frame.f_back
        if frames[-1] is outermost:
            return frames[::-1]
    return []


def _age(task: asyncio.Task[Any]) -> tuple[int, str]:
    """Sort key: tasks with a default name, by their number."""
    number = re.fullmatch(r"Task-(\d+)", name := task.get_name())
    return (int(number[1]) if number else 0, name)


_MOST_BYTES: Final = 65_536
_QUIET_S: Final = 0.05
"""The C handler writes in pieces; it has finished when nothing has arrived for this many seconds."""
_PYTHONS: Final = b"\0"
"""Written by the Python-level handler, and never by the C handler."""


def log_stacks_on_signal() -> None:
    """Make this process log its stacks on SIGUSR1. Call it in the main thread, before other threads start.

    A parent starts its children with the signal blocked, so that a signal which arrives too early does not kill them.
    """
    _Inquiry().start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


class _Inquiry(threading.Thread):
    """Waits for signals and logs the stacks.

    Python runs signal handlers only between bytecodes, so a long call into C can delay them. A handler in C therefore
    writes the interrupted stack to a pipe first, and this thread, which sleeps at its other end, does the rest. If C
    code holds the interpreter's lock, the stack is logged once the lock is released.
    """

    def __init__(self) -> None:
        super().__init__(name="schedq-stacks", daemon=True)
        self._is_heard = False  # the C handler has written; Python's handler for the same signal has yet to run
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)  # a signal handler that blocks on a full pipe would never return
        # A thread that is just starting may get the signal before it belongs to Python. The C handler writes nothing
        # then, so Python's handler is needed as well.
        signal.signal(signal.SIGUSR1, self._signalled)
        # Not all threads: the others continue to run, and reading their stacks without the lock may crash the process.
        faulthandler.register(signal.SIGUSR1, file=self._writing, all_threads=False, chain=True)
        _let_calls_go_on()
        os.register_at_fork(after_in_child=_forget)

    def run(self) -> None:
        """Log the stacks for each signal until the process ends."""
        while found := os.read(self._reading, _MOST_BYTES):
            self._is_heard = True
            _let_calls_go_on()
            while select.select([self._reading], [], [], _QUIET_S)[0]:
                found += os.read(self._reading, _MOST_BYTES)
            self._is_heard = _PYTHONS not in found
            first = found.replace(_PYTHONS, b"").decode(errors="replace")
            try:
                stack = (f"the signal interrupted\n{first}" if first else "") + report()
                log.log(logging.INFO, "stacks of process %d", os.getpid(), below=stack)
            except Exception:  # noqa: BLE001 - stacks change while they are read; the next signal must be served
                log.exception("the stacks could not be logged")

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_heard:
            self._is_heard = False
        else:
            with suppress(BlockingIOError):  # the pipe is full, so the thread will log anyway
                os.write(self._writing, _PYTHONS)


def _let_calls_go_on() -> None:
    """Let interrupted system calls of C code restart instead of failing with EINTR. The C handler resets this."""
    signal.siginterrupt(signal.SIGUSR1, False)  # noqa: FBT003


def _forget() -> None:
    """Remove the handlers in a forked process, which would write into its parent's pipe."""
    faulthandler.unregister(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


_LONGEST_PAUSE_S: Final = 0.5
_SHORTEST_S: Final = 0.01


class Watchdog(threading.Thread):
    """Checks one event loop at least twice a second; sleeps while there are no attempts.

    Args:
        worker_id: names the worker in the log.
        still: log once when the loop is blocked for this many seconds, and again when it continues; 0: never. A shorter
            block is never logged; one longer by half a second (or by half, if that is less) always is.
        slow: seconds after which a handler that still runs is logged, once per attempt; 0: never.

    Raises:
        UsageError: invalid number.
    """

    def __init__(self, worker_id: str, *, still: float, slow: float) -> None:
        super().__init__(name="schedq-watchdog", daemon=True)
        self._worker_id = worker_id
        self._still_s = _checked("watchdog", still)
        self._slow_s = _checked("slow", slow)
        limits = [limit for limit in (self._still_s, self._slow_s) if limit]
        self._pause_s = min(_LONGEST_PAUSE_S, min(limits, default=0.0) / 2)
        self._in_flight: Sequence[InFlight] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._begun = threading.Event()
        self._stopping = threading.Event()
        self._since: dict[Attempt, float] = {}  # when each attempt was seen first; infinity once it was logged

    def watch(self, in_flight: Sequence[InFlight]) -> None:
        """Start watching the event loop of the calling thread; `in_flight` has the attempts of its worker."""
        if not (self._still_s or self._slow_s):
            return
        self._in_flight = in_flight
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        for each in in_flight:
            each.listen(self._begun)
        self.start()

    def stop(self) -> None:
        """Stop the thread soon."""
        self._stopping.set()
        self._begun.set()

    def run(self) -> None:
        """Watch until stopped."""
        while not self._stopping.is_set():
            if not any(self._in_flight):
                self._since.clear()
                self._begun.clear()
                if not any(self._in_flight) and not self._stopping.is_set():
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
        except RuntimeError:  # the loop is closed
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
        """Wait for the loop in short intervals, to exclude time in which the whole process was stopped or starved."""
        left = self._still_s
        while left > 0:
            piece, began, used = min(left, self._still_s / 4), monotonic(), time.process_time()
            if turned.wait(piece):
                return True
            passed = monotonic() - began
            # This thread was late as well: the process got no CPU time, or C code held the interpreter's lock. Count
            # only CPU time that the process has used.
            left -= passed if passed < 2 * piece else min(passed, time.process_time() - used)
        return False

    def _pause(self) -> None:
        began, used = monotonic(), time.process_time()
        self._stopping.wait(self._pause_s)
        late = monotonic() - began - self._pause_s
        if self._still_s and min(late, time.process_time() - used) >= self._still_s:
            # C code held the interpreter's lock and has just released it, so the stack still shows its caller.
            self._tell_of_standstill(late)
            self._tell_of_its_end(late)

    def _tell_of_standstill(self, seconds: float) -> None:
        assert self._loop is not None
        attempt = attempt_of(asyncio.current_task(self._loop))
        where = "" if attempt is None else f", in {label(attempt)}"
        message = "worker %s: the event loop has been blocked for %.2f s%s"
        stack = of_thread(self._loop_thread)
        log.log(logging.WARNING, message, self._worker_id, seconds, where, below=stack)

    def _tell_of_its_end(self, seconds: float) -> None:
        log.warning("worker %s: the event loop runs again after %.2f s", self._worker_id, seconds)

    def _look_at_handlers(self) -> None:
        now, since = monotonic(), self._since
        self._since = {
            attempt: since.get(attempt, now)
            for attempt in running_attempts()
            if attempt.state in OPEN and attempt.task is not None and attempt.task.get_loop() is self._loop
        }
        for attempt, seen_at in self._since.items():
            if now - seen_at >= self._slow_s:
                self._since[attempt] = float("inf")
                message = "%s, is slow: it has run for %.1f s"
                stack = of_attempt(attempt)
                log.log(logging.WARNING, message, label(attempt), now - seen_at, below=stack)


def _checked(name: str, seconds: float) -> float:
    if not (seconds == 0 or _SHORTEST_S <= seconds <= 86_400):
        raise UsageError(f"{name} must be 0 or {_SHORTEST_S} to 86,400 seconds, got {seconds!r}")
    return seconds
