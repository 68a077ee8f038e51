"""`schedq schedules ls`, `show` and `next`, and `schedq cron`: show schedules and their slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple, get_args
from zoneinfo import ZoneInfo, available_timezones

import click
from click.shell_completion import CompletionItem
from rich.table import Table

from schedq.cli import offers, output
from schedq.cli.params import QUEUE_NAME, Offered, any_queue_option, json_option, queue_of_id_option, redis_option
from schedq.cli.queues import all_names, open_queue, queue_of_job, queue_of_schedule, wrong_usage
from schedq.errors import UsageError
from schedq.inspect import display, plain
from schedq.inspect.queue_names import nearest
from schedq.model.keys import checked_schedule_id
from schedq.model.times import LAST_INSTANT_MS, instant_ms, span
from schedq.queue.queue import Queue
from schedq.schedules.crontab.crontab import Crontab, Fold, Gap, parse
from schedq.schedules.definition import Definition
from schedq.schedules.records import ScheduleRecord, SlotRecord

_MOST_COMPARED: Final = 1000
_CATCH_UP: Final = {
    "latest": "the last of them runs; the others are coalesced into it",
    "all": "each runs",
    "none": "none runs",
}
_MARKS: Final = {
    "": "",
    "gap": "gap: replaces a local time that clocks skip",
    "first": "fold: the first of two",
    "second": "fold: the second of two",
}
_OVERLAP: Final = {
    "allow": "another run starts in parallel",
    "skip": "the slot is skipped",
    "queue_one": "one run waits until it has ended",
    "cancel_running": "it is cancelled, and the new run starts",
}
SCHEDULE_ID: Final = Offered("id", checked_schedule_id, offers.schedules)
_TITLES: Final = ("id", "when", "zone", "next slot", "last slot", "outcome", "task")
_WIDE: Final = 100
"""Terminals narrower than this show only the times; `schedules show` has the rest."""


def nothing_stored(schedule_id: str, queue: Queue) -> str:
    """The error for a missing schedule, with the most similar id."""
    there = [record.id for record in queue.schedules.list(0, _MOST_COMPARED)]
    return f"queue {queue.name} has no schedule {schedule_id}{nearest(schedule_id, there)}"


@click.command(
    epilog="""\b
Examples:
  schedq schedules ls
  schedq schedules ls emails --json""",
)
@click.argument("name", required=False, type=QUEUE_NAME)
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Number of schedules to skip.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="Maximum shown."
)
@any_queue_option
@redis_option
@json_option
def ls(name: str | None, offset: int, limit: int, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """List the schedules of the queue NAME by next slot, earliest first; times are in each schedule's time zone.

    Without a name, those of every queue that has any.
    """
    chosen = name or queue_name
    names = [] if chosen else all_names(redis_url)
    if len(names) < 2:
        with queue_of_job(chosen, redis_url) as queue:
            _show_page(_page(queue, offset, limit), limit, as_json=as_json)
        return
    pages = []
    for each in names:
        with open_queue(each, redis_url) as queue:
            pages.append(_page(queue, offset, limit))
    pages = [page for page in pages if page.records]
    if as_json:
        output.show_json({"queues": [page.json() for page in pages]})
        return
    if not pages:
        output.line(f"none of the {len(names)} queues here has {'more ' if offset else ''}schedules")
    for page in pages:
        output.line(f"queue {page.queue}")
        _show_page(page, limit, as_json=False)


class _SchedulePage(NamedTuple):
    """A page of one queue's schedules; `next_offset` is None on the last one."""

    queue: str
    now_ms: int
    records: list[ScheduleRecord]
    offset: int
    next_offset: int | None

    def json(self) -> dict[str, Any]:
        """The page as an object of JSON."""
        return plain.schedule_page(*self)


def _page(queue: Queue, offset: int, limit: int) -> _SchedulePage:
    # `get` adds the last slots; a schedule that was deleted since is shown as the page had it.
    records = [queue.schedules.get(record.id) or record for record in queue.schedules.list(offset, limit)]
    has_more = len(records) == limit and bool(queue.schedules.list(offset + limit, 1))
    return _SchedulePage(queue.name, queue.stats()["now_ms"], records, offset, offset + limit if has_more else None)


