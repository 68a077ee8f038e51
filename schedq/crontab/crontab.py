"""A cron expression in a time zone: which instants it means, through every change of the clocks.

An expression whose hour is `*` or `*/n` keeps its rhythm in real time: each instant whose local time matches is a
slot. Any other names times of the day, and those that a change of the clocks leaves out or brings twice are dealt
with by `gap` and `fold`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, get_args

from schedq.crontab.expression import Expression, read
from schedq.crontab.wall import Wall
from schedq.crontab.words import in_words
from schedq.crontab.zones import Offsets, Stretch, offsets_of
from schedq.errors import UsageError

Gap = Literal["next", "skip"]
Fold = Literal["first", "second", "both"]

_HORIZON_S: Final = 100 * 366 * 86_400
"""How far ahead a slot is looked for: the rarest, a 29 February on a given weekday, is 40 years from the one before."""


@dataclass(frozen=True, slots=True)
class Crontab:
    """The slots of an expression; made by `parse`, equal if written alike.

    Attributes:
        expression: as it was written.
        tz: name of the time zone.
        schedule_id: what `H` is drawn from.
        gap: local times that do not exist: those of one gap become one slot at the first minute after it, or none.
        fold: local times that come twice: the first of them is a slot, the second, or both.
    """

    expression: str
    tz: str
    schedule_id: str
    gap: Gap
    fold: Fold
    _read: Expression = field(repr=False, compare=False)
    _wall: Wall = field(repr=False, compare=False)
    _offsets: Offsets = field(repr=False, compare=False)

    def next_after(self, instant_ms: int) -> int | None:
        """The first slot that is later than the instant; None if there is none within a hundred years."""
        begin = max(0, instant_ms // 1000 + 1)
        for stretch, position in self._stretches(begin, begin + _HORIZON_S):
            start, end = self._counted(stretch, position)
            wall = self._wall.next(start + stretch.offset, end + stretch.offset)
            extra = self._after_gap(stretch, position)
            found = extra if wall is None else wall - stretch.offset
            if found is not None:
                return (found if extra is None else min(found, extra)) * 1000
        return None

    def between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """The slots later than `after_ms` and not later than `until_ms`, in ascending order."""
        begin, until = max(0, after_ms // 1000 + 1), until_ms // 1000 + 1
        for stretch, position in self._stretches(begin, until):
            start, end = self._counted(stretch, position)
            offset = stretch.offset
            extra = self._after_gap(stretch, position)
            for wall in self._wall.between(start + offset, min(end, until) + offset):
                slot = wall - offset
                if extra is not None and slot >= extra:
                    if slot > extra:
                        yield extra * 1000
                    extra = None
                yield slot * 1000
            if extra is not None and extra < until:
                yield extra * 1000

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many slots `between` would yield, without making them."""
        begin, until = max(0, after_ms // 1000 + 1), until_ms // 1000 + 1
        total = 0
        for stretch, position in self._stretches(begin, until):
            start, end = self._counted(stretch, position)
            offset = stretch.offset
            total += self._wall.count(start + offset, min(end, until) + offset)
            extra = self._after_gap(stretch, position)
            if extra is not None and extra < until:
                total += not self._wall.count(extra + offset, extra + offset + 1)
        return total

    def words(self) -> str:
        """The expression in words, with the zone."""
        return in_words(self._read.pattern, self.tz)

    def words_on_changes(self) -> str:
        """What becomes of it when clocks change, in words."""
        if self.keeps_rhythm:
            return "When clocks change it goes on in real time: each instant whose local time matches is a slot."
        gap = "one slot at the first minute after them" if self.gap == "next" else "no slot"
        fold = "both times" if self.fold == "both" else f"the {self.fold} time only"
        return f"Times that clocks leave out: {gap}. Times that come twice: {fold}."

    def mark(self, slot_ms: int) -> Literal["", "gap", "first", "second"]:
        """Whether a slot stands for local times in a gap, or is the first or second coming of its local time."""
        slot = slot_ms // 1000
        stretch = self._offsets.stretch(slot)
        if stretch is None:
            return ""
        wall = slot + stretch.offset
        if wall < stretch.start + stretch.before:
            return "second"
        if wall >= stretch.end + stretch.after:
            return "first"
        return "gap" if self._after_gap(stretch, slot) == slot else ""

    @property
    def meaning(self) -> tuple[object, ...]:
        """What decides its slots: equal for expressions that have the same ones, however they are written."""
        return self._read.pattern, self.tz, self.gap, self.fold, self.keeps_rhythm

    @property
    def keeps_rhythm(self) -> bool:
        """Whether it goes by real time when clocks change, and `gap` and `fold` say nothing."""
        return self._read.keeps_rhythm

    def _stretches(self, position: int, until: int) -> Iterator[tuple[Stretch, int]]:
        """The stretches of [position, until), each with where in it to begin: a long one is given in parts."""
        while position < until and (stretch := self._offsets.stretch(position)) is not None:
            yield stretch, position
            position = stretch.end

    def _counted(self, stretch: Stretch, position: int) -> tuple[int, int]:
        """The part of a stretch from `position` on, without the local times that count at their other coming."""
        start, end = stretch.start, stretch.end
        if not self.keeps_rhythm:
            if self.fold == "first":
                start += max(0, stretch.before - stretch.offset)
            elif self.fold == "second":
                end -= max(0, stretch.offset - stretch.after)
        return max(start, position), end

    def _after_gap(self, stretch: Stretch, position: int) -> int | None:
        """The slot, not before `position`, that stands for those in the gap that a stretch begins with."""
        if stretch.before >= stretch.offset or self.gap == "skip" or self.keeps_rhythm:
            return None
        first, end = stretch.start + stretch.before, stretch.start + stretch.offset
        slot = -(-end // 60) * 60 - stretch.offset
        return slot if slot >= position and self._wall.next(first, end) is not None else None


def parse(
    expression: str, *, tz: str = "UTC", schedule_id: str = "", gap: Gap = "next", fold: Fold = "first"
) -> Crontab:
    """Read a cron expression of 5 fields, or of 6 with seconds first; `H` is drawn from `schedule_id`.

    Raises:
        UsageError: the expression is not understood or can't be meant, pointing at the field; no such zone or policy.
    """
    for name, value, known in (("gap", gap, get_args(Gap)), ("fold", fold, get_args(Fold))):
        if not isinstance(value, str) or value not in known:
            raise UsageError(f"{name} must be {' or '.join(map(repr, known))}, got {value!r:.40}")
    if not isinstance(tz, str):
        raise UsageError(f"a time zone is given by its name, such as 'Europe/Berlin', got {tz!r:.60}")
    offsets = offsets_of(tz)
    if not isinstance(expression, str):
        raise UsageError(f"a cron expression must be a text such as '0 3 * * *', got {expression!r:.60}")
    said, wall = _read(expression, schedule_id if "h" in expression.lower() else "")
    return Crontab(expression, tz, schedule_id, gap, fold, said, wall, offsets)


@lru_cache(maxsize=4096)
def _read(expression: str, schedule_id: str) -> tuple[Expression, Wall]:
    said = read(expression, schedule_id)
    return said, Wall(said.pattern)
