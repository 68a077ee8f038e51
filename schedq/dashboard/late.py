"""What takes too long for a page: it is made in the background, and pages show the last result."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_MOST_KEPT: Final = 16
_REST_FACTOR: Final = 4
"""A result is kept at least this many times as long as making it took."""
log: Final = logging.getLogger("schedq.dashboard")


@dataclass(slots=True)
class _Entry:
    result: Any = None
    until: float = 0.0
    task: asyncio.Task[None] | None = None


class Late:
    """Results by key. They are made in a thread, one at a time, and only while pages ask for them."""

    def __init__(self) -> None:
        self._entries: OrderedDict[object, _Entry] = OrderedDict()
        self._turn = asyncio.Lock()

    def get(self, key: object, make: Callable[[], Any], fresh_s: float) -> Any:
        """The last result, or None before the first; starts making a new one if it is older than `fresh_s` seconds."""
        entry = self._entries.setdefault(key, _Entry())
        self._entries.move_to_end(key)
        if entry.task is None and time.monotonic() >= entry.until:
            entry.task = asyncio.get_running_loop().create_task(self._make(entry, make, fresh_s))
        while len(self._entries) > _MOST_KEPT:
            self._cancel(self._entries.popitem(last=False)[1])
        return entry.result

    def close(self) -> None:
        """Make nothing more."""
        for entry in self._entries.values():
            self._cancel(entry)
        self._entries.clear()

    async def _make(self, entry: _Entry, make: Callable[[], Any], fresh_s: float) -> None:
        async with self._turn:
            began = time.monotonic()
            try:
                entry.result = await asyncio.to_thread(make)
            except Exception:  # a page shows the rest
                log.exception("a part of a page can't be made")
            now = time.monotonic()
            entry.until, entry.task = now + max(fresh_s, _REST_FACTOR * (now - began)), None

    def _cancel(self, entry: _Entry) -> None:
        if entry.task is not None:
            entry.task.cancel()
