"""Actions on a schedule: pause, resume, trigger, delete, backfill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from schedq.errors import Conflict, UsageError
from schedq.model.ids import new_request
from schedq.model.keys import checked_schedule_id
from schedq.model.records import score_ms, whole
from schedq.model.settings import Settings
from schedq.schedules.definition import Definition
from schedq.schedules.fire import missed
from schedq.schedules.records import (
    SLOTS_KEPT,
    ScheduleSnapshot,
    as_argument,
    as_bytes_if_needed,
    found,
    retry_on_conflict,
)
from schedq.transitions import Argument, Binding, Operation, RoundTrips, identity, unwrap
from schedq.transitions.enqueue import EncodedJob, enqueue_many

_TRIGGER: Final = Binding("trigger", "schedule", "id", "job_id")
_DELETE: Final = Binding("delete_schedule", "schedule", "slots", "id", "seen")
_CONTROL: Final = Binding(
    "control_schedule",
    *("schedule", "slots", "request", "id", "act", "seen", "slot", "kept", "note", "first", "last", "many"),
)
MOST_BACKFILLED: Final = 100_000


def pause(queue: Settings, schedule_id: str) -> Operation[bool]:
    """Pause a schedule; False if it does not exist or is already paused."""
    return _control(queue, "pause", checked_schedule_id(schedule_id), new_request())._replace(read=_is_yes)


def resume(queue: Settings, schedule_id: str) -> RoundTrips[bool]:
    """Resume a schedule from now; returns whether it was paused or disabled."""
    request = new_request()

    def decide(it: ScheduleSnapshot) -> Operation[str] | str:
        if not it.fields or not (it.seen.is_paused or it.seen.error):
            return "no"
        definition, disabled = it.definition(), whole(it.fields.get("parked_ms"))
        last, count = missed(definition, disabled, it.now_ms) if disabled else (0, 0)
        return _control(
            queue,
            "resume",
            schedule_id,
            request,
            seen=it.seen.definition,
            slot=as_argument(definition.next_after(it.now_ms)),
            passed=(disabled, last, count) if count else ("", "", ""),
        )

    return bool((yield from retry_on_conflict(queue, schedule_id, decide)) == "yes")


def trigger(queue: Settings, schedule_id: str) -> Operation[str | None]:
    """Enqueue a job now, whatever the slots; returns the job's id, None if there is no such schedule.

    The id can't be that of a slot's job, because those end in digits only.
    """
    job_id = f"{checked_schedule_id(schedule_id)}-t{new_request()[:14]}"
    return Operation(
        "trigger",
        *_TRIGGER(queue, schedule=queue.keys.schedule(schedule_id), id=schedule_id, job_id=job_id),
        lambda reply: job_id if reply == "yes" else None,
        repeatable_s=queue.repeatable_s,
    )


def delete(queue: Settings, schedule_id: str) -> Operation[bool]:
    """Delete a schedule and the record of its slots; returns whether it existed."""
    return drop(queue, checked_schedule_id(schedule_id))


def backfill(queue: Settings, schedule_id: str, start_ms: int, end_ms: int, rate: float) -> RoundTrips[int]:
    """Enqueue the slots of a past period, `rate` per second; returns how many there are.

    The job ids contain the slots, so slots that were fired or backfilled before do not run again.

    Raises:
        UsageError: the schedule does not exist, or has no slot or more than 100,000 slots in that period.
    """
    if not 0.001 <= rate <= 10_000:
        raise UsageError(f"rate must be 0.001 to 10,000 jobs a second, got {rate!r}")
    it = yield from found(queue, schedule_id)
    definition = it.definition()
    slots = _past_slots(it, definition, start_ms, end_ms)
    note = f"{len(slots)} slots from {slots[0]} to {slots[-1]}"
    (reply,) = yield [_control(queue, "backfill", schedule_id, new_request(), seen=it.seen.definition, note=note)]
    if unwrap(reply) != "yes":
        raise Conflict(f"schedule {schedule_id} was changed at the same time; try again")
    jobs = [
        EncodedJob(
            f"{schedule_id}-{slot}",
            definition.payload,
            "in",
            delay_ms,
            fields=(*definition.job_fields(delay_ms), "schedule", schedule_id, "slot_ms", slot),
            is_callers_id=True,
            durability=queue.durability,
        )
        for delay_ms, slot in ((int(number * 1000 / rate), slot) for number, slot in enumerate(slots))
    ]
    yield from enqueue_many(queue, jobs)
    return len(slots)


def backfill_slots(queue: Settings, schedule_id: str, start_ms: int, end_ms: int) -> RoundTrips[list[int]]:
    """The slots that a backfill of this period would enqueue, whether or not their jobs exist.

    Raises:
        UsageError: as `backfill`.
    """
    it = yield from found(queue, schedule_id)
    return _past_slots(it, it.definition(), start_ms, end_ms)


def _past_slots(it: ScheduleSnapshot, definition: Definition, start_ms: int, end_ms: int) -> list[int]:
    last = min(end_ms, it.now_ms, definition.end_ms or end_ms)
    if it.seen.slot not in ("", "inf"):
        last = min(last, score_ms(it.seen.slot) - 1)
    first = max(start_ms, definition.start_ms) - 1
    count = definition.recurrence.count(first, last) if first < last else 0
    if count == 0:
        raise UsageError(f"schedule {it.seen.id} has no past slot in that period")
    if count > MOST_BACKFILLED:
        raise UsageError(f"schedule {it.seen.id} has {count:,} slots in that period, more than {MOST_BACKFILLED:,}")
    return list(definition.recurrence.between(first, last))


def drop(queue: Settings, schedule_id: str, seen: str = "") -> Operation[bool]:
    """Delete a schedule, even an invalid one; if `seen` is given, only while it is the digest of the definition."""
    keys = queue.keys
    return Operation(
        "delete",
        *_DELETE(
            queue,
            schedule=keys.schedule(schedule_id),
            slots=keys.slots(schedule_id),
            id=schedule_id,
            seen=as_bytes_if_needed(seen),
        ),
        _is_yes,
    )


def _control(
    queue: Settings,
    act: str,
    schedule_id: str,
    request: str,
    *,
    seen: str = "",
    slot: Argument = "",
    note: str = "",
    passed: Sequence[Argument] = ("", "", ""),
) -> Operation[Any]:
    first, last, many = passed
    return Operation(
        act,
        *_CONTROL(
            queue,
            schedule=queue.keys.schedule(schedule_id),
            slots=queue.keys.slots(schedule_id),
            request=request,
            id=schedule_id,
            act=act,
            seen=as_bytes_if_needed(seen),
            slot=slot,
            kept=SLOTS_KEPT,
            note=note,
            first=first,
            last=last,
            many=many,
        ),
        identity,
    )


def _is_yes(reply: Any) -> bool:
    return bool(reply == "yes")
