"""`schedq reschedule`: another time for delayed jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from schedq.cli import show
from schedq.cli.acting import for_each
from schedq.cli.chosen import Chosen, act_on_chosen, dry_run_option, filter_options
from schedq.cli.options import json_option, queue_option, redis_option, time_options, yes_option
from schedq.cli.queues import queue_of_job
from schedq.cli.typed import JOB_ID


@click.command(
    short_help="Give delayed jobs another time.",
    epilog="""\b
Examples:
  schedq reschedule 0d4s3…k8 --now
  schedq reschedule 0d4s3…k8 --run-at 2030-01-01T09:00
  schedq reschedule --task send_email --delay 1h --queue emails""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, type=JOB_ID)
@click.option("--all", "is_all", is_flag=True, help="All delayed jobs of the queue, or all that a filter leaves; asks.")
@filter_options
@dry_run_option
@time_options
@click.option("--now", "is_now", is_flag=True, help="At once, next in line.")
@queue_option
@yes_option
@redis_option
@json_option
def reschedule(
    job_ids: tuple[str, ...],
    is_all: bool,  # noqa: FBT001 - click passes flags by name
    task: str | None,
    older: timedelta | None,
    newer: timedelta | None,
    text: str | None,
    error: str | None,
    is_dry: bool,  # noqa: FBT001
    delay: timedelta | None,
    run_at: datetime | None,
    is_now: bool,  # noqa: FBT001
    queue_name: str | None,
    is_sure: bool,  # noqa: FBT001
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Give delayed jobs, and retries that wait, another time to run: those of the ids, or those of a filter."""
    chosen = Chosen(task, older, newer, text, error)
    is_many = bool(is_all or chosen)
    if (delay is not None) + (run_at is not None) + is_now != 1:
        raise click.UsageError("give one of --delay, --run-at and --now")
    if is_many == bool(job_ids):
        raise click.UsageError("give ids, or else --all or a filter" + ("; not both" if is_many else ""))
    if is_dry and not is_many:
        raise click.UsageError("--dry-run is for jobs that are chosen by a filter")
    with queue_of_job(queue_name, redis_url) as queue:
        if is_many:
            when: dict[str, Any] = {} if is_now else {"delay": delay, "run_at": run_at}
            act_on_chosen(
                queue,
                "run_now" if is_now else "reschedule",
                ["delayed"],
                chosen,
                words=("Run", "brought forward to now") if is_now else ("Reschedule", "rescheduled"),
                is_sure=is_sure,
                is_dry=is_dry,
                as_json=as_json,
                **when,
            )
            return

        def act(job_id: str) -> str | None:
            moved = queue.run_now(job_id) if is_now else queue.reschedule(job_id, delay=delay, run_at=run_at)
            if not moved:
                return None
            record = queue.get_job(job_id)
            if record is None or record.status != "delayed":
                return "runs now"
            return f"due {show.moment(record.run_at_ms, queue.stats()['now_ms'])}"

        for_each(queue, job_ids, act, wish="only a delayed one can be rescheduled", as_json=as_json)
