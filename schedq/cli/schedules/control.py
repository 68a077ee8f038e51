"""`schedq schedules pause`, `resume`, `trigger`, `rm`, `backfill` and `upsert`: what changes schedules."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import click

from schedq.cli import output
from schedq.cli.params import INSTANT, ask, json_option, queue_option, redis_option, yes_option
from schedq.cli.queues import load_queue, queue_of_job
from schedq.cli.schedules.show import SCHEDULE_ID, nothing_stored, slot_text
from schedq.errors import UsageError
from schedq.inspect import display
from schedq.model.times import instant_ms, span
from schedq.queue.queue import Queue
from schedq.schedules import control
from schedq.schedules.register import Registration
from schedq.transitions import MarkerWait, RoundTrips
from schedq.transitions.enqueue import Stored

_SAID: Final = {
    "created": "created",
    "changed": "changed",
    "unchanged": "unchanged",
    "kept": "kept: a higher version of the application wrote it",
}
"""What became of a schedule of the code, in words."""


def _on_schedules(act: Callable[[Queue, str], output.Answer | None]) -> click.Command:
    """Make a command of what is done to one schedule; name and help are those of the function."""

    @click.command(
        act.__name__,
        help=act.__doc__,
        epilog=f"Example:  schedq schedules {act.__name__} nightly-report",
        no_args_is_help=True,
    )
    @click.argument("ids", metavar="ID...", nargs=-1, required=True, type=SCHEDULE_ID)
    @queue_option
    @redis_option
    @json_option
    def command(ids: tuple[str, ...], queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
        with queue_of_job(queue_name, redis_url) as queue:
            _act_on_each(queue, ids, act, as_json=as_json)

    return command


@_on_schedules
def pause(queue: Queue, schedule_id: str) -> output.Answer | None:
    """Let schedules have no slots until they are resumed. Jobs that they made stay."""
    if queue.schedules.pause(schedule_id):
        return output.Answer("paused")
    return None if queue.schedules.get(schedule_id) is None else output.Answer("was paused already")


@_on_schedules
def resume(queue: Queue, schedule_id: str) -> output.Answer | None:
    """Let paused schedules, and mended ones that were damaged, go on from now. Slots of the pause are skipped."""
    did = queue.schedules.resume(schedule_id)
    record = queue.schedules.get(schedule_id)
    if record is None:
        return None
    slot = record.next_slot_ms
    upcoming = "it has no more slots" if slot is None else f"next slot {slot_text(slot, record.tz)}"
    return output.Answer(f"{'goes on' if did else 'was not paused'}; {upcoming}")


@_on_schedules
def trigger(queue: Queue, schedule_id: str) -> output.Answer | None:
    """Make one job of each schedule now, whatever its slots and policies, and also of a paused one."""
    job_id = queue.schedules.trigger(schedule_id)
    return None if job_id is None else output.Answer(f"triggered as job {job_id}", {"job_id": job_id})


@click.command(
    epilog="Example:  schedq schedules rm nightly-report --yes",
    no_args_is_help=True,
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=SCHEDULE_ID)
@yes_option
@queue_option
@redis_option
@json_option
def rm(ids: tuple[str, ...], is_sure: bool, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Delete schedules and the account of their slots. Asks first; jobs that they made stay.

    What an application's code has is written anew when one of its workers starts.
    """
    with queue_of_job(queue_name, redis_url) as queue:
        there = [schedule_id for schedule_id in dict.fromkeys(ids) if queue.schedules.get(schedule_id) is not None]
        if there:
            what = f"{display.count(len(there), 'schedule')} of queue {queue.name} ({', '.join(there)})"
            ask(f"Delete {what}?", is_sure=is_sure)
        _act_on_each(queue, ids, _delete, as_json=as_json)


def _delete(queue: Queue, schedule_id: str) -> output.Answer | None:
    return output.Answer("deleted") if queue.schedules.delete(schedule_id) else None


