"""`schedq jobs` and `job`: show jobs, page by page or one in detail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
from rich.table import Table

from schedq.cli import output
from schedq.cli.params import (
    JOB_ID,
    FilterOptions,
    filter_options,
    json_option,
    queue_of_id_option,
    redis_option,
)
from schedq.cli.queue_argument import QueueCommand, queue_argument
from schedq.cli.queues import must_be_known, only_queue, open_queue, queue_of_job, typed_again, warn_if_no_task
from schedq.inspect import display, runs
from schedq.inspect.plain import plain
from schedq.inspect.search import STATES, USUALLY_LOOKED
from schedq.inspect.stats import BrokenNote, Stats
from schedq.inspect.timeline import OVER, STEP_KIND, WAITING, Timeline, TimelineEvent
from schedq.inspect.uniqueness import StoredRule
from schedq.inspect.why import Why
from schedq.model import escaping
from schedq.model.expiry import expires_at_ms
from schedq.model.lifecycle import BROKEN, FINISHED, JOB_STATES, PROCESSING
from schedq.model.progress import Progress, of_earlier_attempt
from schedq.model.records import JobRecord, whole
from schedq.model.runs import Memo
from schedq.model.tasks import is_task_call
from schedq.model.times import span
from schedq.queue.queue import Queue

_COLUMNS: Final = {
    "pending": ("enqueued_at_ms", ("enqueued", "", "task", "attempts", "payload")),
    "delayed": ("run_at_ms", ("due", "", "task", "attempts", "payload")),
    "processing": ("started_at_ms", ("since", "task", "attempts", "worker", "payload")),
    "completed": ("completed_at_ms", ("completed", "", "took", "task", "result")),
    "failed": ("last_error_at_ms", ("failed", "", "took", "task", "attempts", "error")),
    "cancelled": ("cancelled_at_ms", ("cancelled", "", "task", "attempts", "payload")),
}
"""State -> the most informative time of a job in that state, and the columns of `jobs` after the id."""
_TIMES_OF: Final = {"", "since", "took", "progress", *(titles[0] for _, titles in _COLUMNS.values())}
"""Titles of columns that are never cut."""
_WIDE: Final = 100
_WIDE_ONLY: Final = {"failed": {"took", "attempts"}}
"""State -> columns that narrower terminals have no room for; of other states the attempts."""
_TIMES: Final = {
    "enqueued": "enqueued_at_ms",
    "due": "run_at_ms",
    "promoted": "promoted_at_ms",
    "started": "started_at_ms",
    "lease renewed": "claimed_at_ms",
    "replaced": "replaced_at_ms",
    "reclaimed": "reclaimed_at_ms",
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
    # Only the Lua scripts use these; --json shows them.
    *(
        "settled_move",
        "settled_token",
        "claim_token",
        "adopted_token",
        "request",
        "waiter",
        "released",
        "replaced_by",
        "made_by",
    ),
    *(
        "worker",
        "crashes",
        "history",
        "traceback",
        "backoff",
        "timeout_ms",
        "completed_ttl_ms",
        "failed_ttl_ms",
        "expires",
        "headers",
        "cancel_reason",
        "unique",
        "unique_rule",
        *_TIMES.values(),
    ),
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of jobs of one state.

    Attributes:
        state: of the jobs.
        rows: a JobRecord for each job; for `broken` a BrokenNote.
        total: number of jobs in that state.
        so_far: of a finished state, how many have ended in it since the queue began; else 0.
        looked: number of jobs that were compared with the filter.
        cursor: where the next page starts; None on the last page, and without a filter.
    """

    state: str
    rows: Sequence[Any]
    total: int
    looked: int = 0
    cursor: str | None = None
    so_far: int = 0

    @property
    def kept(self) -> str:
        """`; 1,000 kept of 48,212 so far`; '' if all are kept."""
        return f"; {self.total:,} kept of {self.so_far:,} so far" if self.so_far > self.total else ""


