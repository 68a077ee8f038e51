"""`schedq job`: all that is stored of one job."""

from __future__ import annotations

from typing import Final

import click
from rich.table import Table

from schedq.cli import show
from schedq.cli.options import json_option, queue_option, redis_option
from schedq.cli.queues import queue_of_job
from schedq.cli.typed import JOB_ID
from schedq.job import JobRecord, whole
from schedq.operations.timeline import Step, Timeline
from schedq.registry import is_task_call

_TO_MS: Final = len("2030-01-01 09:00:00.000")
_TIMES: Final = {
    "enqueued": "enqueued_at_ms",
    "due": "run_at_ms",
    "promoted": "promoted_at_ms",
    "started": "started_at_ms",
    "lease renewed": "claimed_at_ms",
    "taken back": "reclaimed_at_ms",
    "asked to stop": "stop",
    "completed": "completed_at_ms",
    "cancelled": "cancelled_at_ms",
}
_SHOWN: Final = {
    *(
        "id",
        "status",
        "payload",
        "attempts",
        "max_attempts",
        "result",
        "result_error",
        "last_error",
        "last_error_at_ms",
    ),
    # Nobody needs these but the scripts; --json has them.
    *("settled_move", "settled_token", "claim_token", "adopted_token", "request", "waiter", "released"),
    *("worker", "crashes", "history", "traceback", "backoff", "timeout_ms", *_TIMES.values()),
}


@click.command(
    short_help="Show all that is stored of one job.",
    epilog="Example:  schedq job 0d4s3…k8 --queue emails",
    no_args_is_help=True,
)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@queue_option
@redis_option
@json_option
def job(job_id: str, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001 - click's way
    """All that is stored of the job ID: state, times, payload, result, error, and what it has been through."""
    with queue_of_job(queue_name, redis_url) as queue:
        record, line = queue.get_job(job_id), queue.inspector.timeline(job_id)
        most = queue.inspector.why(job_id).max_attempts
        name = queue.name
    if record is None or line is None:
        raise click.ClickException(
            f"nothing is stored of job {job_id} in queue {name}: trimmed, purged, or never there"
        )
    if as_json:
        found = {"queue": name, **show.plain(record), "fields": dict(record.fields)}
        show.out_json({**found, "timeline": line.to_dict()})
        return
    now = line.now_ms
    show.out(show.facts(_facts(name, record, now, most)))
    _block("payload", show.pretty(record.fields.get("payload", "")))
    if "result" in record.fields:
        _block("result", show.pretty(record.fields["result"]))
    if record.last_error:
        _block(f"last error, {show.moment(record.last_error_at_ms, now)}", show.harmless_lines(record.last_error))
        if "traceback" in record.fields:
            _block("traceback", show.harmless_lines(record.fields["traceback"].rstrip()))
    if line.steps:
        earlier = f", without the {show.count(line.earlier, 'attempt')} before" if line.earlier else ""
        show.out("", show.heading(f"timeline{earlier}"), _timeline(line))


def _facts(name: str, record: JobRecord, now_ms: int, most: int | None) -> list[tuple[str, str]]:
    fields = record.fields
    pairs = [
        ("job", record.id),
        ("queue", name),
        ("state", record.status or "none"),
        ("task", record.payload["task"] if is_task_call(record.payload) else ""),
        ("attempts", f"{record.attempts}" + (f" of {most}" if most else "")),
        ("worker", record.worker),
        ("leases lost", str(record.crashes) if record.crashes else ""),
        *((what, show.moment(whole(fields[field]), now_ms)) for what, field in _times(record).items()),
        ("timeout", show.span(whole(fields["timeout_ms"])) if "timeout_ms" in fields else ""),
        ("backoff", fields.get("backoff", "")),
        ("result error", record.result_error),
        *((field, text) for field, text in sorted(fields.items()) if field not in _SHOWN),
    ]
    return [(what, text) for what, text in pairs if text]


def _times(record: JobRecord) -> dict[str, str]:
    """The instants that say something of a job in its state."""
    passed_over = set() if record.status == "processing" else {"lease renewed"}
    return {
        what: field for what, field in _TIMES.items() if whole(record.fields.get(field)) and what not in passed_over
    }


def _block(title: str, text: str) -> None:
    show.out("", show.heading(title))
    click.echo(show.harmless_lines(text))


def _timeline(line: Timeline) -> Table:
    rows = [(show.moment(step.at_ms, line.now_ms)[:_TO_MS], *_step(line, step)) for step in line.steps]
    return show.table(["", "", "took", "worker", "note"], rows, whole=1, times=(0, 2))


def _step(line: Timeline, step: Step) -> tuple[str, str, str, str]:
    attempt = step.attempt
    if attempt is not None:
        took = show.span(attempt.duration_ms)
        return f"attempt {attempt.number}: {attempt.outcome}", took, attempt.worker, attempt.error
    if step.at_ms > line.now_ms:
        return step.what, "", "", show.apart(step.at_ms, line.now_ms)
    late = line.promoted_at_ms - line.due_at_ms
    return step.what, "", "", f"{show.span(late)} late" if step.what == "promoted" and late >= 0 else ""
