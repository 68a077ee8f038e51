"""What is due when: delayed jobs and the slots of schedules, counted by the minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from schedq.errors import Conflict, UsageError
from schedq.instants import Duration, duration_ms
from schedq.job import score_ms, whole
from schedq.operations import Flow, Operation, firm
from schedq.operations.firing import read
from schedq.operations.upcoming import MINUTE_MS, Standing, slots_by_minute
from schedq.operations.views import stats
from schedq.schedule import Definition
from schedq.settings import Settings

LONGEST_DAYS: Final = 31
MOST_SCHEDULES: Final = 20_000
_HOUR: Final = 60
_STEPS: Final = (1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
"""Minutes that a bucket may have."""
_MOST_BUCKETS: Final = 33
_MOST_NAMED: Final = 5
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is due in a stretch of time.

    Attributes:
        start_ms: when it begins, on Redis's clock.
        end_ms: when the next one begins.
        delayed: delayed jobs, retries among them.
        slots: slots of schedules, each of which makes a job, or is skipped by the schedule's policies.
    """

    start_ms: int
    end_ms: int
    delayed: int
    slots: int

    @property
    def jobs(self) -> int:
        """Both."""
        return self.delayed + self.slots


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is due when; instants are ms on Redis's clock.

    Attributes:
        now_ms: when this was seen.
        until_ms: how far it looks.
        overdue: delayed jobs that are due already, and were not promoted yet.
        overdue_slots: schedules with a slot that is due already.
        delayed: delayed jobs that come due in that time.
        slots: slots of schedules in that time.
        later: delayed jobs that come due after it.
        schedules: how many have slots in that time.
        damaged: ids of schedules that can't be read, the first 100.
        spread: schedules so frequent that their slots were spread evenly over the minutes of an hour, or of several.
        unread: schedules that were not looked at, being beyond 20,000.
        buckets: all of it, in order, of equal length.
        busiest: the minutes with most jobs, the busiest first.
    """

    now_ms: int
    until_ms: int
    overdue: int
    overdue_slots: int
    delayed: int
    slots: int
    later: int
    schedules: int
    damaged: tuple[str, ...]
    spread: int
    unread: int
    buckets: tuple[Bucket, ...]
    busiest: tuple[Bucket, ...]

    def to_dict(self) -> dict[str, Any]:
        """One object for programs."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Window:
    """The minutes that are looked at: the first one began before now, the last one may end after `until_ms`."""

    now_ms: int
    until_ms: int

    @property
    def begin_ms(self) -> int:
        return self.now_ms // MINUTE_MS * MINUTE_MS

    @property
    def minutes(self) -> int:
        return (self.until_ms - self.begin_ms) // MINUTE_MS + 1

    def count(self, queue: Settings, first: int, end: int) -> Operation[int]:
        """Delayed jobs that come due in the minutes from `first` up to `end`."""
        start = self.begin_ms + first * MINUTE_MS
        low = f"({self.now_ms}" if start <= self.now_ms else start
        high = self.begin_ms + end * MINUTE_MS
        return _zcount(queue.keys.delayed, low, f"({high}" if high <= self.until_ms else self.until_ms)


def forecast(queue: Settings, within: Duration) -> Flow[Forecast]:
    """What is due in the time `within` from now on.

    Raises:
        UsageError: shorter than a minute, or longer than 31 days.
    """
    length = duration_ms(within, "within")
    if not MINUTE_MS <= length <= LONGEST_DAYS * 86_400_000:
        raise UsageError(f"within must be a minute to {LONGEST_DAYS} days, got {within!r}")
    (answer,) = yield [stats(queue)]
    now = firm(answer)["now_ms"]
    window = _Window(now, now + length)
    overdue, later, delayed = yield from _delayed(queue, window)
    standings, damaged, unread = yield from _standings(queue, window)
    slots, spread = slots_by_minute(standings, window.begin_ms, window.minutes, now, window.until_ms)
    minutes = [
        Bucket(start, start + MINUTE_MS, *counts)
        for start, *counts in zip(range(window.begin_ms, window.until_ms + 1, MINUTE_MS), delayed, slots, strict=True)
    ]
    busy = sorted((minute for minute in minutes if minute.jobs), key=lambda minute: (-minute.jobs, minute.start_ms))
    return Forecast(
        now_ms=now,
        until_ms=window.until_ms,
        overdue=overdue,
        overdue_slots=sum(standing.slot_ms <= now for standing in standings),
        delayed=sum(delayed),
        slots=sum(slots),
        later=later,
        schedules=len(standings),
        damaged=tuple(damaged[:100]),
        spread=spread,
        unread=unread,
        buckets=_buckets(minutes),
        busiest=tuple(busy[:_MOST_NAMED]),
    )


