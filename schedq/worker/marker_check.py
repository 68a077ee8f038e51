"""Checks which idle queues have wake markers, before slots that became free go to other queues."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from schedq.connection.async_connection import cancelled
from schedq.errors import SchedqError
from schedq.model.times import monotonic
from schedq.transitions import Operation
from schedq.worker.fetcher import Fetcher

_LONGEST_S: Final = 0.1
"""Seconds that slots wait for a server that does not respond."""
_REST_S: Final = 0.01
"""Minimum seconds between two checks: one for each of a thousand short jobs a second would halve their number."""
_MOST_PLACES: Final = 10
_LONG_REST_S: Final = 0.05
"""The same if a check takes a command for each of more than `_MOST_PLACES` places."""


class MarkerCheck:
    """Marks queues with wake markers as ready, and then calls back.

    While all slots are in use, nothing waits for the markers of idle queues. When a slot becomes free, a job of such a
    queue may have to start first. One check serves all slots that became free before it began. A slot that becomes free
    soon after a check is used without another one.

    Args:
        places: wake key → fetcher, for the queues at each server, or on a cluster for each queue.
    """

    def __init__(self, places: Sequence[Mapping[str, Fetcher]]) -> None:
        self._places = [_Place(fetchers) for fetchers in places]
        self._idle: set[object] = set()
        self._then: list[Callable[[], None]] = []
        self._asked = asyncio.Event()
        self._rest_s = _LONG_REST_S if len(places) > _MOST_PLACES else _REST_S
        self._asked_at = -math.inf

    def ask(self, idle: Sequence[object], then: Callable[[], None]) -> None:
        """Check these fetchers' queues soon; `then` is called when those with wake markers are ready, in any case."""
        if not self._asked.is_set():
            if monotonic() - self._asked_at < self._rest_s:
                then()
                return
            self._asked_at = monotonic()
            self._asked.set()
        self._idle.update(idle)
        self._then.append(then)

    async def run(self) -> None:
        """Check whenever asked, until cancelled."""
        try:
            while True:
                await self._asked.wait()
                self._asked.clear()
                idle, self._idle = self._idle, set()
                then, self._then = self._then, []
                try:
                    await self._check(idle)
                finally:
                    for call in then:
                        call()
        finally:
            for call in self._then:
                call()
            await cancelled(*(place.checking for place in self._places if place.checking is not None))

    async def _check(self, idle: set[object]) -> None:
        checks = [check for place in self._places if (check := place.check(idle)) is not None]
        if checks:
            await asyncio.wait(checks, timeout=_LONGEST_S)


class _Place:
    """The wake markers that one command can look for.

    Attributes:
        checking: the last check.
    """

    def __init__(self, fetchers: Mapping[str, Fetcher]) -> None:
        self._fetchers = fetchers
        self.checking: asyncio.Task[None] | None = None

    def check(self, idle: set[object]) -> asyncio.Task[None] | None:
        """Begin a check of these fetchers' queues; None if there is nothing to check, or the last one has not ended."""
        keys = [key for key, fetcher in self._fetchers.items() if fetcher in idle]
        if not keys or (self.checking is not None and not self.checking.done()):
            return None
        self.checking = asyncio.create_task(self._check(keys))
        return self.checking

    async def _check(self, keys: Sequence[str]) -> None:
        client = self._fetchers[keys[0]].client
        with suppress(SchedqError):
            if not await client.ask(_existing(*keys)):
                return
            for key, found in zip(keys, await client.execute([_existing(key) for key in keys]), strict=True):
                if found:
                    self._fetchers[key].look()


def _existing(*keys: str) -> Operation[int]:
    return Operation("look", None, (), ("EXISTS", *keys), int)
