"""`schedq tail`: follows the events of a queue."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import click

from schedq.cli import drop_output, output
from schedq.cli.new_jobs import NewJobs
from schedq.cli.params import JOB_ID, redis_option
from schedq.cli.queue_argument import QueueCommand, queue_argument
from schedq.cli.queues import only_queue, open_queue, warn_if_unknown
from schedq.errors import SchedqError
from schedq.inspect import display
from schedq.model.progress import PROGRESS, of_json
from schedq.model.records import whole

STATUSES: Final = ("completed", "retry", "snoozed", "released", "failed", "cancelled", "reclaimed", PROGRESS)
_LIMITS: Final = (
    "enqueuing or starting a job sends no event (--all looks for them); "
    "events during a lost connection are not shown (schedq jobs shows the current state)"
)
_LOOKS: Final = "jobs that start and end within a second, and delayed jobs, are seen only when they end"
_LOOK_S: Final = 1.0


@click.command(
    cls=QueueCommand,
    epilog="""\b
Examples:
  schedq tail emails
  schedq tail emails --status failed --status retry --json | jq .error""",
)
@queue_argument(takes_only=True)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(STATUSES),
    multiple=True,
    help="Only events with this status; repeatable.",
)
@click.option("--id", "job_ids", metavar="ID", multiple=True, type=JOB_ID, help="Only events of this job; repeatable.")
@click.option(
    "--all",
    "shows_all",
    is_flag=True,
    help="Also look once a second which jobs were enqueued or have started; these are no events.",
)
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="Exit after N events.")
@redis_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per line, for programs; times are ms since the epoch.",
)
def tail(
    name: str | None,
    statuses: tuple[str, ...],
    job_ids: tuple[str, ...],
    shows_all: bool,
    limit: int | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Show the events of the queue NAME: jobs that complete, fail, retry, or are cancelled, released or reclaimed.

    What running jobs report of their progress is shown with --status progress, or if the job is named by --id.
    A lost connection is retried until it succeeds. Events are not stored: those sent while the connection was lost
    are missed, and a message says so. Enqueuing or starting a job sends no event, so that it costs plain jobs nothing.
    With --all the command looks for such jobs itself. It does not see jobs that start and end within a second, delayed
    jobs, or more than a hundred new jobs a second.
    """
    if shows_all and (limit or statuses):
        raise click.UsageError("--all can't be combined with --status or --limit")
    with ExitStack() as stack:
        queue = stack.enter_context(open_queue(name or only_queue(redis_url), redis_url))
        warn_if_unknown(queue, redis_url)
        if not as_json:
            output.warn(f"listening to queue {queue.name}; {_LOOKS if shows_all else _LIMITS}")
        if shows_all:
            stack.enter_context(_looking(queue.name, redis_url, job_ids, as_json=as_json))
        shown = 0
        try:
            for found in queue.inspector.follow():
                if found is None:
                    _show_gap(as_json=as_json)
                elif _is_wanted(found, statuses, job_ids):
                    _show(found, as_json=as_json)
                    shown += 1
                if shown == limit:
                    return
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            drop_output()  # the reader exited, as `head` does


def _show_gap(*, as_json: bool) -> None:
    if as_json:
        output.show_json({"id": "", "status": "missed"})
    else:
        output.warn("the connection was lost; events may have been missed")


def _show(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.show_json(found)
    else:
        output.line(_text(found))


@contextmanager
def _looking(name: str, redis_url: str | None, job_ids: Collection[str], *, as_json: bool) -> Iterator[None]:
    """Show in a thread which jobs were enqueued or have started; a lost connection is retried at the next look."""
    is_over = threading.Event()

    def work() -> None:
        with suppress(SchedqError, click.ClickException, BrokenPipeError), open_queue(name, redis_url) as queue:
            new = NewJobs(queue)
            while not is_over.wait(_LOOK_S):
                with suppress(SchedqError):
                    for found in new.look():
                        if not job_ids or found["id"] in job_ids:
                            _show(found, as_json=as_json)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(_LOOK_S)


def _is_wanted(found: dict[str, Any], statuses: Collection[str], job_ids: Collection[str]) -> bool:
    if found.get("status") == PROGRESS and not statuses and not job_ids:
        return False  # often, and of no interest to those who wait for ends
    return (not statuses or found.get("status") in statuses) and (not job_ids or found.get("id") in job_ids)


def _text(found: dict[str, Any]) -> str:
    """The event as one line: time, status, job and details."""
    at_ms = whole(found.get("at_ms"))
    due, error = whole(found.get("run_at_ms")), found.get("error")
    progress = of_json(found) if found.get("status") == PROGRESS else None
    notes = (
        f"attempt {found['attempts']}" if found.get("attempts") else "",
        f"due {display.apart(due, at_ms)}" if due else "",
        str(error) if error else "",
        display.progress(progress) if progress else "",
    )
    about = ", ".join(filter(None, notes))
    return f"{display.clock(at_ms, at_ms)}  {found.get('status', '?'):<10} {found.get('id', '?')}  {about}".rstrip()