def _delayed(queue: Settings, window: _Window) -> Flow[tuple[int, int, list[int]]]:
    """Jobs that are due already, those due too late to matter, and those in between by the minute.

    By the hour first: the minutes of an hour without any need not be asked for.
    """
    hours = range(0, window.minutes, _HOUR)
    key = queue.keys.delayed
    answers = yield [
        _zcount(key, "-inf", window.now_ms),
        _zcount(key, f"({window.until_ms}", "+inf"),
        *(window.count(queue, hour, min(hour + _HOUR, window.minutes)) for hour in hours),
    ]
    overdue, later, *by_hour = (firm(answer) for answer in answers)
    found = [0] * window.minutes
    busy = [minute for hour, count in zip(hours, by_hour, strict=True) if count for minute in range(hour, hour + _HOUR)]
    for first in range(0, len(busy), _PAGE):
        page = [minute for minute in busy[first : first + _PAGE] if minute < window.minutes]
        answers = (yield [window.count(queue, minute, minute + 1) for minute in page]) if page else ()
        for minute, answer in zip(page, answers, strict=True):
            found[minute] = firm(answer)
    return overdue, later, found


def _standings(queue: Settings, window: _Window) -> Flow[tuple[list[Standing], list[str], int]]:
    """Schedules with a slot in that time, ids of those that can't be read, and how many were not looked at."""
    key = queue.keys.schedules
    (answer,) = yield [_zcount(key, "-inf", window.until_ms)]
    there = firm(answer)
    found: dict[str, Standing] = {}
    damaged: list[str] = []
    for offset in range(0, min(there, MOST_SCHEDULES), _PAGE):
        words = ("ZRANGEBYSCORE", key, "-inf", window.until_ms, "WITHSCORES", "LIMIT", offset, _PAGE)
        (answer,) = yield [Operation("forecast", None, (), words, list)]
        rows: list[str] = firm(answer)
        answers = (yield [read(queue, schedule_id) for schedule_id in rows[::2]]) if rows else ()
        for schedule_id, score, stored in zip(rows[::2], rows[1::2], answers, strict=True):
            try:
                found[schedule_id] = _standing(schedule_id, score_ms(score), firm(stored))
            except (UsageError, Conflict):
                damaged.append(schedule_id)
    return list(found.values()), damaged, max(0, there - MOST_SCHEDULES)


def _standing(schedule_id: str, slot_ms: int, stored: dict[str, str]) -> Standing:
    definition = Definition.from_fields(schedule_id, stored)
    left = max(0, definition.max_runs - whole(stored.get("runs"))) if definition.max_runs else None
    return Standing(definition, slot_ms, left)


def _buckets(minutes: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """The minutes gathered into buckets of a round length, which begin when clocks show it in UTC."""
    step = next((step for step in _STEPS if len(minutes) <= (_MOST_BUCKETS - 1) * step), _STEPS[-1]) * MINUTE_MS
    found: dict[int, list[Bucket]] = {}
    for minute in minutes:
        found.setdefault(minute.start_ms // step * step, []).append(minute)
    return tuple(
        Bucket(start, start + step, sum(m.delayed for m in part), sum(m.slots for m in part))
        for start, part in found.items()
    )


def _zcount(key: str, low: str | int, high: str | int) -> Operation[int]:
    return Operation("forecast", None, (), ("ZCOUNT", key, low, high), int)
