"""`schedq cancel`: cancel jobs that wait, ask running ones to stop."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import click

from schedq.cli.acting import for_each
from schedq.cli.chosen import Chosen, act_on_chosen, dry_run_option, filter_options, state_option
from schedq.cli.options import ask, json_option, queue_option, redis_option, yes_option
from schedq.cli.queues import queue_of_job
from schedq.cli.typed import JOB_ID

_SAID: Final = {"cancelled": "cancelled", "asked": "asked to stop", "no": None}


@click.command(
    short_help="Cancel jobs that wait; ask running ones to stop.",
    epilog="""\b
Examples:
  schedq cancel 0d4s3…k8 --queue emails
  schedq cancel --state delayed --task send_email --older 1d""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, type=JOB_ID)
@state_option(
    ("pending", "delayed", "processing"),
    "pending, delayed or processing; may be given again. With a filter alone: pending and delayed.",
)
@filter_options
@dry_run_option
@queue_option
@yes_option
@redis_option
@json_option
def cancel(
    job_ids: tuple[str, ...],
    states: tuple[str, ...],
    task: str | None,
    older: timedelta | None,
    newer: timedelta | None,
    text: str | None,
    error: str | None,
    is_dry: bool,  # noqa: FBT001 - click passes flags by name
    queue_name: str | None,
    is_sure: bool,  # noqa: FBT001
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Cancel jobs that wait; ask running ones to stop. Several at once are asked about first.

    Jobs are named by id, or chosen by a state or a filter. A running job is cancelled when its attempt ends without
    success; its handler may look at is_cancelled.
    """
    chosen = Chosen(task, older, newer, text, error)
    is_many = bool(states or chosen)
    if is_many == bool(job_ids):
        raise click.UsageError("give ids, or else a state or a filter" + ("; not both" if is_many else ""))
    with queue_of_job(queue_name, redis_url) as queue:
        if is_many:
            act_on_chosen(
                queue,
                "cancel",
                list(dict.fromkeys(states or ("pending", "delayed"))),
                chosen,
                words=("Cancel", "cancelled or asked to stop" if "processing" in states else "cancelled"),
                is_sure=is_sure,
                is_dry=is_dry,
                as_json=as_json,
            )
            return
        if is_dry:
            raise click.UsageError("--dry-run is for jobs that are chosen by a filter")
        if len(job_ids) > 1:
            ask(f"Cancel {len(job_ids)} jobs of queue {queue.name}?", is_sure=is_sure)

        def act(job_id: str) -> str | None:
            return _SAID[queue.cancel(job_id)]

        for_each(queue, job_ids, act, wish="only one that waits or runs can be cancelled", as_json=as_json)
