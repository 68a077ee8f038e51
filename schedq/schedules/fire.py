"""Fire slots: plan what happens to due slots, and let the script carry it out, batch by batch.

A plan is a pure decision from the time and the stored slot, which is the first one not handled yet. It starts with that
slot and continues slot by slot, so none is left out; many missed slots are counted, not listed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final, Literal

from schedq.errors import Conflict, UsageError
from schedq.model.records import score_ms
from schedq.model.settings import Settings
from schedq.model.times import LAST_INSTANT_MS
from schedq.schedules.definition import Definition, Recurrence
from schedq.schedules.records import (
    SLOTS_KEPT,
    ScheduleScan,
    ScheduleStatus,
    as_argument,
    as_bytes_if_needed,
    read,
    scan_schedules,
)
from schedq.transitions import Argument, Binding, Operation, RoundTrips, unwrap

MOST_CAUGHT_UP: Final = 100
"""The most slots that one schedule with catch_up="all" fires in one tick."""
LATE, MISSED, NO_INSTANT = "late", "missed", "no instant"


@dataclass(frozen=True, slots=True)
class Entry:
    """What happens to one slot, or to several consecutive ones.

    Attributes:
        outcome: fire it, skip it, coalesce it into a later one, or disable a schedule that can't be fired.
        slot_ms: the slot, or the first of several.
        to_ms: the last slot.
        count: how many slots.
        detail: for fire, when the job is due; for skip and disable, the reason; for coalesce, the later slot.
    """

    outcome: Literal["fire", "skip", "coalesce", "disable"]
    slot_ms: int
    to_ms: int
    count: int
    detail: str | int


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to the due slots, and the next slot; None if there is none."""

    entries: tuple[Entry, ...]
    next_ms: int | None


def plan(definition: Definition, slot_ms: int, now_ms: int) -> Plan:
    """Plan what happens to all slots from the stored one, which must be due, until now."""
    if not 0 <= slot_ms <= LAST_INSTANT_MS:  # written by another program
        return Plan((Entry("skip", 0, 0, 1, NO_INSTANT),), definition.next_after(now_ms))
    upcoming = definition.next_after(slot_ms)
    if upcoming is None or upcoming > now_ms:
        late = Entry("skip", slot_ms, slot_ms, 1, LATE)
        return Plan((late if _is_late(definition, slot_ms, now_ms) else _fire(definition, slot_ms),), upcoming)
    if definition.catch_up == "all" and definition.overlap in ("allow", "skip"):
        return _each(definition, slot_ms, now_ms)
    return _latest(definition, slot_ms, upcoming, now_ms)


def missed(definition: Definition, first_ms: int, now_ms: int) -> tuple[int, int]:
    """The last slot from `first_ms`, itself a slot, until now, and how many there are; (0, 0) for none."""
    until = min(now_ms, definition.end_ms) if definition.end_ms else now_ms
    if first_ms > until:
        return 0, 0
    last = last_slot(definition.recurrence, first_ms, until)
    return last or first_ms, 1 + (definition.recurrence.count(first_ms, until) if last else 0)


def last_slot(recurrence: Recurrence, after_ms: int, until_ms: int) -> int | None:
    """The last slot after `after_ms` up to `until_ms`, found without iterating over the others."""
    found = None
    early, late = after_ms, until_ms
    while early < late:
        middle = (early + late) // 2
        slot = recurrence.next_after(middle)
        if slot is None or slot > until_ms:
            late = middle
        else:
            found = early = slot
    return found


def _fire(definition: Definition, slot_ms: int) -> Entry:
    return Entry("fire", slot_ms, slot_ms, 1, definition.due_ms(slot_ms))


def _is_late(definition: Definition, slot_ms: int, now_ms: int) -> bool:
    return 0 <= definition.latest_ms < now_ms - slot_ms


