"""How many slots schedules have in each minute to come, without walking through all of them where there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from schedq.crontab import Rhythm
from schedq.schedule import Definition

MINUTE_MS: Final = 60_000
_MOST_WALKED: Final = 500_000
"""Slots that are gone through one by one: that takes about a quarter of a second."""
_HOUR: Final = 60
_MOST_PARTS: Final = 48
"""Stretches of whole hours, over each of which the slots of the others are spread evenly."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A schedule that has slots to come.

    Attributes:
        definition: what it is.
        slot_ms: its next slot.
        left: runs that it has left, or None for no limit.
    """

    definition: Definition
    slot_ms: int
    left: int | None


@dataclass(frozen=True, slots=True)
class _Row:
    """Slots that several schedules have in common, those from `from_ms` to `until_ms`."""

    rhythm: Rhythm
    from_ms: int
    until_ms: int
    count: int
    jittered: Definition | None
    schedules: int


def slots_by_minute(
    standings: Iterable[Standing], begin_ms: int, minutes: int, after_ms: int, until_ms: int
) -> tuple[list[int], int]:
    """Slots later than `after_ms` and not later than `until_ms`, for each of the `minutes` from `begin_ms` on.

    Schedules with the same slots are counted once, rare ones first. Once half a million slots have been gone through,
    the others' are counted by the hour, or by longer stretches of a long time, and spread evenly over its minutes.

    Returns:
        The counts, and of how many schedules they are spread.
    """
    found, spread, budget = [0] * minutes, 0, _MOST_WALKED
    part = _HOUR * -(-minutes // (_HOUR * _MOST_PARTS))
    parts = [0] * -(-minutes // part)
    for row in sorted(_rows(standings, after_ms, until_ms), key=lambda row: row.count):
        if row.count <= budget:
            budget -= row.count
            _walk(row, found, begin_ms)
        else:
            spread += row.schedules
            _reckon(row, parts, begin_ms, part * MINUTE_MS)
    for number, count in enumerate(parts):
        _spread(count, found, number * part, min(part, minutes - number * part))
    return found, spread


def _rows(standings: Iterable[Standing], after_ms: int, until_ms: int) -> list[_Row]:
    alike: Counter[Any] = Counter()
    one_of: dict[Any, tuple[Standing, int, int]] = {}
    for standing in standings:
        definition = standing.definition
        first = max(standing.slot_ms, after_ms + 1)
        last = min(until_ms, definition.end_ms or until_ms)
        own = definition.id if definition.jitter_ms else ""
        key = (definition.rhythm.meaning, first, last, standing.left, own)
        alike[key] += 1
        one_of[key] = standing, first, last
    rows = []
    for key, (standing, first, last) in one_of.items():
        definition, left = standing.definition, standing.left
        count = definition.rhythm.count(first - 1, last)
        count = count if left is None else min(count, left)
        jittered = definition if definition.jitter_ms else None
        rows.append(_Row(definition.rhythm, first, last, count, jittered, alike[key]))
    return rows


def _walk(row: _Row, found: list[int], begin_ms: int) -> None:
    """Count slot by slot."""
    for slot in islice(row.rhythm.between(row.from_ms - 1, row.until_ms), row.count):
        minute = ((row.jittered.due_ms(slot) if row.jittered else slot) - begin_ms) // MINUTE_MS
        if minute < len(found):
            found[minute] += row.schedules


def _reckon(row: _Row, parts: list[int], begin_ms: int, part_ms: int) -> None:
    """Count by the part."""
    left = row.count
    for number in range(len(parts)):
        start = begin_ms + number * part_ms
        first, last = max(start, row.from_ms), min(start + part_ms - 1, row.until_ms)
        count = min(left, row.rhythm.count(first - 1, last)) if first <= last else 0
        parts[number] += count * row.schedules
        left -= count


def _spread(count: int, found: list[int], first: int, minutes: int) -> None:
    """Add `count` evenly to the minutes of a part."""
    for number in range(minutes if count else 0):
        found[first + number] += count * (number + 1) // minutes - count * number // minutes
