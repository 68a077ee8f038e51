"""`schedq schedules pause`, `resume`, `trigger`, `rm`, `backfill`, `update` and `upsert`: they change schedules."""

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
from schedq.cli.params import (
    DURATION,
    INSTANT,
    app_dir_option,
    ask,
    import_option,
    json_of,
    json_option,
    queue_of_id_option,
    redis_option,
    yes_option,
)
from schedq.cli.queues import import_all, load_queue, queue_of_schedule, wrong_usage
from schedq.cli.schedules import dry_run
from schedq.cli.schedules.show import SCHEDULE_ID, nothing_stored, slot_text
from schedq.errors import UsageError
from schedq.inspect import display
from schedq.model.times import instant_ms, span
from schedq.queue.queue import Queue
from schedq.schedules import control
from schedq.schedules.register import Registration
from schedq.transitions import MarkerWait, RoundTrips
from schedq.transitions.enqueue import Stored

_OUTCOMES: Final = {
    "created": "created",
    "changed": "changed",
    "unchanged": "unchanged",
    "kept": "kept: a newer version of the application wrote it",
}
"""Outcome of registering a schedule -> the outcome in words."""
_PAGE: Final = 1000
_MOST_NAMED: Final = 5


def _on_schedules(act: Callable[[Queue, str], output.ActionResult | None]) -> click.Command:
    """Make a command of a function that acts on one schedule; the function supplies name and help.

    The function of this name in `dry_run` says what it would do.
    """
    plan: dry_run.Plan = getattr(dry_run, act.__name__)

    @click.command(
        act.__name__,
        help=act.__doc__,
        epilog=f"Example:  schedq schedules {act.__name__} nightly-report",
        no_args_is_help=True,
    )
    @click.argument("ids", metavar="ID...", nargs=-1, required=True, type=SCHEDULE_ID)
    @dry_run.dry_run_option
    @queue_of_id_option
    @redis_option
    @json_option
    def command(
        ids: tuple[str, ...], is_dry: bool, queue_name: str | None, redis_url: str | None, as_json: bool
    ) -> None:
        with queue_of_schedule(queue_name, redis_url, *ids) as queue:
            _act_on_each(queue, ids, dry_run.planned(plan) if is_dry else act, as_json=as_json)

    return command


@_on_schedules
def pause(queue: Queue, schedule_id: str) -> output.ActionResult | None:
    """Pause schedules: they have no slots until they are resumed. Jobs that they enqueued stay."""
    if queue.schedules.pause(schedule_id):
        return output.ActionResult("paused")
    return None if queue.schedules.get(schedule_id) is None else output.ActionResult("was already paused")


@_on_schedules
def resume(queue: Queue, schedule_id: str) -> output.ActionResult | None:
    """Resume schedules that are paused, or that were damaged and have been repaired. Missed slots are skipped."""
    did = queue.schedules.resume(schedule_id)
    record = queue.schedules.get(schedule_id)
    if record is None:
        return None
    slot = record.next_slot_ms
    upcoming = "it has no more slots" if slot is None else f"next slot {slot_text(slot, record.tz)}"
    return output.ActionResult(f"{'resumed' if did else 'was not paused'}; {upcoming}")


@_on_schedules
def trigger(queue: Queue, schedule_id: str) -> output.ActionResult | None:
    """Enqueue one job of each schedule now, regardless of its slots and policies, even if it is paused."""
    job_id = queue.schedules.trigger(schedule_id)
    return None if job_id is None else output.ActionResult(f"triggered as job {job_id}", {"job_id": job_id})


@click.command(
    epilog="Example:  schedq schedules rm nightly-report --yes",
    no_args_is_help=True,
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=SCHEDULE_ID)
@dry_run.dry_run_option
@yes_option
@queue_of_id_option
@redis_option
@json_option
def rm(
    ids: tuple[str, ...], is_dry: bool, is_sure: bool, queue_name: str | None, redis_url: str | None, as_json: bool
) -> None:
    """Delete schedules and their slot history, after confirmation. Jobs that they enqueued stay.

    A schedule that is still in the application's code is stored again when one of its workers starts.
    """
    with queue_of_schedule(queue_name, redis_url, *ids) as queue:
        if is_dry:
            _act_on_each(queue, ids, dry_run.planned(dry_run.rm), as_json=as_json)
            return
        there = [schedule_id for schedule_id in dict.fromkeys(ids) if queue.schedules.get(schedule_id) is not None]
        if there:
            what = f"{display.count(len(there), 'schedule')} of queue {queue.name} ({', '.join(there)})"
            ask(f"Delete {what}?", is_sure=is_sure)
        _act_on_each(queue, ids, _delete, as_json=as_json)


