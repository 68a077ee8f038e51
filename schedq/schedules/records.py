"""Read schedules: definitions and status, the outcomes of past slots, and the next slots."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast

from schedq.errors import Conflict, UsageError
from schedq.model.checks import checked_limit, whole_number
from schedq.model.keys import checked_schedule_id
from schedq.model.payload import decoded
from schedq.model.records import score_ms, whole
from schedq.model.settings import Settings
from schedq.model.times import LAST_INSTANT_MS
from schedq.schedules.definition import Definition
from schedq.transitions import Argument, Binding, Operation, RoundTrips, identity, pairs, unwrap

T = TypeVar("T")
State = Literal["active", "paused", "ended", "damaged"]
SLOTS_KEPT: Final = 100
MOST_TRIES: Final = 20
_SCAN: Final = Binding("scan_schedules", "mode", "offset", "limit", "after", "ids")


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """The status of one schedule.

    Attributes:
        slot: its score in Redis, '' if it has none.
        definition: digest of the definition, '' if there is none.
        timing: digest of the fields that determine the slots.
        version: its version, as stored.
        owner: its owner.
        is_paused: whether it is paused.
        error: why it was disabled, or ''.
        replaced: digests of its previous definitions.
    """

    id: str
    slot: str
    definition: str
    timing: str
    version: str
    owner: str
    is_paused: bool
    error: str
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduleScan:
    """The result of a scan.

    Attributes:
        now_ms: Redis's clock.
        upcoming_ms: the first slot that is not due yet, or None.
        found: status of the requested schedules.
    """

    now_ms: int
    upcoming_ms: int | None
    found: tuple[ScheduleStatus, ...]


def scan_schedules(
    queue: Settings, mode: str, offset: int = 0, limit: int = 0, ids: Sequence[str] = (), *, after_ms: int | None = None
) -> Operation[ScheduleScan]:
    """Scan schedules: those 'due' (optionally with slots after an instant), 'all', or 'these' ids."""
    sent = _SCAN(queue, mode=mode, offset=offset, limit=limit, after=as_argument(after_ms), ids=ids)
    return Operation("peek", *sent, _scan_of)


def _scan_of(reply: list[Any]) -> ScheduleScan:
    rows = (reply[first : first + 9] for first in range(2, len(reply), 9))
    found = tuple(ScheduleStatus(*(*row[:6], row[6] != "", row[7], tuple(row[8].split()))) for row in rows)
    return ScheduleScan(int(reply[0]), score_ms(reply[1]) if reply[1] else None, found)


def read(queue: Settings, schedule_id: str) -> Operation[dict[str, str]]:
    """All fields of a schedule's hash; empty if there is none."""
    key = queue.keys.schedule(schedule_id)
    return Operation(f"read {key}", None, (), ("HGETALL", as_bytes_if_needed(key)), pairs)


def as_argument(instant_ms: int | None) -> Argument:
    """An instant in the form for scripts: '' for none."""
    return "" if instant_ms is None else instant_ms


def as_bytes_if_needed(text: str) -> str:
    """The text, or its bytes if Redis sent invalid UTF-8, which can only be sent back as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return cast(str, text.encode(errors="surrogateescape"))
    return text


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """The outcome of one slot, or of several consecutive ones; instants and durations in ms.

    Attributes:
        slot_ms: the slot, or the first of several.
        to_ms: the last slot.
        count: how many slots.
        outcome: "fired", "skipped" or "coalesced".
        why: why it was skipped.
        job_id: the job of a fired slot.
        into_ms: the slot that a coalesced one was merged into.
        late_ms: how late it was handled.
        at_ms: when it was handled.
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
    """Everything stored about one schedule; instants are ms on Redis's clock, 0 where they do not apply.

    Attributes:
        id: the schedule.
        state: "active"; "paused"; "ended": it has no more slots; "damaged": it can't be fired, and `error` says why.
        cron: its expression, or ''.
        every_ms: its interval, or 0.
        tz: its time zone.
        words: its timing in words; '' if that can't be read.
        payload: the payload of its jobs, decoded; None if it can't be read.
        next_slot_ms: the next slot, or None.
        last_slot_ms: the last slot that was handled.
        last_fired_at_ms: when a slot was last fired.
        last_job_id: the job of the last run, or ''.
        runs: how many slots were fired.
        paused_at_ms: when it was paused.
        error: why it can't be fired, or ''.
        owner: its owner.
        version: its version.
        created_at_ms: when it was created.
        changed_at_ms: when it was last changed.
        slots: the outcomes of the last 100 slots, newest first; only `get` reads them.
        fields: the stored hash, unchanged.
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
        """Read what is stored, whichever program wrote it; invalid values read as empty."""
        problem, words = fields.get("error", ""), ""
        try:
            words = Definition.from_fields(schedule_id, fields).describe()
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
            payload=decoded(fields.get("payload", "")),
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
class ScheduleSnapshot:
    """One schedule at one instant: its status, all its fields, Redis's clock."""

    seen: ScheduleStatus
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