def _act_on_each(
    queue: Queue, ids: Sequence[str], act: Callable[[Queue, str], output.Answer | None], *, as_json: bool
) -> None:
    """Act on each schedule and print the results; exit code 1 if one is missing or damaged."""

    def answer(schedule_id: str) -> output.Answer:
        try:
            done = act(queue, schedule_id)
            why = "" if done else nothing_stored(schedule_id, queue)
        except UsageError as error:  # it is still damaged
            done, why = None, str(error)
        return done or output.Answer(why, {"why": why}, is_refusal=True)

    output.show_answers(queue.name, "schedules", ids, answer, as_json=as_json)


@click.command(
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
    as_json: bool,
) -> None:
    """Enqueue the past slots of the schedule ID between two instants, once.

    A slot whose job was made before, by its time or by a backfill, is passed over for as long as that job's record is
    kept; so an interrupted backfill can be given again. Policies for missed and overlapping slots do not apply.
    """
    if end < start:
        raise click.UsageError("--to is before --from")
    first, last = instant_ms(start, "--from"), instant_ms(end, "--to")
    done: Counter[str] = Counter()
    with queue_of_job(queue_name, redis_url) as queue:
        trips = control.backfill(queue.settings, schedule_id, first, last, rate)
        try:
            count = queue._drive(_counted(trips, done))
        finally:
            if done and _is_terminal():
                click.echo(err=True)
    new = min(done["STORED"], count)
    ends_in_ms = int((count - 1) * 1000 / rate)
    if as_json:
        found = {"slots": count, "enqueued": new, "rate": rate, "ends_in_ms": ends_in_ms}
        output.show_json({"queue": queue.name, "id": schedule_id, **found})
        return
    there = f", {count - new:,} were there already" if new < count else ""
    pace = f"; the last is due in {span(ends_in_ms)}" if new and ends_in_ms else ""
    output.line(f"{schedule_id}: {display.count(count, 'slot')}, {display.count(new, 'job')} enqueued{there}{pace}")


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _counted(trips: RoundTrips[int], done: Counter[str]) -> RoundTrips[int]:
    """The same round trips; counts the results of the slots meanwhile and shows the count on a terminal."""
    reply: Any = None
    while True:
        try:
            request = trips.send(reply)
        except StopIteration as stop:
            return int(stop.value)
        reply = yield request
        if not isinstance(request, MarkerWait):
            for stored in (one for one in reply if isinstance(one, Stored)):
                done.update(stored.words)
                if _is_terminal():
                    click.echo(f"\r{done.total():,} slots done", nl=False, err=True)


@click.command(
    epilog="""\b
Examples:
  schedq schedules upsert app:emails
  schedq schedules upsert app:emails --prune""",
    no_args_is_help=True,
)
@click.argument("app", metavar="APP")
@click.option("--prune", is_flag=True, help="Delete those that the code has no more, without asking.")
@click.option("--redis", "redis_url", metavar="URL", help="Where Redis is, for a queue that does not say so itself.")
@json_option
def upsert(app: str, prune: bool, redis_url: str | None, as_json: bool) -> None:
    """Write the schedules of the queue that APP (module:object) names, as a worker does when it starts.

    For hosts that have only a promoter. The next slot of what did not change stays.
    """
    if redis_url is not None:
        os.environ["SCHEDQ_REDIS_URL"] = redis_url
    loaded = load_queue(app)
    with loaded.blocking as queue:
        found = queue.schedules.register(prune=prune)
    if as_json:
        output.show_json({"queue": loaded.name, **asdict(found)})
    else:
        _tell(loaded.name, found)


def _tell(name: str, found: Registration) -> None:
    for word, said in _SAID.items():
        for schedule_id in getattr(found, word):
            output.line(f"{schedule_id}: {said}")
    for schedule_id in found.missing:
        output.line(f"{schedule_id}: {'deleted' if schedule_id in found.removed else 'kept'}: the code has it no more")
    total = sum(len(getattr(found, word)) for word in _SAID)
    hint = "; --prune deletes those that it has no more" if set(found.missing) - set(found.removed) else ""
    output.line(f"queue {name}: the code has {display.count(total, 'schedule')}{hint}")
