"""Where threads and tasks are and which jobs they run: for warnings, and for who sends SIGUSR1.

Nothing of this costs anything until somebody asks. Any thread may ask, also while the event loop stands still.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final
from weakref import WeakSet

from schedq.escaping import harmless
from schedq.logger import log
from schedq.worker.held import Attempt
from schedq.worker.runner import under_way

loops: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()
"""The event loops whose tasks are told of."""


def tell(level: int, message: str, *args: object, stack: str) -> None:
    """Log a sentence with a stack under it, as one entry."""
    log.log(level, message, *args, below=stack)


def label(attempt: Attempt) -> str:
    """Names an attempt for people."""
    return f"job {harmless(attempt.job.id)}: {harmless(attempt.name) or 'its handler'}, attempt {attempt.job.attempts}"


def attempt_of(task: asyncio.Task[Any] | None) -> Attempt | None:
    """The attempt that a task belongs to; a task that a handler has started is known from Python 3.12 on."""
    if task is None:
        return None
    inherited: list[object] = []
    if sys.version_info >= (3, 12):
        inherited += task.get_context().values()
    for attempt in under_way():
        if attempt.task is task or (attempt.current is not None and any(it is attempt.current for it in inherited)):
            return attempt
    return None


def of_thread(thread_id: int) -> str:
    """The stack of a thread, outermost call first; '' if the thread has ended."""
    frame = sys._current_frames().get(thread_id)
    return "" if frame is None else "".join(traceback.format_stack(frame))


def of_task(task: asyncio.Task[Any]) -> str:
    """Where a waiting task is: its coroutine, the one that this awaits, and so on."""
    return "".join(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in _awaited(task)).format())


def of_attempt(attempt: Attempt) -> str:
    """Where a handler is: in its thread, or where its task waits."""
    if attempt.thread_id is not None:
        return of_thread(attempt.thread_id)
    return "" if attempt.task is None else of_task(attempt.task)


def report() -> str:
    """The stacks of all threads and tasks of this process, each with the job that it runs."""
    by_thread = {attempt.thread_id: attempt for attempt in under_way()}
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
            where = "  runs now, on the thread of its event loop\n" if task is running else of_task(task)
            parts.append(f"task {harmless(task.get_name())}{runs}\n{where}")
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


def _age(task: asyncio.Task[Any]) -> tuple[int, str]:
    """Tasks by their numbers, where they have nothing but that for a name."""
    number = re.fullmatch(r"Task-(\d+)", name := task.get_name())
    return (int(number[1]) if number else 0, name)
