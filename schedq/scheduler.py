"""Fires schedules: the holder of the promoter lease runs it; and writes those of an application's code, in workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.errors import SchedqError
from schedq.link import Complaint, Link, steadily
from schedq.logger import log
from schedq.operations import upkeep
from schedq.operations.firing import Fired, Memory, fire_due
from schedq.operations.schedules import PAGE, Registration, register_again, replaced, restore, upsert_unless_superseded
from schedq.schedule import Definition
from schedq.settings import Settings

_TICK_S: Final = 1.0
"""Seconds until a schedule is looked at again that waits for its last run, or has caught up enough for one tick."""
_LOOK_S: Final = 1.0


class Scheduler:
    """Fires what is due in one queue, when a promoter's look has found a slot that is.

    Slots that came due since the last look go first. Older ones are those that had to wait, as for the last run
    to end: they are looked at once a second, in turn if they are many, so that they hold up nobody else.
    """

    def __init__(self, settings: Settings, link: Link) -> None:
        self._settings = settings
        self._link = link
        self._memory = Memory()
        self._rests_until: dict[str, float] = {}
        self._seen_ms: int | None = None  # slots up to here were looked at once at least
        self._offset = 0  # among those after
        self._turn_offset = 0  # among all
        self._turn_at = 0.0
        self._complaint = Complaint()

    def use(self, settings: Settings) -> None:
        """Go by other settings from now on."""
        self._settings = settings

    async def look(self, promotion: upkeep.Promotion) -> tuple[bool, int | None]:
        """Fire what is due; answers whether to look again at once, and the next slot, or None.

        What Redis refuses, as with its memory full, is said; the slots stay due.
        """
        if promotion.next_slot_ms is None or promotion.next_slot_ms > promotion.now_ms:
            return False, promotion.next_slot_ms
        if self._seen_ms is not None and promotion.now_ms < self._seen_ms:  # Redis's clock went back
            self._seen_ms, self._offset = None, 0
        has_old = self._seen_ms is not None and promotion.next_slot_ms <= self._seen_ms
        try:
            found = await self._fire(self._seen_ms, self._offset)
            self._offset = found.offset
            if not found.has_more:
                self._seen_ms = found.began_ms
            is_again = found.moved > 0 or found.has_more
            if has_old and monotonic() >= self._turn_at:
                turn = await self._fire(None, self._turn_offset)
                self._turn_offset, self._turn_at = turn.offset, monotonic() + _TICK_S
                is_again = is_again or turn.moved > 0
        except SchedqError as error:
            self._complaint.say(f"queue {self._settings.name}: schedules", error)
            return False, None
        return is_again, found.upcoming_ms

    async def _fire(self, after_ms: int | None, offset: int) -> Fired:
        """One tick."""
        now = monotonic()
        self._rests_until = {name: until for name, until in self._rests_until.items() if until > now}
        flow = fire_due(self._settings, self._memory, self._rests_until, after_ms=after_ms, offset=offset)
        fired = await self._link.drive(flow)
        for schedule_id, reason in fired.parked:
            log.error("schedule %s: can't be fired: %s", schedule_id, reason)
        if fired.jobs:
            log.debug("queue %s: %d slots fired", self._settings.name, fired.jobs)
        self._rests_until |= dict.fromkeys(fired.resting, monotonic() + _TICK_S)
        return fired


_TRY_S: Final = 10.0
"""Seconds between two looks whether the workers have gone whose release has replaced what the code has."""
_COMPARE_S: Final = 30.0
"""Seconds between two looks whether others have replaced what the code has."""


class Registrar:
    """Writes the schedules of an application's code when a worker starts, and when Redis was away or lost its data.

    One that live workers of another release have replaced is left alone until these have gone. And while it lives it
    looks whether its own are replaced, and says so.
    """

    def __init__(self, queue: Application, link: Link) -> None:
        self._queue = queue
        self._link = link
        self._replaced = 0
        self._written_for = (-1, -1)
        self._superseded: frozenset[str] = frozenset()
        self._told: dict[str, str] = {}
        self._compares_at = self._tries_at = 0.0

    def again(self) -> None:
        """Write them again, soon: Redis holds other data than before."""
        self._replaced += 1

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            UsageError: Redis refuses for a reason that does not pass by itself.
        """
        await steadily(f"queue {self._queue.name}: schedules", self._look)

    async def _look(self) -> float:
        reasons = self._link.outage.losses, self._replaced
        if self._written_for != reasons:
            registry = self._queue.registry
            found = await self._link.drive(register_again(self._queue.settings, registry.schedules, registry.owners))
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
        return _LOOK_S

    async def _try_again(self) -> None:
        """Write those that were superseded, if the workers that have what replaced them are gone."""
        waiting = [it for it in self._queue.registry.schedules if it.id in self._superseded]
        # One that was deleted meanwhile stays so, until a worker starts.
        there = {mine.id for mine, _, _ in await self._link.drive(replaced(self._queue.settings, waiting))}
        waiting = [it for it in waiting if it.id in there]
        words = await self._link.drive(upsert_unless_superseded(self._queue.settings, waiting))
        for definition, word in zip(waiting, words, strict=True):
            if word in ("created", "changed"):
                text = "schedule %s: no live worker has what had replaced it; written again: %s"
                log.warning(text, definition.id, definition.words())
        still = (it.id for it, word in zip(waiting, words, strict=True) if word == "superseded")
        self._superseded = frozenset(still)

    async def _restore(self, own: Sequence[Definition]) -> None:
        """Write those again that a worker of an older release of schedq, gone since, had put back."""
        for first in range(0, len(own), PAGE):
            for mine in await self._link.drive(restore(self._queue.settings, own[first : first + PAGE])):
                text = "schedule %s: a worker of an older release of schedq had put a former definition back; "
                log.warning(text + "written again: %s", mine.id, mine.words())

    async def _compare(self) -> None:
        """Say, once for each, what stands in place of a definition of this code."""
        own = self._queue.registry.schedules
        await self._restore(own)
        found = await self._link.drive(replaced(self._queue.settings, own)) if own else []
        told = {mine.id: digest for mine, digest, _ in found}
        for mine, digest, words in found:
            if mine.id not in self._superseded and self._told.get(mine.id) != digest:
                log.warning(
                    "schedule %s: replaced by another release or by hand: now %s (%s), in this worker's code %s (%s); "
                    "a higher version= in the newer code decides",
                    mine.id,
                    words,
                    digest,
                    mine.words(),
                    mine.digest,
                )
        self._told = told


def say(queue: str, found: Registration) -> None:
    """Log what is worth knowing of a registration."""
    for ids, words in ((found.created, "new"), (found.changed, "changed")):
        for schedule_id in ids:
            log.info("schedule %s: %s", schedule_id, words)
    for schedule_id in found.superseded:
        log.warning(
            "schedule %s: this worker has an older definition, which live workers of another release have replaced; "
            "left as it is until they are gone (a higher version= decides at once)",
            schedule_id,
        )
    for schedule_id in found.kept:
        log.warning("schedule %s: a higher version of the application wrote it; left as it is", schedule_id)
    for schedule_id in found.missing:
        log.warning(
            "schedule %s: no longer in the code, and still fired; prune or delete it (queue %s)", schedule_id, queue
        )
