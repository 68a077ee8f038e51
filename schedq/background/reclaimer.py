"""Takes back the jobs of dead workers; the leading promoter runs it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

from schedq.background.observers import NO_OBSERVERS, Observers
from schedq.background.reconnecting_client import ReconnectingClient
from schedq.logs import log
from schedq.model.settings import HIGH_MEMORY_HISTORY, PROMISED_S, Settings
from schedq.model.times import monotonic
from schedq.observer import Observer
from schedq.transitions import promote, reclaim, requeue

_JUMP_MS: Final = 1000
_ROUTINE_S: Final = 10
_MORE_S: Final = 1
"""Seconds until histories are trimmed again if the passes of one sweep were not enough."""
_MOST_PASSES: Final = 20
_LATE: Final = 0.75
"""Renewal intervals by which a check may be late."""
_LATEST_S: Final = 2.0
"""Seconds by which a live worker's renewal may be late; at most a quarter of an interval. Its connection may have
broken unnoticed, so that the renewal is sent again, and its process may be busy."""
_AGAIN_S: Final = 60.0
"""Seconds between two warnings about results that are deleted early."""
_UNWATCHED_S: Final = 2.0
"""Seconds between two checks in which Redis's clock may have jumped forth and back. The leader checks every second, the
first standby at least every second and a half."""
_RESUMED_S: Final = 1.0
"""Seconds in which other processes that were stopped together with this one have begun to renew overdue leases."""


class Reclaimer:
    """Sweeps one queue when a lease has ended, when a claimed job has no lease, and every 10 s.

    In some situations leases may have ended although their workers are alive: before the first check of this process,
    after an outage or a slow reply of Redis, after a jump of Redis's clock, and after a time in which no check would
    have noticed a jump, as when a standby takes over. The reclaimer then rests for one renewal interval plus the
    longest delay of a renewal, so that live workers renew first and only dead ones lose their jobs.

    If this process was stopped for a while, others on its machine may have been stopped as well. They renew as soon as
    they continue, so this rest is shorter. A process that is stopped again and again, for example by C code that holds
    the interpreter's lock, sweeps once after each rest, or it would never sweep.

    Args:
        refresh: awaited before each sweep, if the settings may be outdated; it may change them.
        observers: notified of jobs that were taken back.

    Attributes:
        settings: the settings to use from now on.
    """

    def __init__(
        self,
        settings: Settings,
        client: ReconnectingClient,
        refresh: Callable[[], Awaitable[None]] | None = None,
        observers: Observers = NO_OBSERVERS,
    ) -> None:
        self.settings = settings
        self._observers = observers
        self._refresh = refresh
        self._client = client
        self._rested_from = monotonic()
        self._resumed_at = -math.inf
        self._may_rest = True  # since the last sweep it has not rested because this process was stopped
        self._losses = client.availability.losses
        self._last: tuple[int, float, float] | None = None
        self._routine_at = self._swept_at = monotonic()
        self._offset = -1
        self._shorten = False
        self._retention = Retention()

    def notice(self, now_ms: int, asked_at: float, late_s: float = 0.0) -> None:
        """Detect whether Redis was unavailable or slow, its clock jumped, or this process was stopped.

        Args:
            now_ms: the time that Redis's clock has just shown.
            asked_at: when the request was sent, on the monotonic clock.
            late_s: how many seconds later than planned the request was sent.
        """
        answered_at = monotonic()
        last, self._last = self._last, (now_ms, asked_at, answered_at)
        gap_s = 0.0 if last is None else asked_at - last[2]
        was_unwatched = gap_s - max(0.0, late_s) > max(_UNWATCHED_S, _LATE * self.settings.renewal_s)
        if last is None or was_unwatched or self._losses != self._client.availability.losses:
            self._losses = self._client.availability.losses
            self._rested_from = answered_at
        self._notice_own(late_s, gap_s, answered_at - asked_at, answered_at)
        if last is None or self.settings.clock is not None:
            return
        passed_ms = now_ms - last[0]
        # It is unknown when exactly Redis read its clock. Time that the reply spent waiting, for example for a handler
        # that blocked the loop, is not a jump.
        least_ms, most_ms = (asked_at - last[2]) * 1000, (answered_at - last[1]) * 1000
        jump_ms = min(0.0, passed_ms - least_ms) + max(0.0, passed_ms - most_ms)
        if abs(jump_ms) > _JUMP_MS:
            log.warning("queue %s: Redis's clock jumped by %+.1f s", self.settings.name, jump_ms / 1000)
            self._rested_from = answered_at
            self._shorten = jump_ms < 0

    def _notice_own(self, late_s: float, gap_s: float, took_s: float, now: float) -> None:
        """Detect whether this process was stopped, or the reply took long, which this process may also have caused."""
        renewal_s = self.settings.renewal_s
        was_slow = took_s > renewal_s
        if not (was_slow or self._stood_still(late_s, gap_s)):
            self._may_rest = self._may_rest or now >= self._rests_until()
        elif self._may_rest:
            self._may_rest = False
            self._resumed_at = now
            if was_slow or late_s > 3 * renewal_s:  # in that time the leader did not notice jumps of Redis's clock
                self._rested_from = now

    def _rests_until(self) -> float:
        """Return the time by which all live workers must have renewed."""
        renewal_s = self.settings.renewal_s
        until = max(self._rested_from + renewal_s, self._resumed_at + min(renewal_s, _RESUMED_S))
        return until + min(renewal_s / 4, _LATEST_S)

    def _stood_still(self, late_s: float, gap_s: float) -> bool:
        """Whether this process was stopped since its last check for so long that a lease may have ended.

        If a process renewed on time and was then stopped until a lease ended, it was stopped for two thirds of the
        lease. If leases are longer than the interval between checks, that makes a check late. If they are shorter, only
        the gap between checks shows it.
        """
        renewal_s = self.settings.renewal_s
        return late_s > _LATE * renewal_s or (renewal_s < 1 and gap_s > 2 * _LATE * renewal_s)

    def put_off(self, seconds: float) -> None:
        """Have at least this many seconds between two sweeps for which there is no reason."""
        self._routine_at = max(self._routine_at, self._swept_at + seconds)

    async def look(self, promotion: promote.Promotion) -> float | None:
        """Sweep if there is a reason; return in how many seconds there will be one, or None if unknown."""
        now = monotonic()
        renewal_s = self.settings.renewal_s
        # While the promoter rests there is no lease, but histories may have to be trimmed.
        if not promotion.wait_ms and now < (rests_until := self._rests_until()):
            return min(rests_until - now, renewal_s)  # a longer sleep would look as if the process was stopped
        self._may_rest = True
        is_routine = now >= self._routine_at
        has_ended = promotion.first_lease_end_ms is not None and promotion.first_lease_end_ms <= promotion.now_ms
        is_due = has_ended or is_routine or promotion.unleased > 0 or self._shorten
        if is_due and await self._sweep(promotion.now_ms, is_routine=is_routine):
            return 0.0  # it is unknown which lease ends next
        if promotion.first_lease_end_ms is None or has_ended:
            return None
        return (promotion.first_lease_end_ms - promotion.now_ms) / 1000

    async def _sweep(self, now_ms: int, *, is_routine: bool) -> bool:
        """Take back jobs whose leases had ended by `now_ms`; return whether there were any."""
        if self._refresh is not None:
            await self._refresh()
        if is_routine:
            self._swept_at = monotonic()
            self._routine_at = self._swept_at + _ROUTINE_S
            self._offset = max(0, self._offset)
        took_back = False
        for _ in range(_MOST_PASSES):
            trips = reclaim.sweep(self.settings, self._offset, shorten=self._shorten, looked_at_ms=now_ms)
            sweep = await self._client.drive(trips)
            self._offset = sweep.next_offset
            self._shorten = False
            for job_id in sweep.taken_back:
                fields = {"job_id": job_id, "queue": self.settings.name}
                if job_id in sweep.failed:
                    log.error("job %s: lease ended and no attempt is left, failed for good", job_id, extra=fields)
                else:
                    log.warning("job %s: lease ended, taken back", job_id, extra=fields)
            if sweep.to_undo:
                text = (
                    "queue %s: runs were ended without undoing their steps, by an earlier release; they do it now: %s"
                )
                log.warning(text, self.settings.name, ", ".join(sweep.to_undo), extra={"queue": self.settings.name})
                await self._client.drive(requeue.undo_these(self.settings, sweep.to_undo))
            if sweep.taken_back:
                took_back = True
                self._observers.notify(Observer.jobs_reclaimed, self.settings.name, sweep.taken_back)
            if not sweep.has_more:
                break
        else:
            self._routine_at = monotonic() + _MORE_S
        self._retention.notice(self.settings, sweep)
        return took_back


class Retention:
    """Watches whether one queue's completed jobs are deleted early; the sweeping process reports each sweep to it."""

    def __init__(self) -> None:
        self._trimmed = 0
        self._said_at = -math.inf

    def notice(self, settings: Settings, sweep: reclaim.Sweep) -> None:
        """Warn if jobs were deleted since the last warning, so early that callers may miss their results."""
        is_early = sweep.kept_ms < 1000 * min(settings.completed_ttl, PROMISED_S)
        has_grown = sweep.trimmed > self._trimmed
        if not has_grown or not is_early or monotonic() - self._said_at < _AGAIN_S:
            return
        self._trimmed, self._said_at = sweep.trimmed, monotonic()
        log.warning(
            "queue %s: results are deleted after %.0f s, before completed_ttl (%g s) has passed, %s so far: %s",
            settings.name,
            sweep.kept_ms / 1000,
            settings.completed_ttl,
            f"{sweep.trimmed:,}",
            _way_out(settings, sweep),
            extra={"queue": settings.name},
        )


def _way_out(settings: Settings, sweep: reclaim.Sweep) -> str:
    if sweep.is_memory_high and settings.completed_history > HIGH_MEMORY_HISTORY:
        return (
            f"Redis uses more than 80 % of maxmemory, so the queue keeps {HIGH_MEMORY_HISTORY:,} results; "
            "raise maxmemory, or lower completed_ttl"
        )
    return (
        f"the queue keeps {settings.completed_history:,} results (completed_history); "
        "raise that, or lower completed_ttl if results are not needed for that long"
    )
