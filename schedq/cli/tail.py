"""`schedq tail`: what happens in a queue, as it happens."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from typing import Any, Final

import click

from schedq.cli import show
from schedq.cli.options import redis_option
from schedq.cli.queues import visited, warn_if_unknown
from schedq.cli.typed import JOB_ID, QUEUE_NAME
from schedq.job import whole

STATUSES: Final = ("completed", "retry", "snoozed", "released", "failed", "cancelled", "reclaimed")
_LIMITS: Final = (
    "that a job was enqueued or has started sends no event; "
    "what happens while the connection is lost is not shown (schedq jobs shows how jobs stand)"
)


@click.command(
    short_help="What happens in a queue, as it happens, until Ctrl-C.",
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
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Show what happens in the queue NAME: jobs that complete, fail, come back, are cancelled or taken back.

    A connection that is lost is made anew, for as long as it takes. Events are hints and nobody keeps them: none tells
    that a job was enqueued or has started, and those of a time without connection are missed, which is said.
    """
    with visited(name, redis_url) as queue:
        warn_if_unknown(queue, redis_url)
        if not as_json:
            show.warn(f"listening to queue {name}; {_LIMITS}")
        shown = 0
        try:
            for found in queue.inspector.follow():
                if found is None:
                    _say_missed(as_json=as_json)
                elif _is_wanted(found, statuses, job_ids):
                    _say(json.dumps(found, separators=(",", ":")) if as_json else _line(found))
                    shown += 1
                if shown == limit:
                    return
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            # Who reads has gone, as `head` does. What is left in the buffer has nowhere to go either.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def _is_wanted(found: dict[str, Any], statuses: Collection[str], job_ids: Collection[str]) -> bool:
    return (not statuses or found.get("status") in statuses) and (not job_ids or found.get("id") in job_ids)


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _say_missed(*, as_json: bool) -> None:
    if as_json:
        _say('{"id":"","status":"missed"}')
    else:
        show.warn("the connection was lost; events may have been missed")


def _line(found: dict[str, Any]) -> str:
    """An event for people: when, what, which job, and what there is to say about it."""
    at_ms = whole(found.get("at_ms"))
    notes = [f"attempt {found['attempts']}"] if found.get("attempts") else []
    if due := whole(found.get("run_at_ms")):
        notes.append(f"due {show.apart(due, at_ms)}")
    if error := found.get("error"):
        notes.append(str(error))
    text = f"{show.clock(at_ms, at_ms)}  {found.get('status', '?'):<10} {found.get('id', '?')}  {', '.join(notes)}"
    return show.harmless(text.rstrip())
