"""Which wall-clock times an expression names: a calendar that knows no time zone.

A wall time is the count of seconds from 1970-01-01T00:00:00 to what a clock on the wall shows, as if every day had
86,400 seconds.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

DAY_S: Final = 86_400
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date(9999, 12, 31).toordinal() - _EPOCH_DAY
LAST_WEEK: Final = 0
"""Stands for "the last one of the month" where others have 1 to 5."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The numbers that an expression stands for, each field's in ascending order.

    Attributes:
        days: of the month; None when the field is `*`.
        has_last_day: the month's last day is one of them, whatever its number.
        weekdays: 0 is Sunday; None when the field is `*`.
        nth_weekdays: (weekday, which one of the month: 1 to 5, or `LAST_WEEK`).
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...] | None
    has_last_day: bool
    months: tuple[int, ...]
    weekdays: tuple[int, ...] | None
    nth_weekdays: tuple[tuple[int, int], ...]

    @property
    def takes_days(self) -> bool:
        """Whether the day of month is given."""
        return self.days is not None or self.has_last_day

    @property
    def takes_weekdays(self) -> bool:
        """Whether the day of week is given."""
        return self.weekdays is not None or bool(self.nth_weekdays)


class Wall:
    """Finds, counts and lists the wall times of a pattern without trying them one by one."""

    __slots__ = ("_days", "_first", "_hours", "_minutes", "_months", "_per_day", "_per_hour", "_seconds", "pattern")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._seconds = pattern.seconds
        self._minutes = pattern.minutes
        self._hours = pattern.hours
        self._months = frozenset(pattern.months)
        self._days: dict[tuple[int, int], int] = {}
        self._first = pattern.hours[0] * 3600 + pattern.minutes[0] * 60 + pattern.seconds[0]
        self._per_hour = len(pattern.minutes) * len(pattern.seconds)
        self._per_day = len(pattern.hours) * self._per_hour

    def next(self, start: int, end: int) -> int | None:
        """The first wall time in [start, end); None if there is none."""
        day, time = divmod(start, DAY_S)
        found = self._day_from(day, end // DAY_S)
        if found == day:
            later = self._time_from(time)
            if later is not None:
                wall = day * DAY_S + later
                return wall if wall < end else None
            found = self._day_from(day + 1, end // DAY_S)
        if found is None:
            return None
        wall = found * DAY_S + self._first
        return wall if wall < end else None

    def between(self, start: int, end: int) -> Iterator[int]:
        """The wall times in [start, end), in ascending order."""
        following = start // DAY_S
        while (day := self._day_from(following, end // DAY_S)) is not None:
            following = day + 1
            midnight = day * DAY_S
            times = self._times(midnight)
            if midnight < start or midnight + DAY_S > end:
                yield from (wall for wall in times if start <= wall < end)
            else:
                yield from times

    def count(self, start: int, end: int) -> int:
        """How many wall times are in [start, end)."""
        if end <= start:
            return 0
        first, time = divmod(start, DAY_S)
        last, rest = divmod(end, DAY_S)
        whole = self._per_day * self._days_in(first, last)
        return whole - self._times_before(time, first) + self._times_before(rest, last)

    def _times(self, midnight: int) -> Iterator[int]:
        for hour in self._hours:
            for minute in self._minutes:
                base = midnight + hour * 3600 + minute * 60
                for second in self._seconds:
                    yield base + second

    def _time_from(self, time: int) -> int | None:
        """The first time of day at or after `time`, seconds."""
        hour, rest = divmod(time, 3600)
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        at = bisect_left(hours, hour)
        if at == len(hours):
            return None
        if hours[at] == hour:
            minute, second = divmod(rest, 60)
            near = bisect_left(minutes, minute)
            if near < len(minutes) and minutes[near] == minute:
                soon = bisect_left(seconds, second)
                if soon < len(seconds):
                    return hour * 3600 + minute * 60 + seconds[soon]
                near += 1
            if near < len(minutes):
                return hour * 3600 + minutes[near] * 60 + seconds[0]
            at += 1
        return hours[at] * 3600 + minutes[0] * 60 + seconds[0] if at < len(hours) else None

    def _times_before(self, time: int, day: int) -> int:
        """How many times of that day are before `time`."""
        if not time or self._day_from(day, day) is None:
            return 0
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        count = bisect_left(self._hours, hour) * self._per_hour
        if hour in self._hours:
            count += bisect_left(self._minutes, minute) * len(self._seconds)
            if minute in self._minutes:
                count += bisect_left(self._seconds, second)
        return count

    def _day_from(self, day: int, last: int) -> int | None:
        """The first matching day, counted from 1970-01-01, in [day, last]."""
        for start, _, mask in self._monthly(day, last):
            if mask:
                found = start + (mask & -mask).bit_length() - 1
                return found if found <= last else None
        return None

    def _days_in(self, first: int, last: int) -> int:
        """How many matching days are in [first, last)."""
        if last <= first:
            return 0
        return sum(
            (mask & ((1 << min(length, last - start)) - 1)).bit_count()
            for start, length, mask in self._monthly(first, last - 1)
        )

    def _monthly(self, day: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Month by month from `day` to `last`: a first day, how many from there, and the matching ones as bits."""
        last = min(last, _LAST_DAY)
        if day > last:
            return
        at = date.fromordinal(day + _EPOCH_DAY)
        year, month, gone = at.year, at.month, at.day - 1
        first = day - gone
        weekday = (at.weekday() + 1 - gone) % 7
        while first <= last:
            length = 29 if month == 2 and calendar.isleap(year) else _LENGTHS[month]
            if month in self._months:
                yield first + gone, length - gone, self._mask(weekday, length) >> gone
            gone = 0
            first += length
            weekday = (weekday + length) % 7
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)

    def _mask(self, weekday: int, length: int) -> int:
        """The matching days of a month that begins on `weekday`; bit 0 is the first."""
        mask = self._days.get((weekday, length))
        if mask is None:
            mask = self._days[weekday, length] = _days_of(self.pattern, weekday, length)
        return mask


_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _days_of(pattern: Pattern, first_weekday: int, length: int) -> int:
    """The days of one month as bits: where day of month and day of week are both given, either matches."""
    if not pattern.takes_days and not pattern.takes_weekdays:
        return (1 << length) - 1
    chosen = {day for day in pattern.days or () if day <= length}
    if pattern.has_last_day:
        chosen.add(length)
    for weekday in pattern.weekdays or ():
        chosen.update(range(1 + (weekday - first_weekday) % 7, length + 1, 7))
    for weekday, which in pattern.nth_weekdays:
        days = range(1 + (weekday - first_weekday) % 7, length + 1, 7)
        if which == LAST_WEEK:
            chosen.add(days[-1])
        elif which <= len(days):
            chosen.add(days[which - 1])
    return sum(1 << (day - 1) for day in chosen)
