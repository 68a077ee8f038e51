"""Fires schedules; the leading promoter runs it."""

from __future__ import annotations

from typing import Final

from schedq.background.reconnecting_client import LogThrottle, ReconnectingClient
from schedq.errors import SchedqError
from schedq.logs import log
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.schedules.fire import DefinitionCache, Fired, fire_due
from schedq.transitions import promote

_TICK_S: Final = 1.0
"""Seconds until a schedule is checked again that waits for its last run, or has caught up enough for one tick."""


class Scheduler:
    """Fires the due schedules of one queue when the promoter has found a due slot.

    Slots that became due since the last check come first. Older slots had to wait, for example for the last run to end.
    They are checked once a second, in turns if there are many, so that they do not delay other schedules.

    Attributes:
        settings: the settings to use from now on.
    """

    def __init__(self, settings: Settings, client: ReconnectingClient) -> None:
        self.settings = settings
        self._client = client
        self._cache = DefinitionCache()
        self._rests_until: dict[str, float] = {}
        self._seen_ms: int | None = None  # slots up to this time were checked at least once
        self._offset = 0  # among the slots after that time
        self._turn_offset = 0  # among all slots
        self._turn_at = 0.0
        self._throttle = LogThrottle()

    async def look(self, promotion: promote.Promotion) -> tuple[bool, int | None]:
        """Fire due schedules; return whether to check again at once, and the time of the next slot, or None.

        A rejection by Redis, such as when its memory is full, is logged; the slots stay due.
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
            self._throttle.log(f"queue {self.settings.name}: schedules", error)
            return False, None
        return is_again, found.upcoming_ms

    async def _fire(self, after_ms: int | None, offset: int) -> Fired:
        now = monotonic()
        self._rests_until = {name: until for name, until in self._rests_until.items() if until > now}
        trips = fire_due(self.settings, self._cache, self._rests_until, after_ms=after_ms, offset=offset)
        fired = await self._client.drive(trips)
        for schedule_id, reason in fired.disabled:
            log.error("schedule %s: can't be fired: %s", schedule_id, reason)
        if fired.jobs:
            log.debug("queue %s: %d slots fired", self.settings.name, fired.jobs)
        self._rests_until |= dict.fromkeys(fired.deferred, monotonic() + _TICK_S)
        return fired
