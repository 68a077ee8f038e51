"""`schedq schedules ls` and `next`: the schedules of a queue, and the slots that come."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click

from schedq.cli import show
from schedq.cli.options import json_option, queue_option, redis_option
from schedq.cli.queues import queue_of_job
from schedq.cli.schedules import telling
from schedq.cli.schedules.telling import SCHEDULE_ID
from schedq.cli.typed import QUEUE_NAME
from schedq.crontab import Crontab
from schedq.instants import instant_ms
from schedq.operations.timetable import ScheduleRecord
from schedq.queue import Queue
from schedq.schedule import Definition

_WIDE: Final = 100
"""Columns of a terminal below which only the times are shown; `schedules show` has the rest."""
# In the words of `schedq cron`.
_MARKS: Final = {
    "": "",
    "gap": "gap: for a time that clocks leave out",
    "first": "fold: the first of two",
    "second": "fold: the second of two",
}


@click.command(
    short_help="List the schedules of a queue.",
    epilog="""\b
Examples:
  schedq schedules ls
  schedq schedules ls emails --json""",
)
@click.argument("name", required=False, type=QUEUE_NAME)
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Schedules to pass over.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="Most shown.")
@queue_option
@redis_option
@json_option
def ls(
    name: str | None,
    offset: int,
    limit: int,
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """The schedules of queue NAME, the one with the earliest next slot first; its times are those of its own zone."""
    with queue_of_job(name or queue_name, redis_url) as queue:
        records = _page(queue, offset, limit)
        has_more = len(records) == limit and bool(queue.schedules.list(offset + limit, 1))
        now, name = queue.stats()["now_ms"], queue.name
    next_offset = offset + limit if has_more else None
    if as_json:
        found = [_brief(record) for record in records]
        show.out_json({"queue": name, "now_ms": now, "schedules": found, "offset": offset, "next_offset": next_offset})
        return
    if not records:
        show.line(f"queue {name} has no {'more ' if offset else ''}schedules")
        return
    rows = [_row(record, now) for record in records]
    if show.width() >= _WIDE:
        titles = ["id", "when", "zone", "next slot", "last slot", "became", "task"]
        show.out(show.table(titles, rows, times=(3, 4)))
    else:
        brief = [(row[0], row[1], row[3], row[4]) for row in rows]
        show.out(show.table(["id", "when", "next slot", "last slot"], brief, times=(2, 3)))
    if has_more:
        show.line(f"next page: schedq schedules ls {name} --limit {limit} --offset {next_offset}")


def _page(queue: Queue, offset: int, limit: int) -> list[ScheduleRecord]:
    """A page, each with what became of its last slots; as it was on the page if it is deleted meanwhile."""
    return [queue.schedules.get(record.id) or record for record in queue.schedules.list(offset, limit)]


def _brief(record: ScheduleRecord) -> dict[str, Any]:
    found = show.plain(record)
    del found["slots"]
    return {**found, "last_slot": asdict(record.slots[0]) if record.slots else None}


def _row(record: ScheduleRecord, now_ms: int) -> tuple[str, ...]:
    upcoming = record.state if record.next_slot_ms is None else telling.slot_text(record.next_slot_ms, record.tz)
    last = record.slots[0] if record.slots else None
    return (
        record.id,
        telling.timing(record),
        record.tz,
        record.state if record.state in ("paused", "damaged") else upcoming,
        show.roughly(last.to_ms, now_ms) if last else show.NOTHING,
        telling.became(last) if last else show.NOTHING,
        show.stored(record.fields, "payload"),
    )


@click.command(
    "next",
    short_help="Show the next slots of a schedule.",
    epilog="Example:  schedq schedules next nightly-report -n 5",
    no_args_is_help=True,
)
@click.argument("schedule_id", metavar="ID", type=SCHEDULE_ID)
@click.option(
    "-n", "number", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many slots to show."
)
@queue_option
@redis_option
@json_option
def upcoming(
    schedule_id: str,
    number: int,
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """The next slots of the schedule ID, with their offsets from UTC; of a paused one, as if it were resumed now."""
    with queue_of_job(queue_name, redis_url) as queue:
        name = queue.name
        record = queue.schedules.get(schedule_id)
        if record is None:
            raise click.ClickException(telling.nothing_stored(schedule_id, queue))
        slots = queue.schedules.next_slots(schedule_id, number)
    rhythm = Definition.from_fields(schedule_id, record.fields).rhythm
    crontab = rhythm if isinstance(rhythm, Crontab) else None
    if as_json:
        found = [_plain(slot, crontab) for slot in slots]
        show.out_json({"queue": name, "id": schedule_id, "tz": record.tz, "state": record.state, "slots": found})
        return
    note = "" if record.state == "active" else f" ({record.state})"
    show.line(f"{schedule_id}{note}: {record.words}")
    if slots:
        show.out(
            "",
            show.table(
                ("LOCAL", "OFFSET", "UTC", ""),
                [_row_of_next(slot, _mark(slot, crontab)) for slot in slots],
                times=(1, 2),
            ),
        )
    if len(slots) < number:
        show.line(f"There are no {'more ' if slots else ''}slots.")


def _mark(slot: datetime, crontab: Crontab | None) -> str:
    """What a change of clocks makes of a slot; an interval goes by real time."""
    return crontab.mark(instant_ms(slot, "slot")) if crontab else ""


def _plain(slot: datetime, crontab: Crontab | None) -> dict[str, Any]:
    return {"slot_ms": instant_ms(slot, "slot"), "local": slot.isoformat(), "mark": _mark(slot, crontab)}


def _row_of_next(slot: datetime, mark: str) -> tuple[str, str, str, str]:
    offset, at = slot.isoformat(timespec="seconds")[19:], slot.astimezone(UTC)
    return f"{slot:%a %Y-%m-%d %H:%M:%S}", offset, f"{at:%Y-%m-%d %H:%M:%S}", _MARKS[mark]
