"""Looking at schedules: their definitions, how they stand, what became of their slots, which come next."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from schedq.errors import Conflict, UsageError
from schedq.instants import LAST_INSTANT_MS
from schedq.job import score_ms, whole
from schedq.keys import checked_schedule_id
from schedq.operations import Flow, Operation, firm, same
from schedq.operations.firing import SLOTS_KEPT, Glance, Peeked, peek, read
from schedq.operations.views import checked_limit
from schedq.payload import UnreadablePayload, decode
from schedq.schedule import Definition
from schedq.settings import Settings

T = TypeVar("T")
State = Literal["active", "paused", "ended", "damaged"]
_MOST_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """What became of one slot, or of several in a row; instants and durations in ms.

    Attributes:
        slot_ms: the slot, the first one of several.
        to_ms: the last one.
        count: how many.
        outcome: "fired", "skipped" or "coalesced".
        why: of a skipped one.
        job_id: of a fired one.
        into_ms: of a coalesced one, the slot that stands for it.
        late_ms: how much later than its time it was dealt with.
        at_ms: when that was.
    """

    slot_ms: int
    to_ms: int
    count: int
    outcome: str
    why: str = ""
    job_id: str = ""
    into_ms: int = 0
    late_ms: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """All that is stored of one schedule; instants are ms on Redis's clock, 0 where they do not apply.

    Attributes:
        id: the schedule.
        state: "active"; "paused"; "ended": it has no slots any more; "damaged": it can't be fired, `error` says why.
        cron: its expression, or ''.
        every_ms: its interval, or 0.
        tz: its time zone.
        words: when it has slots, in words; '' if that can't be read.
        payload: of its jobs, decoded; None if it can't be read.
        next_slot_ms: the next slot, or None.
        last_slot_ms: the last one that was dealt with.
        last_fired_at_ms: when a job was last made of a slot.
        last_job_id: the job of the last run, or ''.
        runs: slots that were fired.
        paused_at_ms: since when it is paused.
        error: why it can't be fired, or ''.
        owner: whose it is.
        version: of the application that wrote it.
        created_at_ms: when it was written first.
        changed_at_ms: when it was written last.
        slots: what became of the last 100 slots, newest first; only `get` reads them.
        fields: the hash as it is.
    """

    id: str
    state: State
    cron: str
    every_ms: int
    tz: str
    words: str
    payload: Any
    next_slot_ms: int | None
    last_slot_ms: int
    last_fired_at_ms: int
    last_job_id: str
    runs: int
    paused_at_ms: int
    error: str
    owner: str
    version: int
    created_at_ms: int
    changed_at_ms: int
    slots: tuple[SlotRecord, ...]
    fields: Mapping[str, str]

    @classmethod
    def from_fields(
        cls, schedule_id: str, score: str | None, fields: Mapping[str, str], lines: Sequence[str] = ()
    ) -> ScheduleRecord:
        """Read what is stored, whoever wrote it; what makes no sense reads as nothing."""
        problem, words = fields.get("error", ""), ""
        try:
            words = Definition.from_fields(schedule_id, fields).words()
        except UsageError as error:
            problem = problem or str(error)
        is_paused = "paused_at_ms" in fields
        upcoming = None if score in (None, "", "inf") else score_ms(score)
        state: State = (
            "paused" if is_paused else "damaged" if problem else "active" if upcoming is not None else "ended"
        )
        return cls(
            id=schedule_id,
            state=state,
            cron=fields.get("cron", ""),
            every_ms=whole(fields.get("every_ms")),
            tz=fields.get("tz", "UTC"),
            words=words,
            payload=_decoded(fields.get("payload", "")),
            next_slot_ms=upcoming,
            last_slot_ms=whole(fields.get("last_slot_ms")),
            last_fired_at_ms=whole(fields.get("last_fired_at_ms")),
            last_job_id=fields.get("last_job_id", ""),
            runs=whole(fields.get("runs")),
            paused_at_ms=whole(fields.get("paused_at_ms")),
            error=problem,
            owner=fields.get("owner", ""),
            version=whole(fields.get("version")),
            created_at_ms=whole(fields.get("created_at_ms")),
            changed_at_ms=whole(fields.get("changed_at_ms")),
            slots=tuple(slot for line in lines if (slot := _slot(line)) is not None),
            fields=dict(fields),
        )


@dataclass(frozen=True, slots=True)
class Look:
    """One schedule as it stands: what is beside its entry, all its fields, Redis's clock."""

    seen: Glance
    fields: Mapping[str, str]
    now_ms: int

    def definition(self) -> Definition:
        """Its definition.

        Raises:
            UsageError: it is damaged.
        """
        try:
            return Definition.from_fields(self.seen.id, self.fields)
        except UsageError as error:
            raise UsageError(f"schedule {self.seen.id} is damaged: {error}") from error


