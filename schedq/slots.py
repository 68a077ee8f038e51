"""What becomes of a schedule's slots: a pure decision, from the stored slot and the time to one plan.

The stored slot is the next one that nobody has accounted for. Whatever the time, a plan begins with it and goes on slot
by slot, so that none is left out; many missed ones are counted, not gone through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from schedq import crontab
from schedq.instants import LAST_INSTANT_MS
from schedq.schedule import Definition

MOST_CAUGHT_UP: Final = 100
"""Slots that one schedule with catch_up="all" fires in one tick."""
LATE, MISSED, NO_INSTANT = "late", "missed", "no instant"


@dataclass(frozen=True, slots=True)
class Entry:
    """What becomes of one slot, or of several that follow each other.

    Attributes:
        outcome: fire it, skip it, coalesce it into a later one; or park the schedule, which can't be fired.
        slot_ms: the slot, the first one of several.
        to_ms: the last one.
        count: how many.
        detail: of a fired one, when its job is due; of a skipped or parked one, why; of a coalesced one, the slot
            that stands for it.
    """

    outcome: Literal["fire", "skip", "coalesce", "park"]
    slot_ms: int
    to_ms: int
    count: int
    detail: str | int

    def args(self) -> tuple[str | int, ...]:
        """Its part of `fire.lua`'s arguments."""
        return (self.outcome, self.slot_ms, self.to_ms, self.count, self.detail)


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of the slots that are due, and the next one; None if there is none ever again."""

    entries: tuple[Entry, ...]
    next_ms: int | None


def plan(definition: Definition, slot_ms: int, now_ms: int) -> Plan:
    """What becomes of all slots from the stored one until now; it must be due."""
    if not 0 <= slot_ms <= LAST_INSTANT_MS:  # another program's
        return Plan((Entry("skip", 0, 0, 1, NO_INSTANT),), definition.next_after(now_ms))
    upcoming = definition.next_after(slot_ms)
    if upcoming is None or upcoming > now_ms:
        return Plan((_alone(definition, slot_ms, now_ms),), upcoming)
    if definition.catch_up == "all" and definition.overlap in ("allow", "skip"):
        return _each(definition, slot_ms, now_ms)
    return _latest(definition, slot_ms, upcoming, now_ms)


def missed(definition: Definition, first_ms: int, now_ms: int) -> tuple[int, int]:
    """The last slot from `first_ms`, which is one, until now, and how many they are; (0, 0) for none."""
    until = min(now_ms, definition.end_ms) if definition.end_ms else now_ms
    if first_ms > until:
        return 0, 0
    last = crontab.last(definition.rhythm, first_ms, until)
    return last or first_ms, 1 + (definition.rhythm.count(first_ms, until) if last else 0)


def _fire(definition: Definition, slot_ms: int) -> Entry:
    return Entry("fire", slot_ms, slot_ms, 1, definition.due_ms(slot_ms))


def _is_late(definition: Definition, slot_ms: int, now_ms: int) -> bool:
    return 0 <= definition.latest_ms < now_ms - slot_ms


def _alone(definition: Definition, slot_ms: int, now_ms: int) -> Entry:
    if _is_late(definition, slot_ms, now_ms):
        return Entry("skip", slot_ms, slot_ms, 1, LATE)
    return _fire(definition, slot_ms)


def _latest(definition: Definition, first_ms: int, second_ms: int, now_ms: int) -> Plan:
    """The last one runs, if it is not too late; the others went into it, or were missed."""
    last, count = missed(definition, second_ms, now_ms)
    upcoming = definition.next_after(last)
    if _is_late(definition, last, now_ms):
        return Plan((Entry("skip", first_ms, last, count + 1, LATE),), upcoming)
    before = crontab.last(definition.rhythm, first_ms, last - 1) or first_ms
    if definition.catch_up == "none":
        others = Entry("skip", first_ms, before, count, MISSED)
    else:
        others = Entry("coalesce", first_ms, before, count, last)
    return Plan((others, _fire(definition, last)), upcoming)


def _each(definition: Definition, first_ms: int, now_ms: int) -> Plan:
    """All of them run, the oldest first and so many at a time, but for those that are too late."""
    entries: list[Entry] = []
    slot: int | None = first_ms
    if _is_late(definition, first_ms, now_ms):
        slot = definition.next_after(now_ms - definition.latest_ms - 1)
        last, count = missed(definition, first_ms, now_ms if slot is None else slot - 1)
        entries.append(Entry("skip", first_ms, last, count, LATE))
    fired = 0
    while slot is not None and slot <= now_ms and fired < MOST_CAUGHT_UP:
        entries.append(_fire(definition, slot))
        slot = definition.next_after(slot)
        fired += 1
    return Plan(tuple(entries), slot)
