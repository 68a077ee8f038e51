"""Registers the schedules in an application's code; every worker runs it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from schedq.background.reconnecting_client import ReconnectingClient, run_forever
from schedq.logs import log
from schedq.model.times import monotonic
from schedq.queue.queue import QueueBase
from schedq.schedules.definition import Definition
from schedq.schedules.register import PAGE, Registration, register, replaced, restore, upsert_some

_LOOK_S: Final = 1.0
_TRY_S: Final = 10.0
"""Seconds between two checks whether the workers of the release that replaced a schedule of this code are gone."""
_COMPARE_S: Final = 30.0
"""Seconds between two checks whether another release has replaced a schedule of this code."""


class Registrar:
    """Writes the schedules in an application's code when a worker starts, and after Redis was unavailable or lost data.

    A schedule that live workers of another release have replaced is left unchanged until those are gone. While it runs,
    the registrar also checks whether schedules of this code were replaced, and logs it.
    """

    def __init__(self, queue: QueueBase, client: ReconnectingClient) -> None:
        self._queue = queue
        self._client = client
        self._replaced = 0
        self._written_for = (-1, -1)
        self._superseded: frozenset[str] = frozenset()
        self._told: dict[str, str] = {}
        self._compares_at = self._tries_at = 0.0

    def again(self) -> None:
        """Have the schedules written again soon, because Redis now has different data."""
        self._replaced += 1

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            UsageError: Redis rejects a request for a permanent reason.
        """
        await run_forever(f"queue {self._queue.name}: schedules", self._look)

    async def _look(self) -> float:
        reasons = self._client.availability.losses, self._replaced
        if self._written_for != reasons:
            registry = self._queue.registry
            known = self._queue.settings, registry.schedules, registry.owners
            found = await self._client.drive(register(*known, unless_superseded=True))
            say(self._queue.name, found)
            self._superseded = frozenset(found.superseded)
            self._written_for = reasons
            self._compares_at = monotonic() + _COMPARE_S
            self._tries_at = monotonic() + _TRY_S
        elif self._superseded and monotonic() >= self._tries_at:
            self._tries_at = monotonic() + _TRY_S
            await self._try_again()
        if monotonic() >= self._compares_at:
            self._compares_at = monotonic() + _COMPARE_S
            await self._compare()
        return _LOOK_S if self._queue.registry.schedules else _COMPARE_S

    async def _try_again(self) -> None:
        """Write superseded schedules if the workers of the release that replaced them are gone."""
        waiting = [it for it in self._queue.registry.schedules if it.id in self._superseded]
        # A schedule that was deleted in the meantime stays deleted until a worker starts.
        there = {mine.id for mine, _, _ in await self._client.drive(replaced(self._queue.settings, waiting))}
        waiting = [it for it in waiting if it.id in there]
        words = await self._client.drive(upsert_some(self._queue.settings, waiting, unless_superseded=True))
        for definition, word in zip(waiting, words, strict=True):
            if word in ("created", "changed"):
                text = "schedule %s: no live worker has the definition that had replaced it; restored: %s"
                log.warning(text, definition.id, definition.describe())
        still = (it.id for it, word in zip(waiting, words, strict=True) if word == "superseded")
        self._superseded = frozenset(still)

    async def _restore(self, own: Sequence[Definition]) -> None:
        """Restore schedules that a worker with an older release of schedq had replaced by a former definition."""
        for first in range(0, len(own), PAGE):
            for mine in await self._client.drive(restore(self._queue.settings, own[first : first + PAGE])):
                text = "schedule %s: a worker with an older release of schedq had written a former definition; "
                log.warning(text + "restored: %s", mine.id, mine.describe())

    async def _compare(self) -> None:
        """Log schedules of this code that were replaced, once for each replacement."""
        own = self._queue.registry.schedules
        await self._restore(own)
        found = await self._client.drive(replaced(self._queue.settings, own)) if own else []
        told = {mine.id: digest for mine, digest, _ in found}
        for mine, digest, words in found:
            if mine.id not in self._superseded and self._told.get(mine.id) != digest:
                log.warning(
                    "schedule %s: replaced by another release or by hand: now %s (%s), in this worker's code %s (%s); "
                    "set a higher version= in the newer code to make it win",
                    mine.id,
                    words,
                    digest,
                    mine.describe(),
                    mine.digest,
                )
        self._told = told


def say(queue: str, found: Registration) -> None:
    """Log the outcome of a registration."""
    for ids, level, text in (
        (found.created, logging.INFO, "new"),
        (found.changed, logging.INFO, "changed"),
        (
            found.superseded,
            logging.WARNING,
            "this worker has an older definition, which live workers of another release have replaced; "
            "left unchanged until they are gone (a higher version= wins at once)",
        ),
        (found.kept, logging.WARNING, "a higher version of the application wrote it; left unchanged"),
        (
            found.missing,
            logging.WARNING,
            f"no longer in the code, but still fired; prune or delete it (queue {queue})",
        ),
    ):
        for schedule_id in ids:
            log.log(level, "schedule %s: %s", schedule_id, text)