def _latest(definition: Definition, first_ms: int, second_ms: int, now_ms: int) -> Plan:
    """Fire the last slot unless it is too late; the others are coalesced into it or missed."""
    last, count = missed(definition, second_ms, now_ms)
    upcoming = definition.next_after(last)
    if _is_late(definition, last, now_ms):
        return Plan((Entry("skip", first_ms, last, count + 1, LATE),), upcoming)
    before = last_slot(definition.recurrence, first_ms, last - 1) or first_ms
    if definition.catch_up == "none":
        others = Entry("skip", first_ms, before, count, MISSED)
    else:
        others = Entry("coalesce", first_ms, before, count, last)
    return Plan((others, _fire(definition, last)), upcoming)


def _each(definition: Definition, first_ms: int, now_ms: int) -> Plan:
    """Fire all slots that are not too late, oldest first, at most 100 per tick."""
    slot: int | None = first_ms
    skipped: tuple[Entry, ...] = ()
    fired: list[Entry] = []
    if _is_late(definition, first_ms, now_ms):
        slot = definition.next_after(now_ms - definition.latest_ms - 1)
        last, count = missed(definition, first_ms, now_ms if slot is None else slot - 1)
        skipped = (Entry("skip", first_ms, last, count, LATE),)
    while slot is not None and slot <= now_ms and len(fired) < MOST_CAUGHT_UP:
        fired.append(_fire(definition, slot))
        slot = definition.next_after(slot)
    return Plan((*skipped, *fired), slot)


_FIRE: Final = Binding("fire", "kept", "plans")
MOST_FIRED: Final = 60
"""The most schedules in one script, which blocks all other clients for about 40 µs each."""
MOST_BATCHES: Final = 20
"""The most batches in one tick, before jobs are promoted and reclaimed again."""
_MOST_REMEMBERED: Final = 100_000


@dataclass(slots=True)
class Fired:
    """The result of one tick.

    Attributes:
        jobs: how many jobs were enqueued.
        moved: how many schedules moved on to another slot.
        upcoming_ms: the first slot that is not due yet, or None.
        has_more: whether more schedules are due.
        deferred: due schedules that must wait: for their last run, or because they caught up enough for one tick.
        disabled: schedules that can't be fired, with the reasons.
        offset: where the next tick continues; 0 if nothing is left.
        began_ms: Redis's clock when the tick began.
    """

    jobs: int = 0
    moved: int = 0
    upcoming_ms: int | None = None
    has_more: bool = False
    deferred: tuple[str, ...] = ()
    disabled: tuple[tuple[str, str], ...] = ()
    offset: int = 0
    began_ms: int = 0

    def add(self, batch: Sequence[tuple[ScheduleStatus, Plan]], reply: Any, now_ms: int) -> None:
        """Add the script's reply for a batch.

        Raises:
            SchedqError: the script failed.
        """
        jobs, words = unwrap(reply)
        self.jobs += jobs
        for (seen, made), word in zip(batch, words, strict=False):
            is_behind = made.next_ms is not None and made.next_ms <= now_ms
            if word == "WAITS" or (word == "FIRED" and is_behind):
                self.deferred += (seen.id,)
            if word in ("DISABLED", "GONE"):
                reason = str(made.entries[0].detail) if word == "DISABLED" else "it is gone"
                self.disabled += ((seen.id, reason),)
            self.moved += word == "FIRED"


