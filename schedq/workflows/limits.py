"""Limits that an application has put around its code, such as `asyncio.timeout`.

They are timers of the event loop that cancel a task. A run that is suspended has no task, so they would have no effect.
Event loops that are not asyncio's own do not tell their timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any


def nearest_limit_ms(tasks: Sequence[asyncio.Task[Any] | None]) -> float | None:
    """How long until the first of these tasks is cancelled by a timer; None if there is none."""
    loop = asyncio.get_running_loop()
    found: list[float] = []
    for timer in getattr(loop, "_scheduled", ()):
        owner = getattr(getattr(timer, "_callback", None), "__self__", None)
        if not timer.cancelled() and owner is not None and _task_of(owner) in tasks:
            found.append(max(0.0, (timer.when() - loop.time()) * 1000))
    return min(found, default=None)


def _task_of(owner: object) -> object:
    """The task that a timer's owner cancels; the owner itself if it cancels none."""
    if isinstance(owner, asyncio.Timeout):
        return getattr(owner, "_task", owner)
    return getattr(owner, "_host_task", owner)  # a cancel scope of anyio
