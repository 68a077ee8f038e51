"""`schedq forecast`: shows what is due when, as a bar chart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import click
from rich.table import Table

from schedq.cli import output
from schedq.cli.params import json_option, queue_option, redis_option
from schedq.cli.queues import queue_of_job, wrong_usage
from schedq.inspect import display, gate_words
from schedq.inspect.forecast import Bucket, Forecast
from schedq.model.keys import checked_name
from schedq.model.times import parsed_duration, span

_BAR: Final = 50
_SHORT_BAR: Final = 40
"""Fits into 80 columns next to numbers of seven digits."""
_NARROW: Final = 92
_USUALLY: Final = "24h"
_DAY_MS: Final = 86_400_000
_DAY: Final = len("2030-01-01")
_MINUTE: Final = len("2030-01-01 09:00")
_JOB, _SLOT = "█", "░"


@click.command(
    epilog="""\b
Examples:
  schedq forecast 24h
  schedq forecast emails 90m --json""",
)
@click.argument("words", metavar="[NAME] [D]", nargs=-1)
@queue_option
@redis_option
@json_option
def forecast(words: tuple[str, ...], queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Show what is due in the queue NAME within D: delayed jobs and slots of schedules.

    D is 90m or 7d, at most 31d; 24h if left out. A single word that begins with a digit is D.
    """
    name, within = _read(words)
    with queue_of_job(name or queue_name, redis_url) as queue, wrong_usage():
        found, gates, name = queue.inspector.forecast(within), queue.gates.list(), queue.name
    if as_json:
        drained = {gate.name: gate_words.drained_in_ms(gate) for gate in gates}
        output.show_json({"queue": name, **found.to_dict(), "gates_drained_in_ms": drained})
        return
    slots = f"{display.count(found.slots, 'slot')} of {display.count(found.schedules, 'schedule')}"
    jobs = display.count(found.delayed, "delayed job")
    output.show(output.heading(f"queue {name}, the next {span(found.until_ms - found.now_ms)}: {jobs}, {slots}"))
    if found.busiest:
        output.show(_chart(found), "", output.heading("busiest minutes"), _busiest(found))
    for text in (*_notes(found), *filter(None, map(gate_words.outlook, gates))):
        output.line(text)


def _read(words: Sequence[str]) -> tuple[str | None, timedelta]:
    """The queue, if it is named, and the duration.

    Raises:
        click.UsageError: one of them is invalid, or there are more words.
    """
    if len(words) > 2:
        raise click.UsageError(f"got unexpected extra argument ({words[2]})")
    with wrong_usage():
        if len(words) == 2:
            return checked_name(words[0]), parsed_duration(words[1])
        if not words or words[0][:1].isdecimal() or words[0][:1] == "-":
            return None, parsed_duration(words[0] if words else _USUALLY)
        return checked_name(words[0]), parsed_duration(_USUALLY)


def _chart(found: Forecast) -> Table:
    most = max(bucket.jobs for bucket in found.buckets)
    longest = _BAR if output.width() >= _NARROW else _SHORT_BAR
    rows = [
        (_from(bucket, found), f"{bucket.delayed:,}", f"{bucket.slots:,}", _bar(bucket, most, longest))
        for bucket in found.buckets
    ]
    return output.table(
        ["from", "delayed", "slots", f"{_JOB} delayed  {_SLOT} slots"], rows, right=("delayed", "slots"), times=(0,)
    )


def _from(bucket: Bucket, found: Forecast) -> str:
    """The start of the bucket. The first bucket starts before now, so that all start at a round time."""
    length = _DAY if bucket.end_ms - bucket.start_ms >= _DAY_MS else _MINUTE
    return display.moment(bucket.start_ms, found.now_ms)[:length]


def _bar(bucket: Bucket, most: int, longest: int) -> str:
    """Both parts to scale; a nonzero part has at least one character."""
    jobs, slots = (-(-count * longest // most) for count in (bucket.delayed, bucket.slots))
    return _JOB * jobs + _SLOT * slots


def _busiest(found: Forecast) -> Table:
    rows = [
        (
            display.moment(minute.start_ms, found.now_ms)[:_MINUTE],
            display.roughly(max(minute.start_ms, found.now_ms + 1), found.now_ms),
            f"{minute.jobs:,}",
            f"{minute.delayed:,}",
            f"{minute.slots:,}",
        )
        for minute in found.busiest
    ]
    return output.table(["at", "", "jobs", "delayed", "slots"], rows, right=("jobs", "delayed", "slots"), times=(0, 1))


def _notes(found: Forecast) -> list[str]:
    slots = display.count(found.slots - sum(bucket.slots for bucket in found.buckets), "slot")
    frequent = display.count(found.spread, "frequent schedule")
    notes = {
        f"{display.count(found.overdue, 'delayed job')} already due": found.overdue,
        f"{display.count(found.overdue_slots, 'schedule')} with a slot that is already due": found.overdue_slots,
        f"{display.count(found.later, 'delayed job')} due later": found.later,
        f"the bars leave out {slots} of {frequent}": found.spread,
        f"{display.count(found.unread, 'schedule')} not read": found.unread,
        f"unreadable: {', '.join(found.damaged[:5])}; see schedq schedules ls": len(found.damaged),
    }
    return [text for text, count in notes.items() if count]
