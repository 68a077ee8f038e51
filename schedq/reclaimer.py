"""Takes back what dead workers held; the holder of the promoter lease runs it."""

from __future__ import annotations

import logging
from typing import Final

from schedq.clocks import monotonic
from schedq.link import Link
from schedq.operations import upkeep
from schedq.settings import Settings

log: Final = logging.getLogger("schedq")
_JUMP_MS: Final = 1000
_ROUTINE_S: Final = 10
_MOST_PASSES: Final = 20


class Reclaimer:
    """Sweeps one queue when a lease has ended, when a claim has none, and every 10 s.

    After its own start, after a loss of Redis, and when Redis's clock has jumped, it waits for one renewal interval:
    live workers then renew first, and only the dead lose their jobs.
    """

    def __init__(self, settings: Settings, link: Link) -> None:
        self._settings = settings
        self._link = link
        self._idle_until = monotonic() + settings.renewal_s
        self._losses = link.outage.losses
        self._last: tuple[int, float] | None = None
        self._routine_at = monotonic()
        self._offset = -1
        self._shorten = False

    def use(self, settings: Settings) -> None:
        """Go by other settings from now on."""
        self._settings = settings

    async def look(self, promotion: upkeep.Promotion) -> float | None:
        """Sweep if there is reason to; answers in how many seconds there will be one, or None."""
        now = monotonic()
        self._notice(promotion.now_ms, now)
        if now < self._idle_until:
            return self._idle_until - now
        is_routine = now >= self._routine_at
        has_ended = promotion.first_lease_end_ms is not None and promotion.first_lease_end_ms <= promotion.now_ms
        if has_ended or is_routine or promotion.unleased > 0 or self._shorten:
            await self._sweep(is_routine=is_routine)
        if promotion.first_lease_end_ms is None or has_ended:
            return None
        return (promotion.first_lease_end_ms - promotion.now_ms) / 1000

    async def _sweep(self, *, is_routine: bool) -> None:
        if is_routine:
            self._routine_at = monotonic() + _ROUTINE_S
            self._offset = max(0, self._offset)
        for _ in range(_MOST_PASSES):
            sweep = await self._link.drive(upkeep.sweep(self._settings, self._offset, shorten=self._shorten))
            self._offset = sweep.next_offset
            self._shorten = False
            for job_id in sweep.taken_back:
                log.warning("job %s: lease ended, taken back", job_id)
            if not sweep.has_more:
                return

    def _notice(self, now_ms: int, now: float) -> None:
        """Compare Redis's clock with ours, and see whether Redis was away."""
        if self._losses != self._link.outage.losses:
            self._losses = self._link.outage.losses
            self._idle_until = now + self._settings.renewal_s
            self._last = None
        last, self._last = self._last, (now_ms, now)
        if last is None or self._settings.clock is not None:
            return
        jump_ms = (now_ms - last[0]) - (now - last[1]) * 1000
        if abs(jump_ms) > _JUMP_MS:
            log.warning("queue %s: Redis's clock jumped by %+.1f s", self._settings.name, jump_ms / 1000)
            self._idle_until = now + self._settings.renewal_s
            self._shorten = jump_ms < 0