class DefinitionCache:
    """Definitions that were read before, by digest; for damaged ones, the error."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Definition | str]] = {}

    def get(self, seen: ScheduleStatus) -> Definition | str | None:
        """The cached definition, or its error; None if it is not cached or has changed."""
        digest, known = self._known.get(seen.id, ("", None))
        return known if digest and digest == seen.definition else None

    def learn(self, seen: ScheduleStatus, reply: Any) -> Definition | str:
        """Parse the stored definition and cache it."""
        found: Definition | str
        try:
            found = Definition.from_fields(seen.id, unwrap(reply))
        except (UsageError, Conflict) as error:
            found = str(error)
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[seen.id] = (seen.definition, found)
        return found


def fire(queue: Settings, batch: Sequence[tuple[ScheduleStatus, Plan]]) -> Operation[tuple[int, tuple[str, ...]]]:
    """Carry out plans; returns how many jobs were enqueued and a word per schedule, fewer if there were too many."""
    plans: list[Argument] = []
    for seen, made in batch:
        plans += (
            as_bytes_if_needed(seen.id),
            seen.slot,
            as_bytes_if_needed(seen.definition),
            as_argument(made.next_ms),
            len(made.entries),
        )
        for entry in made.entries:
            plans += (entry.outcome, entry.slot_ms, entry.to_ms, entry.count, entry.detail)
    sent = _FIRE(queue, kept=SLOTS_KEPT, plans=plans)
    return Operation("fire", *sent, lambda reply: (int(reply[0]), tuple(reply[1:])))


def fire_due(
    queue: Settings,
    cache: DefinitionCache,
    deferred: Collection[str] = (),
    *,
    after_ms: int | None = None,
    offset: int = 0,
) -> RoundTrips[Fired]:
    """Fire due slots, in at most 20 batches.

    Args:
        queue: the queue of the schedules.
        cache: definitions read before.
        deferred: ids to skip.
        after_ms: only slots later than this.
        offset: how many of the earliest of these slots to skip.

    Raises:
        QueueFull: Redis's memory is full; the slots stay due.
    """
    (reply,) = yield [scan_schedules(queue, "due", offset, MOST_FIRED, after_ms=after_ms)]
    scan: ScheduleScan = unwrap(reply)
    fired, skipped = Fired(offset=offset, began_ms=scan.now_ms), set(deferred)
    for _ in range(MOST_BATCHES):
        batch = yield from _planned(queue, cache, [seen for seen in scan.found if seen.id not in skipped], scan.now_ms)
        # Skipped schedules stay at the start of the page.
        fired.offset += len([*takewhile(skipped.__contains__, (seen.id for seen in scan.found))])
        scan_again = scan_schedules(queue, "due", fired.offset, MOST_FIRED, after_ms=after_ms)
        if batch:
            replies = yield [fire(queue, batch), scan_again]
            fired.add(batch, replies[0], scan.now_ms)
            skipped.update(fired.deferred)
        elif len(scan.found) < MOST_FIRED:
            break
        else:
            replies = yield [scan_again]
        scan = unwrap(replies[-1])
    else:
        fired.has_more = bool(scan.found)
    return replace(fired, upcoming_ms=scan.upcoming_ms, offset=fired.offset if fired.has_more else 0)


def _planned(
    queue: Settings, cache: DefinitionCache, due: Sequence[ScheduleStatus], now_ms: int
) -> RoundTrips[list[tuple[ScheduleStatus, Plan]]]:
    """The due schedules with their plans; definitions that are not cached are read."""
    known = {seen.id: cache.get(seen) for seen in due}
    unknown = [seen for seen in due if known[seen.id] is None]
    replies = (yield [read(queue, seen.id) for seen in unknown]) if unknown else ()
    known |= {seen.id: cache.learn(seen, found) for seen, found in zip(unknown, replies, strict=True)}
    return [(seen, _plan_or_disable(known[seen.id], seen.slot, now_ms)) for seen in due]


def _plan_or_disable(definition: Definition | str | None, slot: str, now_ms: int) -> Plan:
    if isinstance(definition, Definition):
        try:
            return plan(definition, -1 if slot.startswith("-") else score_ms(slot), now_ms)
        except Exception as error:  # noqa: BLE001 - an error in one schedule must not stop the others
            definition = f"its slots can't be found: {type(error).__name__}: {error}"
    return disable(str(definition))


def disable(reason: str) -> Plan:
    """A plan that disables a schedule, which can't be fired until it is repaired."""
    return Plan((Entry("disable", 0, 0, 0, reason[:500]),), None)