@click.command(
    cls=QueueCommand,
    epilog="""\b
Examples:
  schedq jobs emails
  schedq jobs emails --state failed --limit 50
  schedq jobs emails --state failed --task send_email --error timeout --newer 2h""",
)
@queue_argument(takes_only=True)
@click.option(
    "--state",
    "states",
    type=click.Choice(JOB_STATES),
    multiple=True,
    metavar="STATE",
    help=f"One of {', '.join(JOB_STATES)}; repeatable.",
)
@filter_options
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Number of jobs to skip in each state.")
@click.option(
    "--cursor", metavar="C", help="With a filter: the start of the next page, as the previous page printed it."
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N", help="Maximum per state."
)
@click.option(
    "--look",
    type=click.IntRange(1),
    default=USUALLY_LOOKED,
    show_default=True,
    metavar="N",
    help="With a filter: maximum number of jobs to search; the next page continues from there.",
)
@redis_option
@json_option
def jobs(
    name: str | None,
    states: tuple[str, ...],
    filters: FilterOptions,
    offset: int,
    cursor: str | None,
    limit: int,
    look: int,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """List the jobs of the queue NAME, a page per state: waiting jobs in running order, finished ones newest first.

    Ages are counted from enqueue for waiting jobs, from start for running ones, and from finish for finished ones.
    Text filters compare with the stored JSON and are case-sensitive.
    """
    name = name or only_queue(redis_url)
    if not filters and cursor is None:
        _list_all(name, redis_url, states, offset=offset, limit=limit, as_json=as_json)
        return
    if offset:
        raise click.UsageError("--offset can't be combined with a filter; use --cursor for the next page")
    _list_matching(name, redis_url, states, filters, cursor=cursor, limit=limit, look=look, as_json=as_json)


def _list_all(
    name: str, redis_url: str | None, states: tuple[str, ...], *, offset: int, limit: int, as_json: bool
) -> None:
    """A page of each state."""
    with open_queue(name, redis_url) as queue:
        stats = queue.stats()
        shown = dict.fromkeys(states or JOB_STATES)
        pages = [_page(queue, state, stats, offset, limit) for state in shown]
        if not any(page.total for page in pages):
            must_be_known(queue, redis_url)
    more = [page.state for page in pages if offset + limit < page.total]
    if as_json:
        _show_json(name, pages, offset=offset, next_offset=offset + limit if more else None)
        return
    again = typed_again("jobs", name, redis_url, limit)
    for page in pages:
        if page.total or states:
            rest = f"{again} --state {page.state} --offset {offset + limit}" if page.rows and page.state in more else ""
            _show(page, stats["now_ms"], _range(page, offset), rest)
    if not states and not any(page.total for page in pages):
        output.line(f"queue {name} holds no jobs")


def _list_matching(
    name: str,
    redis_url: str | None,
    states: tuple[str, ...],
    filters: FilterOptions,
    *,
    cursor: str | None,
    limit: int,
    look: int,
    as_json: bool,
) -> None:
    """A page of the jobs of each state that match a filter."""
    if BROKEN in states:
        raise click.UsageError(f"notes about {BROKEN} ids can't be filtered")
    places = list(dict.fromkeys(states or STATES))
    if cursor is not None and len(places) != 1:
        raise click.UsageError("--cursor belongs to one state: name it with --state")
    with open_queue(name, redis_url) as queue:
        stats = queue.stats()
        pages: list[Page] = []
        for number, state in enumerate(places):  # later states get what earlier ones did not use
            share = max(1, (look - sum(page.looked for page in pages)) // (len(places) - number))
            pages.append(_matching_page(queue, state, _so_far(stats, state), filters, cursor, limit, share))
        if not any(page.total for page in pages):
            must_be_known(queue, redis_url)
        if filters.task is not None and not any(page.rows for page in pages):
            warn_if_no_task(queue, [filters.task])
    if as_json:
        looked = {page.state: page.looked for page in pages}
        _show_json(name, pages, looked=looked, cursors={page.state: page.cursor for page in pages if page.cursor})
        return
    again = typed_again("jobs", name, redis_url, limit) + filters.as_arguments()
    shown = [page for page in pages if page.rows or page.cursor]
    for page in pages if states else shown:
        summary = f"{len(page.rows):,} found, {page.looked:,} of {page.total:,} searched{page.kept}"
        rest = f"{again} --state {page.state} --cursor {page.cursor}" if page.cursor else ""
        _show(page, stats["now_ms"], summary, rest)
    if not states and not shown:
        output.line(f"queue {name} holds no such jobs{filters.in_words()}")


def _show_json(name: str, pages: Sequence[Page], **more: Any) -> None:
    rows = [
        {"state": page.state, **(asdict(row) if isinstance(row, BrokenNote) else plain(row))}
        for page in pages
        for row in page.rows
    ]
    totals = {page.state: page.total for page in pages}
    so_far = {page.state: page.so_far for page in pages if page.state in FINISHED}
    output.show_json({"queue": name, "jobs": rows, "totals": totals, "so_far": so_far, **more})


def _so_far(stats: Stats, state: str) -> int:
    return stats[f"{state}_total"] if state in FINISHED else 0


def _matching_page(
    queue: Queue, state: str, so_far: int, filters: FilterOptions, cursor: str | None, limit: int, look: int
) -> Page:
    rows: list[JobRecord] = []
    looked = total = 0
    with output.progress_bar(f"searching {state} jobs", 1) as moved:
        while True:
            left = min(look - looked, USUALLY_LOOKED)
            some = queue.inspector.find(state, **filters.given(), limit=limit - len(rows), cursor=cursor, look=left)
            rows += some.jobs
            looked, total, cursor = looked + some.looked, some.total, some.cursor
            if cursor is None or len(rows) >= limit or looked >= look:
                return Page(state, rows, total, looked, cursor, so_far)
            moved(looked, min(total, look))


def _page(queue: Queue, state: str, stats: Stats, offset: int, limit: int) -> Page:
    """Read a page, in several requests if it is large: one reply has at most 1 MiB."""
    rows: list[Any] = []
    total = stats[f"{state}_depth"]
    read = getattr(queue, f"list_{state}")
    while len(rows) < min(limit, total - offset) and (some := read(offset=offset + len(rows), limit=limit - len(rows))):
        rows += some
    return Page(state, rows, total, so_far=_so_far(stats, state))


def _range(page: Page, offset: int) -> str:
    if not page.rows:
        return (
            f"none{f' from {offset:,} on' if page.total else ''}; {display.count(page.total, 'job')} in all{page.kept}"
        )
    last = offset + len(page.rows)
    return f"{offset + 1:,} to {last:,} of {max(page.total, last):,}{page.kept}"


def _show(page: Page, now_ms: int, summary: str, next_page: str) -> None:
    output.show(output.heading(page.state))
    if page.rows:
        output.show(_table(page, now_ms))
    output.line(summary)
    if next_page:
        output.line(f"next page: {next_page}")
    output.show("")


def _table(page: Page, now_ms: int) -> Table:
    if page.state == BROKEN:
        notes = [(n.id, display.clock(n.at_ms, now_ms), display.roughly(n.at_ms, now_ms), n.reason) for n in page.rows]
        return output.table(["id", "found", "", "reason"], notes, times=(1, 2))
    field, titles = _COLUMNS[page.state]
    if page.state == PROCESSING and any(record.progress for record in page.rows):
        titles = (*titles[:2], "progress", *titles[2:])
    if output.width() < _WIDE:
        titles = tuple(title for title in titles if title not in _WIDE_ONLY.get(page.state, {"attempts"}))
    cells = [_cells(record, field, titles, now_ms) for record in page.rows]
    times = [n for n, title in enumerate(titles, 1) if title in _TIMES_OF]
    return output.table(["id", *titles], cells, right=["attempts"], times=times)


def _cells(record: JobRecord, field: str, titles: tuple[str, ...], now_ms: int) -> list[str]:
    at_ms = whole(getattr(record, field, 0) or record.fields.get(field))
    clock, ago = display.clock(at_ms, now_ms), display.roughly(at_ms, now_ms)
    task = record.payload["task"] if is_task_call(record.payload) else ""
    began_ms = record.started_at_ms
    texts = {
        "": ago,
        "since": ago,
        "took": span(at_ms - began_ms) if 0 < began_ms <= at_ms else display.NOTHING,
        "task": task or display.NOTHING,
        "attempts": f"{record.attempts}" + (f" of {record.max_attempts}" if record.max_attempts else ""),
        "progress": display.bar(record.progress) if record.progress else "",
        "worker": record.worker or display.NOTHING,
        "payload": display.stored(record.fields, "payload").removeprefix(task),  # the task has a column
        "result": display.stored(record.fields, "result") if record.fields else "its record has expired",
        "error": record.last_error.strip().partition("\n")[0] or display.NOTHING,
    }
    return [record.id, *(texts.get(title, clock) for title in titles)]


@click.command(
    epilog="Example:  schedq job 0d4s3…k8 --queue emails",
    no_args_is_help=True,
)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option(
    "--tree", "as_tree", is_flag=True, help="Show a workflow as a tree: branches, operations, and their jobs."
)
@queue_of_id_option
@redis_option
@json_option
def job(job_id: str, as_tree: bool, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Show everything stored about the job ID: state, times, payload, result, error and timeline."""
    with queue_of_job(queue_name, redis_url, [job_id]) as queue:
        if as_tree:
            from schedq.cli.run_tree import show  # imports what no other command needs

            if show(queue, job_id, as_json=as_json):
                return
        record, line = queue.get_job(job_id), queue.inspector.timeline(job_id)
        why = queue.inspector.why(job_id)
        name = queue.name
    if record is None or line is None:
        raise click.ClickException(
            f"nothing is stored about job {job_id} in queue {name}: trimmed, purged, or never enqueued"
        )
    if as_json:
        found = {"queue": name, **plain(record), "fields": dict(record.fields)}
        output.show_json({**found, "timeline": line.to_dict()})
        return
    now = line.now_ms
    output.show(output.facts(_facts(name, record, now, why)))
    _block("payload", display.pretty(record.fields.get("payload", "")))
    if "headers" in record.fields:
        _block("headers", display.pretty(record.fields["headers"]))
    if record.meta:
        _block("meta", display.pretty(record.fields["meta"]))
    if "result" in record.fields:
        _block("result", display.pretty(record.fields["result"]))
    if record.last_error:
        title = f"{display.error_title(record)}, {display.moment(record.last_error_at_ms, now)}"
        _block(title, escaping.harmless_lines(record.last_error))
        if "traceback" in record.fields:
            _block("traceback", escaping.harmless_lines(record.fields["traceback"].rstrip()))
    if operations := runs.done(record.fields):
        output.show("", output.heading("done so far" if record.status not in FINISHED else "done"), _done(operations))
    if line.steps:
        earlier = f", without {display.count(line.earlier, 'earlier attempt')}" if line.earlier else ""
        output.show("", output.heading(f"timeline{earlier}"), _timeline(line))


def _facts(name: str, record: JobRecord, now_ms: int, why: Why) -> list[tuple[str, str]]:
    fields, most = record.fields, why.max_attempts
    times = {what: whole(fields.get(field)) for what, field in _TIMES.items()}
    if record.status != "processing":
        del times["lease renewed"]
    old = None if record.progress else of_earlier_attempt(fields)
    shown = {*_SHOWN, *(["meta"] if record.meta else []), *(["progress"] if record.progress or old else [])}
    return [
        ("job", record.id),
        ("queue", name),
        ("state", record.status or "none"),
        ("task", record.payload["task"] if is_task_call(record.payload) else ""),
        ("attempts", f"{record.attempts}" + (f" of {most}" if most else "")),
        ("worker", record.worker),
        ("leases lost", str(record.crashes) if record.crashes else ""),
        ("progress", _progress(record.progress, now_ms)),
        ("progress of an earlier attempt", _progress(old, now_ms)),
        *((what, display.moment(at_ms, now_ms)) for what, at_ms in times.items() if at_ms),
        ("timeout", span(whole(fields["timeout_ms"])) if "timeout_ms" in fields else ""),
        ("backoff", fields.get("backoff", "")),
        *((name, span(ms)) for name, ms in record.ttls_ms.items()),
        ("expires", display.moment(expires, now_ms) if (expires := expires_at_ms(fields)) else ""),
        ("unique key", fields.get("unique", "")),
        ("which is", StoredRule.of(fields.get("unique_rule", "")).words() if "unique" in fields else ""),
        ("cancelled because", fields.get("cancel_reason", "")),
        ("result error", record.result_error),
        ("waits", why.text if why.reason == "suspended" else ""),
        ("to undo", ", ".join(runs.to_undo(fields))),
        *((f"messages on topic {topic}", str(count)) for topic, count in runs.messages(fields)),
        *((field, text) for field, text in sorted(fields.items()) if field not in shown and not runs.is_of_run(field)),
    ]


def _progress(found: Progress | None, now_ms: int) -> str:
    if found is None:
        return ""
    at = f" ({display.apart(found.at_ms, now_ms)})" if found.at_ms else ""
    return output.progress_line(found) + at


def _block(title: str, text: str) -> None:
    output.show("", output.heading(title))
    click.echo(escaping.harmless_lines(text))


def _done(operations: Sequence[runs.Done]) -> Table:
    rows = [
        (each.name, each.memo.outcome, span(max(0, each.memo.ended_ms - each.memo.began_ms)), _value(each.memo))
        for each in operations
    ]
    return output.table(["", "", "took", "value"], rows, whole=0, times=(2,))


def _value(memo: Memo) -> str:
    return "" if memo.value is None else escaping.harmless(json.dumps(memo.value, ensure_ascii=False))


def _timeline(line: Timeline) -> Table:
    rows = [
        (display.moment(event.at_ms, line.now_ms)[: output.TO_MS], *_timeline_row(line, event)) for event in line.steps
    ]
    return output.table(["", "", "took", "worker", "note"], rows, whole=1, times=(0, 2))


def _timeline_row(line: Timeline, event: TimelineEvent) -> tuple[str, str, str, str]:
    attempt = event.attempt
    if attempt is not None:
        return event.text, span(attempt.duration_ms), attempt.worker, attempt.error
    if (it := event.operation) is not None:
        is_over = event.what == OVER or it.kind == STEP_KIND
        took = span(it.duration_ms) if is_over and it.ended_at_ms else ""
        coming = display.apart(event.at_ms, line.now_ms) if event.at_ms > line.now_ms else ""
        return event.text, took, "", coming or (it.note if is_over or it.outcome == WAITING else "")
    if event.at_ms > line.now_ms:
        return event.text, "", "", display.apart(event.at_ms, line.now_ms)
    late = line.promoted_at_ms - line.due_at_ms
    return event.text, "", "", f"{span(late)} late" if event.what == "promoted" and late >= 0 else ""
