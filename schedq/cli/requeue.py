"""`schedq requeue`: a new life for failed and cancelled jobs."""

from __future__ import annotations

from datetime import timedelta

import click

from schedq.cli.acting import for_each
from schedq.cli.chosen import Chosen, act_on_chosen, dry_run_option, filter_options, state_option
from schedq.cli.options import json_option, queue_option, redis_option, yes_option
from schedq.cli.queues import queue_of_job
from schedq.cli.typed import JOB_ID


@click.command(
    short_help="Give failed or cancelled jobs a new life.",
    epilog="""\b
Examples:
  schedq requeue 0d4s3…k8
  schedq requeue --failed --queue emails
  schedq requeue --task send_email --error timeout --newer 2h --dry-run""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, type=JOB_ID)
@click.option("--failed", "is_all", is_flag=True, help="All failed jobs of the queue, oldest first; asks.")
@state_option(("failed", "cancelled"), "failed or cancelled; may be given again. With a filter alone: failed.")
@filter_options
@dry_run_option
@queue_option
@yes_option
@redis_option
@json_option
def requeue(
    job_ids: tuple[str, ...],
    is_all: bool,  # noqa: FBT001 - click passes flags by name
    states: tuple[str, ...],
    task: str | None,
    older: timedelta | None,
    newer: timedelta | None,
    text: str | None,
    error: str | None,
    is_dry: bool,  # noqa: FBT001
    queue_name: str | None,
    is_sure: bool,  # noqa: FBT001
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Give failed or cancelled jobs a new life: back to pending, attempts from 0.

    Jobs are named by id, or chosen by a filter. What fails again meanwhile is not requeued twice.
    """
    chosen = Chosen(task, older, newer, text, error)
    is_many = bool(is_all or states or chosen)
    if is_many == bool(job_ids):
        hint = "give ids, or --failed for all failed jobs, or a filter"
        raise click.UsageError(hint + ("; not both" if is_many else ""))
    with queue_of_job(queue_name, redis_url) as queue:
        if is_many:
            places = dict.fromkeys((*(("failed",) if is_all or not states else ()), *states))
            act_on_chosen(
                queue,
                "requeue",
                list(places),
                chosen,
                words=("Requeue", "requeued"),
                is_sure=is_sure,
                is_dry=is_dry,
                as_json=as_json,
                known_as="requeued",
            )
            return
        if is_dry:
            raise click.UsageError("--dry-run is for jobs that are chosen by a filter")

        def act(job_id: str) -> str | None:
            return "requeued" if queue.requeue(job_id) else None

        for_each(queue, job_ids, act, wish="only a failed or cancelled one can be requeued", as_json=as_json)
