"""A pool of the queues that pages show: opened by name, shared by all pages, closed when idle.

What takes too long for a page is made in the background, and pages show the last result.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from schedq.errors import Conflict
from schedq.model.settings import NO_QUEUE, RETRY_S
from schedq.queue.queue import AsyncQueue

_MOST_OPEN: Final = 32
_IDLE_S: Final = 60.0
_RELOAD_S: Final = 30.0
_MOST_KEPT: Final = 16
_REST_FACTOR: Final = 4
"""A result is kept at least this many times as long as making it took."""
log: Final = logging.getLogger("schedq.dashboard")


@dataclass(slots=True)
class _PooledQueue:
    queue: AsyncQueue
    users: int = 0
    used_at: float = 0.0
    loaded_at: float = -_RELOAD_S


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


class QueuePool:
    """Opens queues of one Redis, with one connection each, and keeps a bounded number of them open.

    Attributes:
        redis: the Redis, as in `Queue`.
        late: results about its queues that are made in the background.
        label: where it is.
    """

    def __init__(self, redis: object) -> None:
        self.redis = redis
        self.late = Late()
        self._open: OrderedDict[str, _PooledQueue] = OrderedDict()
        self.label = AsyncQueue.for_operator(NO_QUEUE, redis=redis).address.label

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[AsyncQueue]:
        """The queue of this name, with the settings that its workers stored.

        Raises:
            UsageError: the name is invalid.
            StoreUnavailable: Redis does not respond.
        """
        entry = self._open.get(name)
        if entry is None:
            entry = self._open[name] = _PooledQueue(AsyncQueue.for_operator(name, redis=self.redis, retry_for=RETRY_S))
        self._open.move_to_end(name)
        entry.users += 1
        try:
            await self._load_settings(entry)
            yield entry.queue
        finally:
            entry.users -= 1
            entry.used_at = time.monotonic()
            await self._close_idle()

    async def names(self) -> list[str]:
        """The sorted names of all queues that schedq clients have used."""
        async with self.open(NO_QUEUE) as queue:
            return await queue.list_queues()

    async def aclose(self) -> None:
        """Close all connections."""
        self.late.close()
        entries = [*self._open.values()]
        self._open.clear()
        for entry in entries:
            await entry.queue.aclose()

    async def _load_settings(self, entry: _PooledQueue) -> None:
        now = time.monotonic()
        if entry.queue.name == NO_QUEUE or now - entry.loaded_at < _RELOAD_S:
            return
        with suppress(Conflict):  # corrupt settings must not lock an operator out of the queue
            await entry.queue.load_settings()
        entry.loaded_at = now

    async def _close_idle(self) -> None:
        """Close queues unused for a minute and, above the maximum, those unused for longest."""
        past = time.monotonic() - _IDLE_S
        idle = [name for name, entry in self._open.items() if not entry.users]
        excess = max(0, len(self._open) - _MOST_OPEN)
        unused = [name for nth, name in enumerate(idle) if nth < excess or self._open[name].used_at < past]
        closing = [self._open.pop(name) for name in unused]  # at once: other pages open and close queues meanwhile
        for entry in closing:
            await entry.queue.aclose()
