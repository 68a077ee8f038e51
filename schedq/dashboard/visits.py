"""The queues that are looked at: opened by name when a page asks, shared by all browsers, closed when nobody looks."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from schedq.aio import AsyncQueue
from schedq.errors import Conflict

RETRY_S: Final = 1.0
"""Seconds for which a Redis that does not answer is asked before a page says so."""
_MOST_OPEN: Final = 32
_IDLE_S: Final = 60.0
_LEARN_S: Final = 30.0
_NOBODY: Final = "schedq"
"""Name of a queue that is only there to ask about others."""


@dataclass(slots=True)
class _Visit:
    queue: AsyncQueue
    users: int = 0
    used_at: float = 0.0
    learned_at: float = -_LEARN_S


class Visits:
    """Opens queues of one Redis, one connection each, and keeps a bounded number of them open."""

    def __init__(self, redis: object) -> None:
        self._redis = redis
        self._open: OrderedDict[str, _Visit] = OrderedDict()
        self.label = AsyncQueue.visiting(_NOBODY, redis=redis).address.label

    @asynccontextmanager
    async def at(self, name: str) -> AsyncIterator[AsyncQueue]:
        """The queue of this name, by the settings that its workers wrote down.

        Raises:
            UsageError: the name can't be one.
            StoreUnavailable: Redis does not answer.
        """
        visit = self._open.get(name)
        if visit is None:
            visit = self._open[name] = _Visit(AsyncQueue.visiting(name, redis=self._redis, retry_for=RETRY_S))
        self._open.move_to_end(name)
        visit.users += 1
        try:
            await self._learn(visit)
            yield visit.queue
        finally:
            visit.users -= 1
            visit.used_at = time.monotonic()
            await self._tidy()

    async def names(self) -> list[str]:
        """The names of all queues that schedq clients have used, in order."""
        async with self.at(_NOBODY) as queue:
            return await queue.list_queues()

    async def aclose(self) -> None:
        """Close all connections."""
        visits = [*self._open.values()]
        self._open.clear()
        for visit in visits:
            await visit.queue.aclose()

    async def _learn(self, visit: _Visit) -> None:
        now = time.monotonic()
        if visit.queue.name == _NOBODY or now - visit.learned_at < _LEARN_S:
            return
        with suppress(Conflict):  # damage to the settings must not keep an operator from the queue
            await visit.queue.learn_settings()
        visit.learned_at = now

    async def _tidy(self) -> None:
        """Close what nobody has used for a while, and the longest unused of too many."""
        past = time.monotonic() - _IDLE_S
        idle = [name for name, visit in self._open.items() if not visit.users]
        excess = max(0, len(self._open) - _MOST_OPEN)
        for name in [name for nth, name in enumerate(idle) if nth < excess or self._open[name].used_at < past]:
            await self._open.pop(name).queue.aclose()
