"""Limits that an application has put around its code, such as `asyncio.timeout`.

They are timers of the event loop that cancel a task. A run that is suspended has no task, so they would have no effect.
asyncio's own event loops list their timers. Of others, such as uvloop's, the timers are noted when they are set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Final
from weakref import WeakKeyDictionary

_noted: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Any, asyncio.TimerHandle]]] = (
    WeakKeyDictionary()
)
"""The timers of loops that do not list theirs, by the objects whose methods they call."""


def watched(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Note the limits that are set on this loop from now on, if it does not list its timers; return the loop."""
    if hasattr(loop, "_scheduled") or loop in _noted:
        return loop
    timers, plain = WeakKeyDictionary[Any, asyncio.TimerHandle](), loop.call_at

    def call_at(
        when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = plain(when, callback, *args, context=context)
        owner = getattr(callback, "__self__", None)
        if owner is not None and _task_of(owner) is not owner:
            timers[owner] = timer
        return timer

    with suppress(AttributeError, TypeError):  # a loop that can't be changed: its limits are not seen
        loop.call_at = call_at  # type: ignore[assignment]
        _noted[loop] = timers
    return loop


def nearest_limit_ms(tasks: Sequence[asyncio.Task[Any] | None]) -> float | None:
    """How long until the first of these tasks is cancelled by a timer; None if there is none."""
    loop = asyncio.get_running_loop()
    found = [
        max(0.0, (timer.when() - loop.time()) * 1000) for owner, timer in _timers(loop) if _task_of(owner) in tasks
    ]
    return min(found, default=None)


def _timers(loop: asyncio.AbstractEventLoop) -> Iterator[tuple[object, asyncio.TimerHandle]]:
    """The timers that are set and call a method, and whose."""
    for timer in getattr(loop, "_scheduled", ()):
        owner = getattr(getattr(timer, "_callback", None), "__self__", None)
        if owner is not None and not timer.cancelled():
            yield owner, timer
    for owner, timer in list(_noted.get(loop, {}).items()):
        if not timer.cancelled() and timer.when() > loop.time():
            yield owner, timer


def _task_of(owner: object) -> object:
    """The task that a timer's owner cancels; the owner itself if it cancels none."""
    if isinstance(owner, asyncio.Timeout):
        return getattr(owner, "_task", owner)
    return getattr(owner, "_host_task", owner)  # a cancel scope of anyio