def look(queue: Settings, schedule_id: str) -> Flow[Look]:
    """How a schedule stands; without fields if there is none."""
    checked_schedule_id(schedule_id)
    peeked, stored = yield [peek(queue, "these", 0, 0, [schedule_id]), read(queue, schedule_id)]
    looked: Peeked = firm(peeked)
    return Look(looked.found[0], firm(stored), looked.now_ms)


def found(queue: Settings, schedule_id: str) -> Flow[Look]:
    """How a schedule stands.

    Raises:
        UsageError: there is none.
    """
    seen = yield from look(queue, schedule_id)
    if not seen.fields:
        raise UsageError(f"queue {queue.name} has no schedule {schedule_id}")
    return seen


def until_unseen(queue: Settings, schedule_id: str, step: Callable[[Look], Operation[Any] | T]) -> Flow[Any]:
    """Look, and act on what was seen, until nobody else acted in between."""
    for _ in range(_MOST_TRIES):
        made = step((yield from look(queue, schedule_id)))
        if not isinstance(made, Operation):
            return made
        (answer,) = yield [made]
        word = firm(answer)
        if word != "AGAIN":
            return word
    raise Conflict(f"schedule {schedule_id} of queue {queue.name} is changed by others all the time")


def get(queue: Settings, schedule_id: str) -> Flow[ScheduleRecord | None]:
    """All that is stored of a schedule, None if nothing is."""
    key = queue.keys.slots(checked_schedule_id(schedule_id))
    score, fields, lines = yield [
        Operation("schedule", None, (), ("ZSCORE", queue.keys.schedules, schedule_id), same),
        read(queue, schedule_id),
        Operation("slots", None, (), ("LRANGE", key, 0, SLOTS_KEPT - 1), list),
    ]
    if not firm(fields) and firm(score) is None:
        return None
    return ScheduleRecord.from_fields(schedule_id, score, fields, [] if isinstance(lines, Conflict) else firm(lines))


def page(queue: Settings, offset: int, limit: int) -> Flow[list[ScheduleRecord]]:
    """Schedules without the account of their slots, the one with the earliest next slot first.

    Raises:
        UsageError: offset below 0, or limit not within 1 and 1000.
    """
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise UsageError(f"offset must be a whole number of at least 0, got {offset!r}")
    last = offset + checked_limit(limit) - 1
    command = ("ZRANGE", queue.keys.schedules, offset, last, "WITHSCORES")
    (answer,) = yield [Operation("schedules", None, (), command, list)]
    rows: list[str] = firm(answer)
    answers = (yield [read(queue, schedule_id) for schedule_id in rows[::2]]) if rows else ()
    return [
        ScheduleRecord.from_fields(schedule_id, score, {} if isinstance(fields, Conflict) else firm(fields))
        for schedule_id, score, fields in zip(rows[::2], rows[1::2], answers, strict=True)
    ]


def next_slots(queue: Settings, schedule_id: str, count: int) -> Flow[tuple[str, list[int]]]:
    """Its time zone and its next slots, ms; those that it would have from now on, if it is paused.

    Raises:
        UsageError: no such schedule, or a damaged one.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000:
        raise UsageError(f"n must be a whole number of 1 to 1000, got {count!r}")
    it = yield from found(queue, schedule_id)
    definition, slot = it.definition(), None
    if it.seen.is_paused:
        slot = definition.next_after(it.now_ms)
    elif it.seen.slot not in ("", "inf"):
        slot = score_ms(it.seen.slot)
    slots: list[int] = []
    while slot is not None and len(slots) < count and slot <= LAST_INSTANT_MS:
        slots.append(slot)
        slot = definition.next_after(slot)
    return definition.tz, slots


def _decoded(text: str) -> Any:
    try:
        return decode(text)
    except UnreadablePayload:
        return None


def _slot(line: str) -> SlotRecord | None:
    try:
        said = json.loads(line)
        counts: dict[str, Any] = {
            name: whole(said.get(name)) for name in ("slot_ms", "to_ms", "count", "into_ms", "at_ms")
        }
        late = said.get("late_ms", 0)
        texts: dict[str, Any] = {name: str(said.get(name, "")) for name in ("outcome", "why", "job_id")}
        return SlotRecord(**counts, **texts, late_ms=late if isinstance(late, int) else 0)
    except (ValueError, AttributeError, RecursionError):
        return None
