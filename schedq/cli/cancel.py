"""`schedq cancel`: cancel jobs that wait, ask running ones to stop."""

from __future__ import annotations

from typing import Final

import click

from schedq.cli.acting import for_each
from schedq.cli.options import ask, json_option, queue_option, redis_option, yes_option
from schedq.cli.queues import queue_of_job
from schedq.cli.typed import JOB_ID

_SAID: Final = {"cancelled": "cancelled", "asked": "asked to stop", "no": None}


@click.command(
    short_help="Cancel jobs that wait; ask running ones to stop.",
    epilog="Example:  schedq cancel 0d4s3…k8 --queue emails",
    no_args_is_help=True,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True, type=JOB_ID)
@queue_option
@yes_option
@redis_option
@json_option
def cancel(
    job_ids: tuple[str, ...],
    queue_name: str | None,
    is_sure: bool,  # noqa: FBT001 - click passes flags by name
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Cancel jobs that wait; ask running ones to stop. Several at once are asked about first.

    A running job is cancelled when its attempt ends without success; its handler may look at is_cancelled.
    """
    with queue_of_job(queue_name, redis_url) as queue:
        if len(job_ids) > 1:
            ask(f"Cancel {len(job_ids)} jobs of queue {queue.name}?", is_sure=is_sure)

        def act(job_id: str) -> str | None:
            return _SAID[queue.cancel(job_id)]

        for_each(queue, job_ids, act, wish="only one that waits or runs can be cancelled", as_json=as_json)