def _show_page(page: _SchedulePage, limit: int, *, as_json: bool) -> None:
    if as_json:
        output.show_json(page.json())
        return
    if not page.records:
        output.line(f"queue {page.queue} has no {'more ' if page.offset else ''}schedules")
        return
    rows = [_row(record, page.now_ms) for record in page.records]
    if output.width() >= _WIDE:
        output.show(output.table(_TITLES, rows, times=(3, 4)))
    else:
        brief = itemgetter(0, 1, 3, 4)
        output.show(output.table(brief(_TITLES), map(brief, rows), times=(2, 3)))
    if page.next_offset is not None:
        output.line(f"next page: schedq schedules ls {page.queue} --limit {limit} --offset {page.next_offset}")


def _row(record: ScheduleRecord, now_ms: int) -> tuple[str, ...]:
    upcoming = record.state if record.next_slot_ms is None else slot_text(record.next_slot_ms, record.tz)
    last = record.slots[0] if record.slots else None
    return (
        record.id,
        _timing(record),
        record.tz,
        record.state if record.state in ("paused", "damaged") else upcoming,
        display.roughly(last.to_ms, now_ms) if last else display.NOTHING,
        _outcome(last) if last else display.NOTHING,
        display.stored(record.fields, "payload"),
    )


@click.command(
    "show",
    epilog="Example:  schedq schedules show nightly-report --queue emails",
    no_args_is_help=True,
)
@click.argument("schedule_id", metavar="ID", type=SCHEDULE_ID)
@queue_of_id_option
@redis_option
@json_option
def show_one(schedule_id: str, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Show everything stored about the schedule ID: timing, policies, and the outcome of its last slots."""
    with queue_of_schedule(queue_name, redis_url, schedule_id) as queue:
        record, now, name = queue.schedules.get(schedule_id), queue.stats()["now_ms"], queue.name
        if record is None:
            raise click.ClickException(nothing_stored(schedule_id, queue))
    if as_json:
        output.show_json(plain.schedule(name, now, record))
        return
    output.show(output.facts(_facts(name, record, now)), "", output.heading("payload"))
    click.echo(display.pretty(record.fields.get("payload", "")))
    if "headers" in record.fields:
        output.show("", output.heading("headers"))
        click.echo(display.pretty(record.fields["headers"]))
    if record.slots:
        rows = [_slot_row(slot, record.tz) for slot in record.slots]
        slots = output.table(["slot", "outcome", "job", "late by"], rows, whole=2, times=(0, 3))
        output.show("", output.heading("last 100 slots"), slots)


def _facts(name: str, record: ScheduleRecord, now_ms: int) -> list[tuple[str, str]]:
    def slot(slot_ms: int) -> str:
        return f"{slot_text(slot_ms, record.tz)} ({display.apart(slot_ms, now_ms)})"

    def moment(at_ms: int) -> str:
        return display.moment(at_ms, now_ms) if at_ms else ""

    upcoming = None if record.paused_at_ms else record.next_slot_ms
    most = record.fields.get("max_runs", "")
    return [
        ("schedule", record.id),
        ("queue", name),
        ("state", record.state),
        ("error", record.error),
        ("when", record.words),
        ("cron", record.cron),
        ("zone", record.tz),
        ("next slot", "" if upcoming is None else slot(upcoming)),
        ("last slot", slot(record.last_slot_ms) if record.last_slot_ms else ""),
        ("last run", record.last_job_id),
        ("runs", f"{record.runs:,}" + (f" of {most}" if most else "")),
        *_policies(record),
        ("owner", f"{record.owner}, version {record.version}" if record.owner else ""),
        ("version", str(record.version) if record.version and not record.owner else ""),
        ("paused", moment(record.paused_at_ms)),
        ("created", moment(record.created_at_ms)),
        ("changed", moment(record.changed_at_ms)),
    ]


def _policies(record: ScheduleRecord) -> list[tuple[str, str]]:
    """The policies and options of a schedule, as names and words."""
    try:
        made = Definition.from_fields(record.id, record.fields)
    except UsageError:
        return []  # damaged; `error` says how
    recurrence = made.recurrence
    return [
        ("clock changes", recurrence.describe_clock_changes() if isinstance(recurrence, Crontab) else ""),
        ("missed slots", f"{_CATCH_UP[made.catch_up]}{_window(made)}"),
        ("run still active", _OVERLAP[made.overlap]),
        ("jitter", f"up to {span(made.jitter_ms)}" if made.jitter_ms else ""),
        ("not before", slot_text(made.start_ms, made.tz) if made.start_ms else ""),
        ("not after", slot_text(made.end_ms, made.tz) if made.end_ms else ""),
        ("max attempts", str(made.max_attempts or "")),
        ("backoff", made.backoff),
        ("timeout", span(made.timeout_ms) if made.timeout_ms else ""),
        ("expires", f"{span(int(made.expires))} after it is enqueued" if made.expires else ""),
        ("completed ttl", span(int(made.completed_ttl_ms)) if made.completed_ttl_ms else ""),
        ("failed ttl", span(int(made.failed_ttl_ms)) if made.failed_ttl_ms else ""),
        ("gate", f"{made.gate}, key {made.key}" if made.key else made.gate),
    ]


def _window(definition: Definition) -> str:
    if definition.latest_ms < 0:
        return ""
    return f"; if at most {span(definition.latest_ms)} late" if definition.latest_ms else "; if not late at all"


@click.command(
    "next",
    epilog="Example:  schedq schedules next nightly-report -n 5",
    no_args_is_help=True,
)
@click.argument("schedule_id", metavar="ID", type=SCHEDULE_ID)
@click.option(
    "-n", "number", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many slots to show."
)
@queue_of_id_option
@redis_option
@json_option
def upcoming(schedule_id: str, number: int, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Show the next slots of the schedule ID, with UTC offsets; of a paused schedule, as if it were resumed now."""
    with queue_of_schedule(queue_name, redis_url, schedule_id) as queue:
        name = queue.name
        record = queue.schedules.get(schedule_id)
        if record is None:
            raise click.ClickException(nothing_stored(schedule_id, queue))
        slots = queue.schedules.next_slots(schedule_id, number)
    recurrence = Definition.from_fields(schedule_id, record.fields).recurrence
    crontab = recurrence if isinstance(recurrence, Crontab) else None
    if as_json:
        found = [
            {"slot_ms": instant_ms(slot, "slot"), "local": slot.isoformat(), "mark": _mark(slot, crontab)}
            for slot in slots
        ]
        output.show_json({"queue": name, "id": schedule_id, "tz": record.tz, "state": record.state, "slots": found})
        return
    note = "" if record.state == "active" else f" ({record.state})"
    output.line(f"{schedule_id}{note}: {record.words}")
    if slots:
        output.show("", _slot_table((slot, _mark(slot, crontab)) for slot in slots))
    if len(slots) < number:
        output.line("No more slots." if slots else "No slots.")


def _mark(slot: datetime, crontab: Crontab | None) -> str:
    """How a clock change affects a slot; '' for intervals, which follow real time."""
    return crontab.clock_change(instant_ms(slot, "slot")) if crontab else ""


def _zones(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(available_timezones()) if name.startswith(incomplete)]


@click.command(
    epilog="""\b
Examples:
  schedq cron '30 2 * * MON-FRI' --tz Europe/Berlin
  schedq cron '*/15 9-17 * * *' --tz America/New_York --from 2027-03-13 -n 20
  schedq cron 'H H(0-5) * * *' --id nightly-report --json""",
    no_args_is_help=True,
)
@click.argument("expression")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", shell_complete=_zones, help="The time zone.")
@click.option(
    "-n", "number", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many slots to show."
)
@click.option(
    "--from",
    "start",
    metavar="INSTANT",
    help="Show slots after this time: 2027-03-28T01:30 (in ZONE) or with an offset; default: now.",
)
@click.option("--id", "schedule_id", default="", metavar="ID", help="The schedule's id, from which H is derived.")
@click.option(
    "--gap",
    type=click.Choice(get_args(Gap)),
    default="next",
    show_default=True,
    help="For local times that clocks skip: one slot at the next existing minute, or none.",
)
@click.option(
    "--fold",
    type=click.Choice(get_args(Fold)),
    default="first",
    show_default=True,
    help="For local times that occur twice: which occurrence is a slot.",
)
@click.option("--json", "as_json", is_flag=True, help='Print a JSON list of {"utc": ..., "local": ...}, for programs.')
def cron(
    expression: str, tz: str, number: int, start: str | None, schedule_id: str, gap: Gap, fold: Fold, as_json: bool
) -> None:
    """Explain a cron EXPRESSION in words, and show its next slots. Needs no Redis.

    Five fields (minute, hour, day of month, month, day of week), or six with seconds first, or @daily and the like;
    names, ranges, steps, lists, L (last), # (nth weekday), H (derived from the id). If both day of month and day of
    week are given, either matches. Quote the expression, or the shell replaces its asterisks with file names.
    """
    with wrong_usage():
        crontab = parse(expression, tz=tz, schedule_id=schedule_id, gap=gap, fold=fold)
    zone = ZoneInfo(tz)
    slots = list(islice(_after(crontab, _instant(start, zone)), number))
    if as_json:
        instants = map(_moment, slots)
        output.show_json([{"utc": at.isoformat(), "local": at.astimezone(zone).isoformat()} for at in instants])
        return
    output.line(crontab.describe())
    output.line(crontab.describe_clock_changes())
    click.echo()
    if slots:
        output.show(_slot_table((_moment(slot).astimezone(zone), crontab.clock_change(slot)) for slot in slots))
    if len(slots) < number:
        output.line("No more slots within a hundred years.")


def _instant(text: str | None, zone: ZoneInfo) -> int:
    """`--from` in ms since the epoch; now if it is not given."""
    if text is None:
        return instant_ms(datetime.now(UTC), "now")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return instant_ms(moment, "it")
    except (ValueError, OverflowError) as error:
        ways = f"write 2027-03-28T01:30 (in {zone.key}) or 2027-03-28T01:30:00+01:00"
        raise click.BadParameter(f"{text!r:.60} is not a valid time; {ways}", param_hint="--from") from error


def _after(crontab: Crontab, instant: int) -> Iterator[int]:
    slot = crontab.next_after(instant)
    while slot is not None:
        yield slot
        slot = crontab.next_after(slot)


def _moment(slot_ms: int) -> datetime:
    return datetime.fromtimestamp(min(slot_ms, LAST_INSTANT_MS) // 1000, UTC)


def slot_text(slot_ms: int, tz: str) -> str:
    """A slot in the time zone of its schedule, with its UTC offset.

    In UTC if the zone is unknown, so that a damaged schedule can be shown, or if the local year would be 10000.
    """
    if not slot_ms:
        return display.NOTHING
    moment = _moment(slot_ms)
    with suppress(ValueError, OSError, LookupError, OverflowError):
        moment = moment.astimezone(ZoneInfo(tz))
    seconds = moment.strftime(":%S") if moment.second else ""
    return f"{moment:%Y-%m-%d %H:%M}{seconds} {moment.isoformat(timespec='seconds')[19:]}"


def _timing(record: ScheduleRecord) -> str:
    """The cron expression, or the interval in words."""
    return record.cron or record.words or (f"every {record.every_ms} ms" if record.every_ms else display.NOTHING)


def _outcome(slot: SlotRecord) -> str:
    """The outcome of a slot in a few words."""
    return f"{slot.outcome}: {slot.why}" if slot.why else slot.outcome


def _slot_row(slot: SlotRecord, tz: str) -> tuple[str, str, str, str]:
    """A row for a past slot and the later slots that it stands for: time, outcome, job, delay."""
    said = _outcome(slot) + (f" into {slot_text(slot.into_ms, tz)}" if slot.into_ms else "")
    if slot.count > 1:
        said += f" ({slot.count:,} slots, to {slot_text(slot.to_ms, tz)})"
    late = span(slot.late_ms) if slot.late_ms > 0 else display.NOTHING
    return slot_text(slot.slot_ms, tz), said, slot.job_id or display.NOTHING, late


def _slot_table(slots: Iterable[tuple[datetime, str]]) -> Table:
    """Slots in local time, each with how a clock change affects it."""
    rows = [
        (
            f"{slot:%a %Y-%m-%d %H:%M:%S}",
            slot.isoformat(timespec="seconds")[19:],
            f"{slot.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            _MARKS[mark],
        )
        for slot, mark in slots
    ]
    return output.table(("LOCAL", "OFFSET", "UTC", ""), rows, times=(1, 2))
