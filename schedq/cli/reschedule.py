"""`schedq reschedule`: another time for delayed jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from schedq.cli import show
from schedq.cli.acting import for_each
from schedq.cli.options import json_option, queue_option, redis_option, time_options
from schedq.cli.queues import queue_of_job
from schedq.cli.typed import JOB_ID


@click.command(
    short_help="Give delayed jobs another time.",
    epilog="""\b
Examples:
  schedq reschedule 0d4s3…k8 --now
  schedq reschedule 0d4s3…k8 --run-at 2030-01-01T09:00""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True, type=JOB_ID)
@time_options
@click.option("--now", "is_now", is_flag=True, help="At once, next in line.")
@queue_option
@redis_option
@json_option
def reschedule(
    job_ids: tuple[str, ...],
    delay: timedelta | None,
    run_at: datetime | None,
    is_now: bool,  # noqa: FBT001 - click passes flags by name
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Give delayed jobs, and retries that wait, another time to run."""
    if (delay is not None) + (run_at is not None) + is_now != 1:
        raise click.UsageError("give one of --delay, --run-at and --now")
    with queue_of_job(queue_name, redis_url) as queue:

        def act(job_id: str) -> str | None:
            moved = queue.run_now(job_id) if is_now else queue.reschedule(job_id, delay=delay, run_at=run_at)
            if not moved:
                return None
            record = queue.get_job(job_id)
            if record is None or record.status != "delayed":
                return "runs now"
            return f"due {show.moment(record.run_at_ms, queue.stats()['now_ms'])}"

        for_each(queue, job_ids, act, wish="only a delayed one can be rescheduled", as_json=as_json)
