"""`schedq schedules pause`, `resume`, `trigger` and `rm`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from schedq.cli import show
from schedq.cli.options import ask, json_option, queue_option, redis_option, yes_option
from schedq.cli.queues import queue_of_job
from schedq.cli.schedules.telling import SCHEDULE_ID, nothing_stored, slot_text
from schedq.errors import UsageError
from schedq.queue import Queue

Answer = tuple[str, dict[str, str]]
"""What was done, in words; and what programs get of it beside."""


@click.command(
    short_help="Let schedules have no slots.",
    epilog="Example:  schedq schedules pause nightly-report",
    no_args_is_help=True,
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=SCHEDULE_ID)
@queue_option
@redis_option
@json_option
def pause(ids: tuple[str, ...], queue_name: str | None, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Let schedules have no slots until they are resumed. Jobs that they made stay."""

    def act(queue: Queue, schedule_id: str) -> Answer | None:
        if queue.schedules.pause(schedule_id):
            return "paused", {}
        return None if queue.schedules.get(schedule_id) is None else ("was paused already", {})

    _for_each(ids, queue_name, redis_url, act, as_json=as_json)


@click.command(
    short_help="Let paused schedules go on from now.",
    epilog="Example:  schedq schedules resume nightly-report",
    no_args_is_help=True,
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=SCHEDULE_ID)
@queue_option
@redis_option
@json_option
def resume(ids: tuple[str, ...], queue_name: str | None, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Let paused schedules, and mended ones that were damaged, go on from now. Slots of the pause are skipped."""

    def act(queue: Queue, schedule_id: str) -> Answer | None:
        did = queue.schedules.resume(schedule_id)
        record = queue.schedules.get(schedule_id)
        if record is None:
            return None
        slot = record.next_slot_ms
        upcoming = "it has no more slots" if slot is None else f"next slot {slot_text(slot, record.tz)}"
        return f"{'goes on' if did else 'was not paused'}; {upcoming}", {}

    _for_each(ids, queue_name, redis_url, act, as_json=as_json)


@click.command(
    short_help="Make a job of schedules now.",
    epilog="Example:  schedq schedules trigger nightly-report",
    no_args_is_help=True,
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=SCHEDULE_ID)
@queue_option
@redis_option
@json_option
def trigger(ids: tuple[str, ...], queue_name: str | None, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Make one job of each schedule now, whatever its slots and policies, and also of a paused one."""

    def act(queue: Queue, schedule_id: str) -> Answer | None:
        job_id = queue.schedules.trigger(schedule_id)
        return None if job_id is None else (f"triggered as job {job_id}", {"job_id": job_id})

    _for_each(ids, queue_name, redis_url, act, as_json=as_json)


@click.command(
    short_help="Delete schedules.",
    epilog="Example:  schedq schedules rm nightly-report --yes",
    no_args_is_help=True,
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=SCHEDULE_ID)
@yes_option
@queue_option
@redis_option
@json_option
def rm(
    ids: tuple[str, ...],
    is_sure: bool,  # noqa: FBT001 - click passes flags by name
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Delete schedules and the account of their slots. Asks first; jobs that they made stay.

    What an application's code has is written anew when one of its workers starts.
    """

    def sure(queue: Queue) -> None:
        there = [schedule_id for schedule_id in dict.fromkeys(ids) if queue.schedules.get(schedule_id) is not None]
        if there:
            ask(
                f"Delete {show.count(len(there), 'schedule')} of queue {queue.name} ({', '.join(there)})?",
                is_sure=is_sure,
            )

    def act(queue: Queue, schedule_id: str) -> Answer | None:
        return ("deleted", {}) if queue.schedules.delete(schedule_id) else None

    _for_each(ids, queue_name, redis_url, act, as_json=as_json, first=sure)


def _for_each(
    ids: Sequence[str],
    queue_name: str | None,
    redis_url: str | None,
    act: Callable[[Queue, str], Answer | None],
    *,
    as_json: bool,
    first: Callable[[Queue], None] | None = None,
) -> None:
    """Do something to each schedule and say what came of it; exit code 1 if one is not there, or refuses."""
    answers: list[dict[str, str]] = []
    has_refused = False
    with queue_of_job(queue_name, redis_url) as queue:
        if first is not None:
            first(queue)
        for schedule_id in dict.fromkeys(ids):
            try:
                done = act(queue, schedule_id)
                why = "" if done else nothing_stored(schedule_id, queue)
            except UsageError as error:  # it is damaged still
                done, why = None, str(error)
            if done is None:
                has_refused = True
                answers.append({"id": schedule_id, "answer": "no", "why": why})
                if not as_json:
                    show.warn(why)
                continue
            answers.append({"id": schedule_id, "answer": done[0], **done[1]})
            if not as_json:
                show.line(f"{schedule_id}: {done[0]}")
        if as_json:
            show.out_json({"queue": queue.name, "schedules": answers})
    if has_refused:
        raise click.exceptions.Exit(1)
