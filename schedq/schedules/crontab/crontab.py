"""A cron expression in a time zone: which instants it names, also when clocks change.

An expression whose hour is `*` or `*/n` follows real time: each instant whose local time matches is a slot. Any other
expression names times of the day, and `gap` and `fold` decide about times that a clock change skips or repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from schedq.schedules.crontab.describe import describe
from schedq.schedules.crontab.expression import read
from schedq.schedules.crontab.local_calendar import LocalCalendar
from schedq.schedules.crontab.zones import OffsetPeriod, Offsets, offsets_of

Gap = Literal["next", "skip"]
Fold = Literal["first", "second", "both"]
_HORIZON_S: Final = 100 * 366 * 86_400
"""How far ahead to look for a slot. The rarest, a 29 February on a given weekday, may be 40 years apart."""


@dataclass(frozen=True, slots=True)
class Crontab:
    """The slots of an expression; made by `parse`. Two are equal if they are written the same.

    Attributes:
        expression: the expression as written.
        tz: name of the time zone.
        schedule_id: the id from which `H` is derived.
        gap: what to do with local times that do not exist: those of one gap become one slot at the first minute after
            it, or none.
        fold: which of two equal local times is a slot: the first, the second, or both.
    """

    expression: str
    tz: str
    schedule_id: str
    gap: Gap
    fold: Fold
    _offsets: Offsets = field(repr=False, compare=False)
    _calendar: LocalCalendar = field(repr=False, compare=False)

    def next_after(self, instant_ms: int) -> int | None:
        """The first slot after the instant; None if there is none within a hundred years."""
        begin = max(0, instant_ms // 1000 + 1)
        for period, position in self._periods(begin, begin + _HORIZON_S):
            start, end = self._counted(period, position)
            local = self._calendar.next(start + period.offset, end + period.offset)
            extra = self._after_gap(period, position)
            found = extra if local is None else local - period.offset
            if found is not None:
                return (found if extra is None else min(found, extra)) * 1000
        return None

    def between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """The slots after `after_ms` up to and including `until_ms`, in ascending order."""
        begin, until = max(0, after_ms // 1000 + 1), until_ms // 1000 + 1
        for period, position in self._periods(begin, until):
            start, end = self._counted(period, position)
            offset = period.offset
            extra = self._after_gap(period, position)
            for local in self._calendar.between(start + offset, min(end, until) + offset):
                slot = local - offset
                if extra is not None and slot >= extra:
                    if slot > extra:
                        yield extra * 1000
                    extra = None
                yield slot * 1000
            if extra is not None and extra < until:
                yield extra * 1000

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many slots `between` would yield, without iterating over them."""
        begin, until = max(0, after_ms // 1000 + 1), until_ms // 1000 + 1
        total = 0
        for period, position in self._periods(begin, until):
            start, end = self._counted(period, position)
            offset = period.offset
            total += self._calendar.count(start + offset, min(end, until) + offset)
            extra = self._after_gap(period, position)
            if extra is not None and extra < until:
                total += not self._calendar.count(extra + offset, extra + offset + 1)
        return total

    def describe(self) -> str:
        """The expression in words, with the zone."""
        return describe(self._calendar.pattern, self.tz)

    def describe_clock_changes(self) -> str:
        """What happens when clocks change, in words."""
        if self._calendar.pattern.follows_real_time:
            return "It follows real time when clocks change: each instant whose local time matches is a slot."
        gap = "one slot at the first minute after them" if self.gap == "next" else "no slot"
        fold = "both times" if self.fold == "both" else f"the {self.fold} time only"
        return f"Times that a clock change skips: {gap}. Times that it repeats: {fold}."

    def clock_change(self, slot_ms: int) -> Literal["", "gap", "first", "second"]:
        """Whether a slot stands for local times in a gap, or is the first or second occurrence of its local time."""
        slot = slot_ms // 1000
        period = self._offsets.period(slot)
        if period is None:
            return ""
        local = slot + period.offset
        if local < period.start + period.before:
            return "second"
        if local >= period.end + period.after:
            return "first"
        return "gap" if self._after_gap(period, slot) == slot else ""

    @property
    def key(self) -> tuple[object, ...]:
        """What determines the slots; equal for expressions with the same slots, however they are written."""
        return self._calendar.pattern, self.tz, self.gap, self.fold

    def _periods(self, position: int, until: int) -> Iterator[tuple[OffsetPeriod, int]]:
        """The periods of [position, until), each with the position in it to begin at; long periods come in parts."""
        while position < until and (period := self._offsets.period(position)) is not None:
            yield period, position
            position = period.end

    def _counted(self, period: OffsetPeriod, position: int) -> tuple[int, int]:
        """The part of a period from `position` on, without local times that count at their other occurrence."""
        start, end = period.start, period.end
        if not self._calendar.pattern.follows_real_time:
            if self.fold == "first":
                start += max(0, period.before - period.offset)
            elif self.fold == "second":
                end -= max(0, period.offset - period.after)
        return max(start, position), end

    def _after_gap(self, period: OffsetPeriod, position: int) -> int | None:
        """The slot, not before `position`, that stands for those in the gap before a period."""
        if period.before >= period.offset or self.gap == "skip" or self._calendar.pattern.follows_real_time:
            return None
        first, end = period.start + period.before, period.start + period.offset
        slot = -(-end // 60) * 60 - period.offset
        return slot if slot >= position and self._calendar.next(first, end) is not None else None


def parse(
    expression: str, *, tz: str = "UTC", schedule_id: str = "", gap: Gap = "next", fold: Fold = "first"
) -> Crontab:
    """Parse a cron expression of 5 fields, or 6 with seconds first; `H` is derived from `schedule_id`.

    Raises:
        UsageError: the expression is invalid, and the message names the field; or there is no such zone.
    """
    return Crontab(expression, tz, schedule_id, gap, fold, offsets_of(tz), _calendar(expression, schedule_id))


@lru_cache(maxsize=4096)
def _calendar(expression: str, schedule_id: str) -> LocalCalendar:
    return LocalCalendar(read(expression, schedule_id))
