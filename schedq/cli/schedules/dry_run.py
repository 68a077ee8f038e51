"""What commands that change schedules would do: `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

import click

from schedq.cli import output
from schedq.cli.queues import wrong_usage
from schedq.cli.schedules.show import slot_text
from schedq.inspect import display, queue_names
from schedq.queue.queue import Queue
from schedq.queue.registry import NO_PAYLOAD
from schedq.schedules import control, records
from schedq.schedules.definition import Definition
from schedq.schedules.preview import preview
from schedq.schedules.records import ScheduleRecord
from schedq.schedules.register import Registration, register

Plan = Callable[[Queue, ScheduleRecord], str]
"""Says what would be done with a schedule."""
dry_run_option: Final = click.option("--dry-run", "is_dry", is_flag=True, help="Only print what would change.")
_PAGE: Final = 1000


def pause(_queue: Queue, record: ScheduleRecord) -> str:
    """As `schedules pause`."""
    return "is already paused" if record.paused_at_ms else "would be paused"


def resume(queue: Queue, record: ScheduleRecord) -> str:
    """As `schedules resume`."""
    if not (record.paused_at_ms or record.error):
        return "is not paused"
    slots = queue.schedules.next_slots(record.id, 1)
    upcoming = f"next slot {slots[0].isoformat(' ', 'seconds')}" if slots else "it has no more slots"
    return f"would be resumed; {upcoming}"


def trigger(_queue: Queue, record: ScheduleRecord) -> str:
    """As `schedules trigger`."""
    return f"would be triggered: {display.stored(record.fields, 'payload')}"


def rm(_queue: Queue, record: ScheduleRecord) -> str:
    """As `schedules rm`."""
    return f"would be deleted: {record.words}" if record.words else "would be deleted"


def planned(plan: Plan) -> Callable[[Queue, str], output.ActionResult | None]:
    """An action that only says what would be done; None if there is no such schedule."""

    def act(queue: Queue, schedule_id: str) -> output.ActionResult | None:
        record = queue.schedules.get(schedule_id)
        return None if record is None else output.ActionResult(plan(queue, record))

    return act


def backfill(queue: Queue, schedule_id: str, first_ms: int, last_ms: int) -> tuple[int, int]:
    """How many slots a backfill has, and how many of them have no job yet."""
    slots = queue._drive(control.backfill_slots(queue.settings, schedule_id, first_ms, last_ms))
    keys = queue.settings.keys
    there, _ = queue._drive(queue_names.existing([keys.job(f"{schedule_id}-{slot}") for slot in slots]))
    return len(slots), len(slots) - len(there)


def update(queue: Queue, schedule_id: str, given: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what an update would change."""
    it = queue._drive(records.found(queue.settings, schedule_id))
    with wrong_usage():
        old = it.definition()
        options = {name: value for name, value in given.items() if name not in ("cron", "every", "args", "kwargs")}
        new = queue.schedules._changed(
            None,
            given.get("args"),
            given.get("kwargs"),
            NO_PAYLOAD,
            old,
            cron=given.get("cron"),
            every=given.get("every"),
            options=options,  # type: ignore[arg-type]
        )
    word = "kept" if old.version > new.version else "changed" if old != new else "unchanged"
    changes = _differences(old, new) if word == "changed" else {}
    if as_json:
        about = {"queue": queue.name, "id": schedule_id, "dry_run": True, "result": word}
        output.show_json(about | {"changes": {name: {"old": a, "new": b} for name, (a, b) in changes.items()}})
        return
    words = {"changed": "would be changed", "unchanged": "would stay as it is"}
    output.line(f"{schedule_id}: {words.get(word, 'would stay as it is: a newer version of the application wrote it')}")
    for name, (before, after) in changes.items():
        output.line(f"  {name}: {before or display.NOTHING} → {after or display.NOTHING}")
    if old.timing != new.timing and word == "changed":
        slot = new.next_after(it.now_ms)
        output.line(f"  next slot: {display.NOTHING if slot is None else slot_text(slot, new.tz)}")


def _differences(old: Definition, new: Definition) -> dict[str, tuple[Any, Any]]:
    pairs = {one.name: (getattr(old, one.name), getattr(new, one.name)) for one in fields(Definition)}
    return {name: (before, after) for name, (before, after) in pairs.items() if before != after}


def registration(queue: Queue, *, prune: bool) -> Registration:
    """What storing the schedules in an application's code would do."""
    known = queue.schedules._registry
    trips = register(queue.settings, known.schedules, known.owners, prune=prune)
    found = queue._drive(preview(trips))
    stored = _ids(queue)
    return replace(
        found,
        created=tuple(one for one in found.changed if one not in stored),
        changed=tuple(one for one in found.changed if one in stored),
    )


def _ids(queue: Queue) -> set[str]:
    found: set[str] = set()
    while page := queue.schedules.list(len(found), _PAGE):
        found.update(record.id for record in page)
        if len(page) < _PAGE:
            break
    return found
