"""`schedq forecast`: what is due when, as a bar chart."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import click
from rich.table import Table

from schedq.cli import show
from schedq.cli.options import json_option, queue_option, redis_option
from schedq.cli.queues import queue_of_job
from schedq.cli.typed import DURATION
from schedq.operations.forecast import Bucket, Forecast

_BAR: Final = 50
_SHORT_BAR: Final = 40
"""What 80 columns have room for, beside numbers of seven digits."""
_NARROW: Final = 92
_DAY_MS: Final = 86_400_000
_DAY: Final = len("2030-01-01")
_MINUTE: Final = len("2030-01-01 09:00")
_JOB, _SLOT = "█", "░"


@click.command(
    short_help="Show what is due when, as a bar chart.",
    epilog="""\b
Examples:
  schedq forecast 24h
  schedq forecast 90m --queue emails --json""",
    no_args_is_help=True,
)
@click.argument("within", metavar="D", type=DURATION)
@queue_option
@redis_option
@json_option
def forecast(within: timedelta, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001
    """What comes due within the time D from now (90m, 24h, 7d; at most 31d): delayed jobs, and slots of schedules."""
    with queue_of_job(queue_name, redis_url) as queue:
        found, name = queue.inspector.forecast(within), queue.name
    if as_json:
        show.out_json({"queue": name, **found.to_dict()})
        return
    slots = f"{show.count(found.slots, 'slot')} of {show.count(found.schedules, 'schedule')}"
    jobs = show.count(found.delayed, "delayed job")
    show.out(show.heading(f"queue {name}, the next {show.span(found.until_ms - found.now_ms)}: {jobs}, {slots}"))
    if found.delayed or found.slots:
        show.out(_chart(found), "", show.heading("busiest minutes"), _busiest(found))
    for text in _notes(found):
        show.line(text)


def _chart(found: Forecast) -> Table:
    most = max(bucket.jobs for bucket in found.buckets)
    longest = _BAR if show.width() >= _NARROW else _SHORT_BAR
    rows = [
        (_from(bucket, found), f"{bucket.delayed:,}", f"{bucket.slots:,}", _bar(bucket, most, longest))
        for bucket in found.buckets
    ]
    return show.table(
        ["from", "delayed", "slots", f"{_JOB} delayed  {_SLOT} slots"], rows, right=("delayed", "slots"), times=(0,)
    )


def _from(bucket: Bucket, found: Forecast) -> str:
    """The first one begins before now, so that all begin at a round time."""
    length = _DAY if bucket.end_ms - bucket.start_ms >= _DAY_MS else _MINUTE
    return show.moment(bucket.start_ms, found.now_ms)[:length]


def _bar(bucket: Bucket, most: int, longest: int) -> str:
    """Both parts to scale; what is not nothing shows."""
    jobs, slots = (-(-count * longest // most) for count in (bucket.delayed, bucket.slots))
    return _JOB * jobs + _SLOT * slots


def _busiest(found: Forecast) -> Table:
    rows = [
        (
            show.moment(minute.start_ms, found.now_ms)[:_MINUTE],
            show.roughly(max(minute.start_ms, found.now_ms + 1), found.now_ms),
            f"{minute.jobs:,}",
            f"{minute.delayed:,}",
            f"{minute.slots:,}",
        )
        for minute in found.busiest
    ]
    return show.table(["at", "", "jobs", "delayed", "slots"], rows, right=("jobs", "delayed", "slots"), times=(0, 1))


def _notes(found: Forecast) -> list[str]:
    frequent = show.count(found.spread, "frequent schedule")
    notes = {
        f"{show.count(found.overdue, 'delayed job')} due already": found.overdue,
        f"{show.count(found.overdue_slots, 'schedule')} with a slot that is due already": found.overdue_slots,
        f"{show.count(found.later, 'delayed job')} due later": found.later,
        f"slots of {frequent} are counted by the hour and spread evenly": found.spread,
        f"{show.count(found.unread, 'schedule')} not looked at": found.unread,
        f"can't be read: {', '.join(found.damaged[:5])}; see schedq schedules ls": len(found.damaged),
    }
    return [text for text, count in notes.items() if count]