def look(queue: Settings, schedule_id: str) -> RoundTrips[ScheduleSnapshot]:
    """A snapshot of a schedule; without fields if there is no such schedule."""
    checked_schedule_id(schedule_id)
    scan, stored = yield [scan_schedules(queue, "these", ids=[schedule_id]), read(queue, schedule_id)]
    looked: ScheduleScan = unwrap(scan)
    return ScheduleSnapshot(looked.found[0], unwrap(stored), looked.now_ms)


def found(queue: Settings, schedule_id: str) -> RoundTrips[ScheduleSnapshot]:
    """A snapshot of an existing schedule.

    Raises:
        UsageError: there is no such schedule.
    """
    seen = yield from look(queue, schedule_id)
    if not seen.fields:
        raise UsageError(f"queue {queue.name} has no schedule {schedule_id}")
    return seen


def retry_on_conflict(
    queue: Settings, schedule_id: str, decide: Callable[[ScheduleSnapshot], Operation[Any] | T]
) -> RoundTrips[Any]:
    """Act on a snapshot of a schedule; repeat if another client changed the schedule in between."""
    for _ in range(MOST_TRIES):
        made = decide((yield from look(queue, schedule_id)))
        if not isinstance(made, Operation):
            return made
        (reply,) = yield [made]
        word = unwrap(reply)
        if word != "AGAIN":
            return word
    raise Conflict(f"schedule {schedule_id} of queue {queue.name} keeps being changed by other clients")


def get(queue: Settings, schedule_id: str) -> RoundTrips[ScheduleRecord | None]:
    """Everything stored about a schedule; None if nothing is."""
    key = queue.keys.slots(checked_schedule_id(schedule_id))
    score, fields, lines = yield [
        Operation("schedule", None, (), ("ZSCORE", queue.keys.schedules, schedule_id), identity),
        read(queue, schedule_id),
        Operation("slots", None, (), ("LRANGE", key, 0, SLOTS_KEPT - 1), list),
    ]
    if not unwrap(fields) and unwrap(score) is None:
        return None
    return ScheduleRecord.from_fields(schedule_id, score, fields, [] if isinstance(lines, Conflict) else unwrap(lines))


def page(queue: Settings, offset: int, limit: int) -> RoundTrips[list[ScheduleRecord]]:
    """A page of schedules without their past slots, earliest next slot first.

    Raises:
        UsageError: `offset` is below 0, or `limit` is not 1 to 1000.
    """
    last = whole_number("offset", offset, 0) + checked_limit(limit) - 1
    command = ("ZRANGE", queue.keys.schedules, offset, last, "WITHSCORES")
    (reply,) = yield [Operation("schedules", None, (), command, list)]
    rows: list[str] = unwrap(reply)
    replies = (yield [read(queue, schedule_id) for schedule_id in rows[::2]]) if rows else ()
    return [
        ScheduleRecord.from_fields(schedule_id, score, {} if isinstance(fields, Conflict) else unwrap(fields))
        for schedule_id, score, fields in zip(rows[::2], rows[1::2], replies, strict=True)
    ]


def next_slots(queue: Settings, schedule_id: str, count: int) -> RoundTrips[tuple[str, list[int]]]:
    """A schedule's time zone and next slots, ms; if it is paused, those it would have if resumed now.

    Raises:
        UsageError: the schedule does not exist or is damaged.
    """
    whole_number("n", count, 1, 1000)
    it = yield from found(queue, schedule_id)
    definition, slot = it.definition(), None
    if it.seen.is_paused:
        slot = definition.next_after(it.now_ms)
    elif it.seen.slot not in ("", "inf"):
        slot = score_ms(it.seen.slot)
    if definition.max_runs:
        count = min(count, max(0, definition.max_runs - whole(it.fields.get("runs"))))
    slots: list[int] = []
    while slot is not None and len(slots) < count and slot <= LAST_INSTANT_MS:
        slots.append(slot)
        slot = definition.next_after(slot)
    return definition.tz, slots


def _slot(line: str) -> SlotRecord | None:
    try:
        entry = json.loads(line)
        late = entry.get("late_ms", 0)
        return SlotRecord(
            slot_ms=whole(entry.get("slot_ms")),
            to_ms=whole(entry.get("to_ms")),
            count=whole(entry.get("count")),
            outcome=str(entry.get("outcome", "")),
            why=str(entry.get("why", "")),
            job_id=str(entry.get("job_id", "")),
            into_ms=whole(entry.get("into_ms")),
            late_ms=late if isinstance(late, int) else 0,
            at_ms=whole(entry.get("at_ms")),
        )
    except (ValueError, AttributeError, RecursionError):
        return None
