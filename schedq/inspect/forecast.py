"""What is due when: delayed jobs and slots of schedules, counted by the minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from schedq.errors import Conflict, UsageError
from schedq.inspect.stats import stats
from schedq.model.records import score_ms, whole
from schedq.model.settings import Settings
from schedq.model.times import Duration, duration_ms
from schedq.schedules.definition import Definition
from schedq.schedules.records import read
from schedq.transitions import Operation, RoundTrips, unwrap

MINUTE_MS: Final = 60_000
LONGEST_DAYS: Final = 31
MOST_SCHEDULES: Final = 20_000
_HOUR: Final = 60
_STEPS: Final = (1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
"""The possible lengths of a bucket in minutes."""
_MOST_BUCKETS: Final = 33
_MOST_NAMED: Final = 5
_PAGE: Final = 1000
_MOST_COUNTED: Final = 500_000
"""The most distinct slots to iterate over; this many take about a quarter of a second."""


@dataclass(frozen=True, slots=True)
class UpcomingSchedule:
    """A schedule with upcoming slots.

    Attributes:
        definition: its definition.
        slot_ms: its next slot.
        left: how many runs it has left; None for no limit.
    """

    definition: Definition
    slot_ms: int
    left: int | None


@dataclass(slots=True)
class _Row:
    """The slots that `schedules` schedules share: `count` of them from `from_ms` to `until_ms`."""

    definition: Definition
    from_ms: int
    until_ms: int
    count: int
    schedules: int = 0


def slots_by_minute(
    schedules: Iterable[UpcomingSchedule], begin_ms: int, minutes: int, after_ms: int, until_ms: int
) -> tuple[list[int], int, int]:
    """Count slots later than `after_ms` and not later than `until_ms`, for each of the `minutes` from `begin_ms` on.

    Schedules with the same slots are iterated once, rare ones first. Frequent schedules that would bring the number of
    distinct slots above half a million are left out, so their minutes have more slots than counted.

    Returns:
        The counts; how many schedules were left out; and how many slots they have.
    """
    found, left_out, slots, counted = [0] * minutes, 0, 0, 0
    for row in sorted(_rows(schedules, after_ms, until_ms), key=lambda row: row.count):
        counted += row.count
        if counted > _MOST_COUNTED:
            left_out += row.schedules
            slots += row.count * row.schedules
        else:
            _count(row, found, begin_ms)
    return found, left_out, slots


def _rows(schedules: Iterable[UpcomingSchedule], after_ms: int, until_ms: int) -> Iterable[_Row]:
    rows: dict[Any, _Row] = {}
    for schedule in schedules:
        definition, left = schedule.definition, schedule.left
        first, last = max(schedule.slot_ms, after_ms + 1), min(until_ms, definition.end_ms or until_ms)
        key = (definition.recurrence.key, first, last, left, definition.id if definition.jitter_ms else "")
        if key not in rows:
            count = definition.recurrence.count(first - 1, last)
            rows[key] = _Row(definition, first, last, count if left is None else min(count, left))
        rows[key].schedules += 1
    return rows.values()


def _count(row: _Row, found: list[int], begin_ms: int) -> None:
    jittered = row.definition.due_ms if row.definition.jitter_ms else None
    for slot in islice(row.definition.recurrence.between(row.from_ms - 1, row.until_ms), row.count):
        minute = ((jittered(slot) if jittered else slot) - begin_ms) // MINUTE_MS
        if minute < len(found):
            found[minute] += row.schedules


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is due in one interval of time.

    Attributes:
        start_ms: when it begins, on Redis's clock.
        end_ms: when the next one begins.
        delayed: how many delayed jobs, including retries.
        slots: how many slots of schedules; each enqueues a job or is skipped by the schedule's policies.
    """

    start_ms: int
    end_ms: int
    delayed: int
    slots: int

    @property
    def jobs(self) -> int:
        """The number of delayed jobs and slots together."""
        return self.delayed + self.slots


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is due when; instants are ms on Redis's clock.

    Attributes:
        now_ms: when the forecast was made.
        until_ms: when it ends.
        overdue: how many delayed jobs are already due but not promoted yet.
        overdue_slots: how many schedules have a slot that is already due.
        delayed: how many delayed jobs become due in that time.
        slots: how many slots of schedules are in that time.
        later: how many delayed jobs become due after it.
        schedules: how many schedules have slots in that time.
        damaged: ids of schedules that can't be read, the first 100.
        spread: how many schedules are so frequent that only `slots` counts their slots. `buckets` and `busiest` cover
            at most half a million slots, so they are lower bounds then.
        unread: how many schedules beyond 20,000 were not looked at.
        buckets: the whole time in intervals of equal length.
        busiest: the minutes with the most jobs, busiest first.
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
        """Return the forecast as one dict."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Window:
    """The minutes of a forecast: the first one began before now, the last one may end after `until_ms`."""

    now_ms: int
    until_ms: int

    @property
    def begin_ms(self) -> int:
        return self.now_ms // MINUTE_MS * MINUTE_MS

    @property
    def minutes(self) -> int:
        return (self.until_ms - self.begin_ms) // MINUTE_MS + 1

    def count(self, queue: Settings, first: int, end: int) -> Operation[int]:
        """Count delayed jobs that become due in the minutes from `first` up to `end`."""
        start = self.begin_ms + first * MINUTE_MS
        low = f"({self.now_ms}" if start <= self.now_ms else start
        high = self.begin_ms + end * MINUTE_MS
        return _zcount(queue.keys.delayed, low, f"({high}" if high <= self.until_ms else self.until_ms)


def forecast(queue: Settings, within: Duration) -> RoundTrips[Forecast]:
    """What is due during the next `within`.

    Raises:
        UsageError: `within` is shorter than a minute or longer than 31 days.
    """
    length = duration_ms(within, "within")
    if not MINUTE_MS <= length <= LONGEST_DAYS * 86_400_000:
        raise UsageError(f"within must be a minute to {LONGEST_DAYS} days, got {length / 1000:,.0f} s")
    (reply,) = yield [stats(queue)]
    now = unwrap(reply)["now_ms"]
    window = _Window(now, now + length)
    overdue, later, delayed = yield from _delayed(queue, window)
    schedules, damaged, unread = yield from _upcoming(queue, window)
    slots, left_out, more = slots_by_minute(schedules, window.begin_ms, window.minutes, now, window.until_ms)
    minutes = [
        Bucket(start, start + MINUTE_MS, *counts)
        for start, *counts in zip(range(window.begin_ms, window.until_ms + 1, MINUTE_MS), delayed, slots, strict=True)
    ]
    busy = sorted((minute for minute in minutes if minute.jobs), key=lambda minute: (-minute.jobs, minute.start_ms))
    return Forecast(
        now_ms=now,
        until_ms=window.until_ms,
        overdue=overdue,
        overdue_slots=sum(schedule.slot_ms <= now for schedule in schedules),
        delayed=sum(delayed),
        slots=sum(slots) + more,
        later=later,
        schedules=len(schedules),
        damaged=tuple(damaged[:100]),
        spread=left_out,
        unread=unread,
        buckets=_buckets(minutes),
        busiest=tuple(busy[:_MOST_NAMED]),
    )


def _delayed(queue: Settings, window: _Window) -> RoundTrips[tuple[int, int, list[int]]]:
    """Count the jobs that are already due, those due after the window, and those in the window by the minute.

    Hours are counted first, so the minutes of empty hours need no requests.
    """
    key, hours = queue.keys.delayed, range(0, window.minutes, _HOUR)
    replies = yield [
        _zcount(key, "-inf", window.now_ms),
        _zcount(key, f"({window.until_ms}", "+inf"),
        *(window.count(queue, hour, min(hour + _HOUR, window.minutes)) for hour in hours),
    ]
    overdue, later, *by_hour = (unwrap(reply) for reply in replies)
    found = [0] * window.minutes
    busy = [minute for hour, count in zip(hours, by_hour, strict=True) if count for minute in range(hour, hour + _HOUR)]
    for first in range(0, len(busy), _PAGE):
        page = [minute for minute in busy[first : first + _PAGE] if minute < window.minutes]
        replies = (yield [window.count(queue, minute, minute + 1) for minute in page]) if page else ()
        for minute, reply in zip(page, replies, strict=True):
            found[minute] = unwrap(reply)
    return overdue, later, found


def _upcoming(queue: Settings, window: _Window) -> RoundTrips[tuple[list[UpcomingSchedule], list[str], int]]:
    """Schedules with a slot in the window, ids of those that can't be read, and how many were not looked at."""
    key = queue.keys.schedules
    (reply,) = yield [_zcount(key, "-inf", window.until_ms)]
    there = unwrap(reply)
    found: dict[str, UpcomingSchedule] = {}
    damaged: list[str] = []
    for offset in range(0, min(there, MOST_SCHEDULES), _PAGE):
        words = ("ZRANGEBYSCORE", key, "-inf", window.until_ms, "WITHSCORES", "LIMIT", offset, _PAGE)
        (reply,) = yield [Operation("forecast", None, (), words, list)]
        rows: list[str] = unwrap(reply)
        replies = (yield [read(queue, schedule_id) for schedule_id in rows[::2]]) if rows else ()
        for schedule_id, score, stored in zip(rows[::2], rows[1::2], replies, strict=True):
            try:
                found[schedule_id] = _schedule(schedule_id, score_ms(score), unwrap(stored))
            except (UsageError, Conflict):
                damaged.append(schedule_id)
    return list(found.values()), damaged, max(0, there - MOST_SCHEDULES)


def _schedule(schedule_id: str, slot_ms: int, stored: dict[str, str]) -> UpcomingSchedule:
    definition = Definition.from_fields(schedule_id, stored)
    left = max(0, definition.max_runs - whole(stored.get("runs"))) if definition.max_runs else None
    return UpcomingSchedule(definition, slot_ms, left)


def _buckets(minutes: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """Gather the minutes into buckets of a round length, aligned to UTC."""
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
