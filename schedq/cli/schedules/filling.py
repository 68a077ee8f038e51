"""`schedq schedules backfill`: the slots of a past time, enqueued once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import click

from schedq.cli import show
from schedq.cli.options import json_option, queue_option, redis_option
from schedq.cli.queues import queue_of_job
from schedq.cli.schedules.telling import SCHEDULE_ID
from schedq.cli.typed import INSTANT
from schedq.connection.sender import Sender
from schedq.instants import instant_ms
from schedq.operations import Block, Flow, steering
from schedq.operations.enqueue import Stored

T = TypeVar("T")


@click.command(
    short_help="Enqueue the slots of a past time.",
    epilog="""\b
Examples:
  schedq schedules backfill nightly-report --from 2027-01-01 --to 2027-02-01
  schedq schedules backfill hourly --from 2027-01-01T00:00Z --to 2027-01-02T00:00Z --rate 1""",
    no_args_is_help=True,
)
@click.argument("schedule_id", metavar="ID", type=SCHEDULE_ID)
@click.option(
    "--from",
    "start",
    type=INSTANT,
    required=True,
    metavar="TIME",
    help="Slots from then on: 2030-01-01T09:00 or …+01:00.",
)
@click.option("--to", "end", type=INSTANT, required=True, metavar="TIME", help="Up to then, itself included.")
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 10_000),
    default=10.0,
    show_default=True,
    metavar="N",
    help="Jobs a second: the first is due at once, the others one after another.",
)
@queue_option
@redis_option
@json_option
def backfill(
    schedule_id: str,
    start: datetime,
    end: datetime,
    rate: float,
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Enqueue the past slots of the schedule ID between two instants, once.

    A slot whose job was made before, by its time or by a backfill, is passed over for as long as that job's record is
    kept; so an interrupted backfill can be given again. Policies for missed and overlapping slots do not apply.
    """
    if end < start:
        raise click.UsageError("--to is before --from")
    first, last = instant_ms(start, "--from"), instant_ms(end, "--to")
    progress = _Progress()
    with queue_of_job(queue_name, redis_url) as queue:
        sender = Sender(queue.address, queue.settings)
        try:
            flow = steering.backfill(queue.settings, schedule_id, first, last, rate)
            count = sender.drive(_counted(flow, progress.add))
        finally:
            progress.end()
            sender.close()
    new = min(progress.new, count)
    ends_in_ms = int((count - 1) * 1000 / rate)
    if as_json:
        found = {"slots": count, "enqueued": new, "rate": rate, "ends_in_ms": ends_in_ms}
        show.out_json({"queue": queue.name, "id": schedule_id, **found})
        return
    there = f", {count - new:,} were there already" if new < count else ""
    pace = f"; the last is due in {show.span(ends_in_ms)}" if new and ends_in_ms else ""
    show.line(f"{schedule_id}: {show.count(count, 'slot')}, {show.count(new, 'job')} enqueued{there}{pace}")


class _Progress:
    """How many slots are done; told on a terminal while it goes on."""

    def __init__(self) -> None:
        self.done = self.new = 0
        self._is_told = _is_terminal()

    def add(self, answers: tuple[str, ...]) -> None:
        """Count what became of some."""
        self.done += len(answers)
        self.new += answers.count("STORED")
        if self._is_told:
            click.echo(f"\r{self.done:,} slots done", nl=False, err=True)

    def end(self) -> None:
        """End the line."""
        if self._is_told and self.done:
            click.echo(err=True)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _counted(flow: Flow[T], add: Callable[[tuple[str, ...]], None]) -> Flow[T]:
    """The same flow; what it stores is told while it goes on."""
    try:
        step = next(flow)
        while True:
            answer = yield step
            if not isinstance(step, Block):
                for one in answer:
                    if isinstance(one, Stored):
                        add(one.answers)
            step = flow.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