def _delete(queue: Queue, schedule_id: str) -> output.ActionResult | None:
    return output.ActionResult("deleted") if queue.schedules.delete(schedule_id) else None


def _act_on_each(
    queue: Queue, ids: Sequence[str], act: Callable[[Queue, str], output.ActionResult | None], *, as_json: bool
) -> None:
    """Act on each schedule and print the results; exit code 1 if one is missing or damaged."""

    def result(schedule_id: str) -> output.ActionResult:
        try:
            done = act(queue, schedule_id)
            why = "" if done else nothing_stored(schedule_id, queue)
        except UsageError as error:  # it is still damaged
            done, why = None, str(error)
        return done or output.ActionResult(why, {"why": why}, is_refusal=True)

    output.show_results(queue.name, "schedules", ids, result, as_json=as_json)


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
    help="Start of the period, inclusive: 2030-01-01T09:00 or …+01:00.",
)
@click.option("--to", "end", type=INSTANT, required=True, metavar="TIME", help="End of the period, inclusive.")
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 10_000),
    default=10.0,
    show_default=True,
    metavar="N",
    help="Jobs per second: the first is due at once, the others follow at this rate.",
)
@dry_run.dry_run_option
@queue_of_id_option
@redis_option
@json_option
def backfill(
    schedule_id: str,
    start: datetime,
    end: datetime,
    rate: float,
    is_dry: bool,
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Enqueue the slots of the schedule ID in a past period, each once.

    A slot whose job was already enqueued, on time or by a backfill, is skipped as long as that job's record is kept;
    so an interrupted backfill can be repeated. Policies for missed and overlapping slots do not apply.
    """
    if end < start:
        raise click.UsageError("--to is before --from")
    first, last = instant_ms(start, "--from"), instant_ms(end, "--to")
    done: Counter[str] = Counter()
    with queue_of_schedule(queue_name, redis_url, schedule_id) as queue:
        if is_dry:
            _report_backfill(
                queue,
                schedule_id,
                *dry_run.backfill(queue, schedule_id, first, last),
                rate,
                is_dry=True,
                as_json=as_json,
            )
            return
        trips = control.backfill(queue.settings, schedule_id, first, last, rate)
        try:
            count = queue._drive(_counted(trips, done))
        finally:
            if done and _is_terminal():
                click.echo(err=True)
    new = min(done["STORED"], count)
    _report_backfill(queue, schedule_id, count, new, rate, is_dry=False, as_json=as_json)


def _report_backfill(
    queue: Queue, schedule_id: str, count: int, new: int, rate: float, *, is_dry: bool, as_json: bool
) -> None:
    ends_in_ms = int((count - 1) * 1000 / rate)
    if as_json:
        found = {"slots": count, "enqueued": new, "rate": rate, "ends_in_ms": ends_in_ms}
        output.show_json({"queue": queue.name, "id": schedule_id, **found} | ({"dry_run": True} if is_dry else {}))
        return
    there = f", {count - new:,} already {'exist' if is_dry else 'existed'}" if new < count else ""
    pace = f"; the last {'would be' if is_dry else 'is'} due in {span(ends_in_ms)}" if new and ends_in_ms else ""
    done = "would be enqueued" if is_dry else "enqueued"
    output.line(f"{schedule_id}: {display.count(count, 'slot')}, {display.count(new, 'job')} {done}{there}{pace}")


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _counted(trips: RoundTrips[int], done: Counter[str]) -> RoundTrips[int]:
    """The same round trips, counting the results of the slots and showing the count on a terminal."""
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
  schedq schedules update poll --every 30s
  schedq schedules update nightly --cron '30 3 * * *' --kwargs '{"deep": true}'""",
    no_args_is_help=True,
)
@click.argument("schedule_id", metavar="ID", type=SCHEDULE_ID)
@click.option("--cron", metavar="EXPRESSION", help="Another cron expression.")
@click.option("--every", type=DURATION, metavar="DURATION", help="An interval instead, such as 30s or 1h30m.")
@click.option("--tz", metavar="ZONE", help="Another time zone, such as Europe/Berlin.")
@click.option("--args", type=json_of(list, "JSON array"), metavar="ARRAY", help="Other positional arguments.")
@click.option("--kwargs", type=json_of(dict, "JSON object"), metavar="OBJECT", help="Other keyword arguments, all.")
@click.option(
    "--version", type=click.IntRange(0), metavar="N", help="Above the code's: no worker that starts undoes the change."
)
@dry_run.dry_run_option
@queue_of_id_option
@redis_option
@json_option
def update(
    schedule_id: str, is_dry: bool, queue_name: str | None, redis_url: str | None, as_json: bool, **changes: Any
) -> None:
    """Change some of what is stored about the schedule ID, and keep the rest.

    If it is in the application's code, the next worker that starts stores the code's definition again, unless --version
    is above the code's.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise click.UsageError("nothing to change is given")
    with queue_of_schedule(queue_name, redis_url, schedule_id) as queue:
        if queue.schedules.get(schedule_id) is None:
            raise click.ClickException(nothing_stored(schedule_id, queue))
        if is_dry:
            dry_run.update(queue, schedule_id, given, as_json=as_json)
            return
        with wrong_usage():
            word = queue.schedules.update(schedule_id, **given)
        name = queue.name
    if as_json:
        output.show_json({"queue": name, "id": schedule_id, "result": word})
        return
    output.line(f"{schedule_id}: {_OUTCOMES[word]}")


@click.command(
    epilog="""\b
