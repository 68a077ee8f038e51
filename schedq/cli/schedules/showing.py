"""`schedq schedules show`: all that is stored of one schedule."""

from __future__ import annotations

from dataclasses import asdict

import click

from schedq.cli import show
from schedq.cli.options import json_option, queue_option, redis_option
from schedq.cli.queues import queue_of_job
from schedq.cli.schedules import telling
from schedq.cli.schedules.telling import SCHEDULE_ID
from schedq.errors import UsageError
from schedq.operations.timetable import ScheduleRecord
from schedq.schedule import Definition


@click.command(
    "show",
    short_help="Show all that is stored of one schedule.",
    epilog="Example:  schedq schedules show nightly-report --queue emails",
    no_args_is_help=True,
)
@click.argument("schedule_id", metavar="ID", type=SCHEDULE_ID)
@queue_option
@redis_option
@json_option
def show_one(
    schedule_id: str,
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """All that is stored of the schedule ID: when it has slots, its policies, and what became of its last slots."""
    with queue_of_job(queue_name, redis_url) as queue:
        record, now, name = queue.schedules.get(schedule_id), queue.stats()["now_ms"], queue.name
        if record is None:
            raise click.ClickException(telling.nothing_stored(schedule_id, queue))
    if as_json:
        found = {**show.plain(record), "slots": [asdict(slot) for slot in record.slots]}
        show.out_json({"queue": name, "now_ms": now, **found, "fields": dict(record.fields)})
        return
    show.out(show.facts([(what, text) for what, text in _facts(name, record, now) if text]))
    show.out("", show.heading("payload"))
    click.echo(show.pretty(record.fields.get("payload", "")))
    if record.slots:
        rows = [telling.slot_row(slot, record.tz) for slot in record.slots]
        show.out(
            "",
            show.heading("slots, the last 100"),
            show.table(["slot", "became", "job", "late by"], rows, whole=2, times=(0, 3)),
        )


def _facts(name: str, record: ScheduleRecord, now_ms: int) -> list[tuple[str, str]]:
    upcoming = record.next_slot_ms
    most = record.fields.get("max_runs", "")
    return [
        ("schedule", record.id),
        ("queue", name),
        ("state", record.state),
        ("error", record.error),
        ("when", record.words),
        ("cron", record.cron),
        ("zone", record.tz),
        ("next slot", _slot(upcoming, record, now_ms) if upcoming is not None and not record.paused_at_ms else ""),
        ("last slot", _slot(record.last_slot_ms, record, now_ms) if record.last_slot_ms else ""),
        ("last run", record.last_job_id),
        ("runs", f"{record.runs:,}" + (f" of {most}" if most else "")),
        *_policies(record),
        ("owner", f"{record.owner}, version {record.version}" if record.owner else ""),
        ("version", str(record.version) if record.version and not record.owner else ""),
        *((what, show.moment(at, now_ms)) for what, at in _times(record) if at),
    ]


def _slot(slot_ms: int, record: ScheduleRecord, now_ms: int) -> str:
    return f"{telling.slot_text(slot_ms, record.tz)} ({show.apart(slot_ms, now_ms)})"


def _policies(record: ScheduleRecord) -> list[tuple[str, str]]:
    try:
        return telling.policies(Definition.from_fields(record.id, record.fields))
    except UsageError:
        return []  # damaged: `error` says how


def _times(record: ScheduleRecord) -> tuple[tuple[str, int], ...]:
    return (
        ("paused", record.paused_at_ms),
        ("created", record.created_at_ms),
        ("changed", record.changed_at_ms),
    )
