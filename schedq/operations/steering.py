"""What an operator does to a schedule: pause, resume, trigger, delete, fill in a past time."""

from __future__ import annotations

from typing import Final

from schedq import lua
from schedq.errors import Conflict, UsageError
from schedq.ids import new_request
from schedq.job import score_ms, whole
from schedq.keys import checked_schedule_id
from schedq.operations import Argument, Flow, Operation, firm
from schedq.operations.enqueue import enqueue_many
from schedq.operations.firing import SLOTS_KEPT, Glance, sendable
from schedq.operations.preparing import Prepared
from schedq.operations.timetable import Look, found, until_unseen
from schedq.settings import Settings
from schedq.slots import missed

MOST_BACKFILLED: Final = 100_000


def pause(queue: Settings, schedule_id: str) -> Operation[bool]:
    """Let it have no slots until it is resumed; answers whether it had any."""
    seen = Glance(checked_schedule_id(schedule_id), "", "", "", "", "", is_paused=False, error="")
    made = _steer(queue, "pause", seen, None, new_request())
    return Operation(made.name, made.script, made.keys, made.args, lambda reply: bool(reply == "yes"))


def resume(queue: Settings, schedule_id: str) -> Flow[bool]:
    """Let it go on from now; answers whether it was paused, or parked."""
    request = new_request()

    def step(it: Look) -> Operation[str] | str:
        if not it.fields or not (it.seen.is_paused or it.seen.error):
            return "no"
        definition, parked = it.definition(), whole(it.fields.get("parked_ms"))
        last, count = missed(definition, parked, it.now_ms) if parked else (0, 0)
        passed = (parked, last, count) if count else None
        return _steer(queue, "resume", it.seen, definition.next_after(it.now_ms), request, passed=passed)

    return bool((yield from until_unseen(queue, schedule_id, step)) == "yes")


def trigger(queue: Settings, schedule_id: str) -> Operation[str | None]:
    """Make one job of it now, whatever its slots; answers the job's id, None if there is no such schedule.

    No slot's job can have this id: theirs end in digits alone.
    """
    keys = queue.keys
    job_id = f"{checked_schedule_id(schedule_id)}-t{new_request()[:14]}"
    return Operation(
        "trigger",
        lua.load("trigger"),
        (keys.pending, keys.stats, keys.wake, keys.paused, keys.log, keys.schedule(schedule_id)),
        (keys.jobs, queue.now_argument(), queue.log_size, schedule_id, job_id),
        lambda reply: job_id if reply == "yes" else None,
        repeatable_s=queue.repeatable_s,
    )


def delete(queue: Settings, schedule_id: str) -> Operation[bool]:
    """Delete it and the account of its slots; answers whether it was there."""
    made = drop(queue, checked_schedule_id(schedule_id), "")
    return Operation(made.name, made.script, made.keys, made.args, lambda reply: bool(reply == "yes"))


def backfill(queue: Settings, schedule_id: str, start_ms: int, end_ms: int, rate: float) -> Flow[int]:
    """Enqueue the slots of a past time, `rate` per second; answers how many there are.

    The jobs are named as their slots are, so those that were fired, or filled in before, are not made again.

    Raises:
        UsageError: no such schedule, none of its slots are in that time, or more than 100,000 are.
    """
    if not 0.001 <= rate <= 10_000:
        raise UsageError(f"rate must be 0.001 to 10,000 jobs a second, got {rate!r}")
    it = yield from found(queue, schedule_id)
    definition = it.definition()
    last = min(end_ms, it.now_ms, definition.end_ms or end_ms)
    if it.seen.slot not in ("", "inf"):
        last = min(last, score_ms(it.seen.slot) - 1)
    first = max(start_ms, definition.start_ms) - 1
    count = definition.rhythm.count(first, last) if first < last else 0
    if count == 0:
        raise UsageError(f"schedule {schedule_id} has no slot in that time that is past")
    if count > MOST_BACKFILLED:
        raise UsageError(f"schedule {schedule_id} has {count:,} slots in that time, more than {MOST_BACKFILLED:,}")
    slots = list(definition.rhythm.between(first, last))
    note = f"{count} slots from {slots[0]} to {slots[-1]}"
    (answer,) = yield [_steer(queue, "backfill", it.seen, None, new_request(), note=note)]
    if firm(answer) != "yes":
        raise Conflict(f"schedule {schedule_id} was changed meanwhile; look again")
    options = (*definition.job_fields(), "schedule", schedule_id)
    jobs = [
        Prepared(
            f"{schedule_id}-{slot}",
            definition.payload,
            "in",
            int(number * 1000 / rate),
            fields=(*options, "slot_ms", slot),
            is_callers_id=True,
            durability=queue.durability,
        )
        for number, slot in enumerate(slots)
    ]
    yield from enqueue_many(queue, jobs)
    return count


def drop(queue: Settings, schedule_id: str, seen: str) -> Operation[str]:
    """Delete it if its definition is the one that was seen; yes, no or AGAIN."""
    keys = queue.keys
    return Operation(
        "delete",
        lua.load("drop"),
        (keys.schedules, keys.schedule(schedule_id), keys.slots(schedule_id), keys.log),
        (queue.now_argument(), queue.log_size, schedule_id, sendable(seen)),
        lambda reply: reply,
    )


def _steer(
    queue: Settings,
    act: str,
    seen: Glance,
    upcoming: int | None,
    request: str,
    *,
    note: str = "",
    passed: tuple[int, int, int] | None = None,
) -> Operation[str]:
    keys = queue.keys
    slot: Argument = "" if upcoming is None else upcoming
    return Operation(
        act,
        lua.load("steer"),
        (keys.schedules, keys.schedule(seen.id), keys.slots(seen.id), keys.log),
        (
            queue.now_argument(),
            queue.log_size,
            keys.due,
            request,
            seen.id,
            act,
            sendable(seen.definition),
            slot,
            SLOTS_KEPT,
            note,
            *(passed or ("", "", "")),
        ),
        lambda reply: reply,
    )
