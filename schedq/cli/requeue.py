"""`schedq requeue`: a new life for failed and cancelled jobs."""

from __future__ import annotations

from typing import Final

import click

from schedq.cli import show
from schedq.cli.acting import for_each
from schedq.cli.options import ask, json_option, queue_option, redis_option, yes_option
from schedq.cli.queues import queue_of_job
from schedq.cli.typed import JOB_ID
from schedq.queue import Queue

_BATCH: Final = 1000


@click.command(
    short_help="Give failed or cancelled jobs a new life.",
    epilog="""\b
Examples:
  schedq requeue 0d4s3…k8
  schedq requeue --failed --queue emails""",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, type=JOB_ID)
@click.option("--failed", "is_all", is_flag=True, help="All failed jobs of the queue, oldest first; asks.")
@queue_option
@yes_option
@redis_option
@json_option
def requeue(
    job_ids: tuple[str, ...],
    is_all: bool,  # noqa: FBT001 - click passes flags by name
    queue_name: str | None,
    is_sure: bool,  # noqa: FBT001
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Give failed or cancelled jobs a new life: back to pending, attempts from 0."""
    if is_all == bool(job_ids):
        raise click.UsageError("give ids, or --failed for all failed jobs" + ("; not both" if is_all else ""))
    with queue_of_job(queue_name, redis_url) as queue:
        if is_all:
            _requeue_failed(queue, is_sure=is_sure, as_json=as_json)
            return

        def act(job_id: str) -> str | None:
            return "requeued" if queue.requeue(job_id) else None

        for_each(queue, job_ids, act, wish="only a failed or cancelled one can be requeued", as_json=as_json)


def _requeue_failed(queue: Queue, *, is_sure: bool, as_json: bool) -> None:
    left = queue.stats()["failed_depth"]
    if left:
        ask(f"Requeue {show.count(left, 'failed job')} of queue {queue.name}?", is_sure=is_sure)
    total = 0
    # Not for as long as there are any: they may fail again meanwhile.
    while left > 0:
        limit = min(_BATCH, left)
        total += queue.requeue_failed(limit)
        left -= limit
    if as_json:
        show.out_json({"queue": queue.name, "requeued": total})
    else:
        show.line(f"queue {queue.name}: {show.count(total, 'job')} requeued")
