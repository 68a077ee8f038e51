"""`schedq tail`: what happens in a queue, as it happens."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import click

from schedq.cli import drop_output, output
from schedq.cli.params import JOB_ID, QUEUE_NAME, redis_option
from schedq.cli.queues import open_queue, warn_if_unknown
from schedq.inspect import display
from schedq.model.records import whole

STATUSES: Final = ("completed", "retry", "snoozed", "released", "failed", "cancelled", "reclaimed")
_LIMITS: Final = (
    "that a job was enqueued or has started sends no event; "
    "what happens while the connection is lost is not shown (schedq jobs shows how jobs stand)"
)


@click.command(
    epilog="""\b
Examples:
  schedq tail emails
  schedq tail emails --status failed --status retry --json | jq .error""",
    no_args_is_help=True,
)
@click.argument("name", type=QUEUE_NAME)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(STATUSES),
    multiple=True,
    help="Only events of this status; may be given several times.",
)
@click.option("--id", "job_ids", metavar="ID", multiple=True, type=JOB_ID, help="Only of this job; several times too.")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="Leave after so many events.")
@redis_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for programs; instants are ms.")
def tail(
    name: str,
    statuses: tuple[str, ...],
    job_ids: tuple[str, ...],
    limit: int | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Show what happens in the queue NAME: jobs that complete, fail, come back, are cancelled or taken back.

    A connection that is lost is made anew, for as long as it takes. Events are hints and nobody keeps them: none tells
    that a job was enqueued or has started, and those of a time without connection are missed, which is said.
    """
    with open_queue(name, redis_url) as queue:
        warn_if_unknown(queue, redis_url)
        if not as_json:
            output.warn(f"listening to queue {name}; {_LIMITS}")
        shown = 0
        try:
            for found in queue.inspector.follow():
                if found is None and as_json:
                    output.show_json({"id": "", "status": "missed"})
                elif found is None:
                    output.warn("the connection was lost; events may have been missed")
                elif _is_wanted(found, statuses, job_ids):
                    if as_json:
                        output.show_json(found)
                    else:
                        output.line(_text(found))
                    shown += 1
                if shown == limit:
                    return
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            drop_output()  # the reader has gone, as `head` does


def _is_wanted(found: dict[str, Any], statuses: Collection[str], job_ids: Collection[str]) -> bool:
    return (not statuses or found.get("status") in statuses) and (not job_ids or found.get("id") in job_ids)


def _text(found: dict[str, Any]) -> str:
    """An event on one line: time, status, job and details."""
    at_ms = whole(found.get("at_ms"))
    due, error = whole(found.get("run_at_ms")), found.get("error")
    notes = (
        f"attempt {found['attempts']}" if found.get("attempts") else "",
        f"due {display.apart(due, at_ms)}" if due else "",
        str(error) if error else "",
    )
    about = ", ".join(filter(None, notes))
    return f"{display.clock(at_ms, at_ms)}  {found.get('status', '?'):<10} {found.get('id', '?')}  {about}".rstrip()