Examples:
  schedq schedules upsert app:emails
  schedq schedules upsert app:emails --import billing --prune""",
    no_args_is_help=True,
)
@click.argument("app", metavar="APP")
@click.option("--prune", is_flag=True, help="Delete schedules that are no longer in the code, without asking.")
@dry_run.dry_run_option
@app_dir_option
@import_option
@click.option("--redis", "redis_url", metavar="URL", help="URL of Redis, for a queue that does not set one.")
@json_option
def upsert(
    app: str,
    prune: bool,
    is_dry: bool,
    app_dir: str,
    imports: tuple[str, ...],
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Store the schedules of the queue that APP (module:object) names, as a worker does when it starts.

    For hosts that run only a promoter. Unchanged schedules keep their next slot. Only the top-level packages that this
    code belongs to can have schedules that are no longer in it: give --import as for the worker.
    """
    if redis_url is not None:
        os.environ["SCHEDQ_REDIS_URL"] = redis_url
    loaded = load_queue(app, app_dir)
    for module in imports:
        import_all(module, app_dir)
    with loaded.blocking as queue:
        found = dry_run.registration(queue, prune=prune) if is_dry else queue.schedules.register(prune=prune)
        others = _of_others(queue, found)
    if as_json:
        dry = {"dry_run": True} if is_dry else {}
        output.show_json({"queue": loaded.name, **asdict(found), "others": others} | dry)
    else:
        _report_registration(loaded.name, found, would="would be " if is_dry else "")
        packages = {module.partition(".")[0] for module in (app.partition(":")[0], *imports)}
        for owner, ids in others.items():
            output.line(_left_alone(owner, ids, is_imported=owner in packages))


def _of_others(queue: Queue, found: Registration) -> dict[str, list[str]]:
    """Owner -> the sorted ids of its schedules that are neither in the code nor missing from it."""
    ours = {schedule_id for ids in asdict(found).values() for schedule_id in ids}
    others: dict[str, list[str]] = {}
    offset = 0
    while page := queue.schedules.list(offset, _PAGE):
        for record in page:
            if record.id not in ours:
                others.setdefault(record.owner, []).append(record.id)
        offset += _PAGE
    return {owner: sorted(others[owner]) for owner in sorted(others)}


def _left_alone(owner: str, ids: Sequence[str], *, is_imported: bool) -> str:
    more = f" and {len(ids) - _MOST_NAMED:,} more" if len(ids) > _MOST_NAMED else ""
    whose = f"they belong to {owner}" if owner else "they have no owner"
    if is_imported:  # a module without a function of the queue does not tell which queue's schedules it had
        whose += ", which has no task of this queue any more; schedq schedules rm ID deletes one"
    elif owner:
        whose += f"; --import {owner} checks them too"
    return f"left alone: {', '.join(ids[:_MOST_NAMED])}{more}: {whose}"


def _report_registration(name: str, found: Registration, *, would: str) -> None:
    for word, said in _OUTCOMES.items():
        for schedule_id in getattr(found, word):
            output.line(f"{schedule_id}: {would}{said}")
    for schedule_id in found.missing:
        word = "deleted" if schedule_id in found.removed else "kept"
        output.line(f"{schedule_id}: {would}{word}: no longer in the code")
    total = sum(len(getattr(found, word)) for word in _OUTCOMES)
    hint = "; --prune deletes those no longer in it" if set(found.missing) - set(found.removed) else ""
    output.line(f"queue {name}: the code has {display.count(total, 'schedule')}{hint}")
