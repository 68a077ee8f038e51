"""`schedq jobs`: the jobs of a queue, page by page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final, cast

import click

from schedq.cli import show
from schedq.cli.chosen import Chosen, bar, filter_options
from schedq.cli.options import json_option, redis_option
from schedq.cli.queues import must_be_known, visited, warn_if_no_task
from schedq.cli.typed import QUEUE_NAME
from schedq.job import JobRecord, whole
from schedq.lifecycle import BROKEN, PLACES
from schedq.operations.filters import STATES
from schedq.operations.finding import USUALLY_LOOKED
from schedq.operations.views import BrokenNote
from schedq.queue import Queue

Column = tuple[str, Callable[[JobRecord, int], str]]


def _attempts(record: JobRecord, _now: int) -> str:
    return f"{record.attempts}" + (f" of {record.max_attempts}" if record.max_attempts else "")


def _payload(record: JobRecord, _now: int) -> str:
    return show.stored(record.fields, "payload")


def _at(name: str) -> tuple[Column, Column]:
    """Two columns: a local time, and how far away it is."""

    def when(record: JobRecord) -> int:
        return whole(getattr(record, name, 0) or record.fields.get(name))

    return (
        ("at", lambda record, now: show.clock(when(record), now)),
        ("", lambda record, now: show.roughly(when(record), now)),
    )


def _named(title: str, pair: tuple[Column, Column]) -> tuple[Column, Column]:
    return (title, pair[0][1]), pair[1]


COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "pending": (*_named("enqueued", _at("enqueued_at_ms")), ("attempts", _attempts), ("payload", _payload)),
    "delayed": (*_named("due", _at("run_at_ms")), ("attempts", _attempts), ("payload", _payload)),
    "processing": (
        ("since", _at("started_at_ms")[1][1]),
        ("attempts", _attempts),
        ("worker", lambda record, _: record.worker or show.NOTHING),
        ("payload", _payload),
    ),
    "completed": (
        *_named("completed", _at("completed_at_ms")),
        (
            "result",
            lambda record, _: show.stored(record.fields, "result") if record.fields else "its record has expired",
        ),
    ),
    "failed": (
        *_named("failed", _at("last_error_at_ms")),
        ("attempts", _attempts),
        ("error", lambda record, _: record.last_error.strip().partition("\n")[0] or show.NOTHING),
    ),
    "cancelled": (*_named("cancelled", _at("cancelled_at_ms")), ("attempts", _attempts), ("payload", _payload)),
}
"""What a table shows beside the id, fitted to the state."""
_TIMES: Final = ("", "enqueued", "due", "since", "completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs of one state.

    Attributes:
        state: the place they are in.
        rows: the jobs, or notes for `broken`.
        total: how many are there.
        looked: how many of them were looked at, to find those that match.
        cursor: where to look on; None at the end, and without a filter.
    """

    state: str
    rows: Sequence[JobRecord | BrokenNote]
    total: int
    looked: int = 0
    cursor: str | None = None


@click.command(
    short_help="List the jobs of a queue, by state, page by page.",
    epilog="""\b
Examples:
  schedq jobs emails
  schedq jobs emails --state failed --limit 50
  schedq jobs emails --state failed --task send_email --error timeout --newer 2h""",
    no_args_is_help=True,
)
@click.argument("name", type=QUEUE_NAME)
@click.option(
    "--state",
    "states",
    type=click.Choice(PLACES),
    multiple=True,
    metavar="STATE",
    help=f"One of {', '.join(PLACES)}; may be given again.",
)
@filter_options
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Jobs of each state to pass over.")
@click.option("--cursor", metavar="C", help="Where the page before, of a filter, said that the next one begins.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N", help="Most per state."
)
@click.option(
    "--look",
    type=click.IntRange(1),
    default=USUALLY_LOOKED,
    show_default=True,
    metavar="N",
    help="With a filter: jobs to look at, at most, to find those that match; what is left is the next page's.",
)
@redis_option
@json_option
def jobs(
    name: str,
    states: tuple[str, ...],
    task: str | None,
    older: timedelta | None,
    newer: timedelta | None,
    text: str | None,
    error: str | None,
    offset: int,
    cursor: str | None,
    limit: int,
    look: int,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """The jobs of the queue NAME, a page of each state: next to run first, finished ones newest first.

    Ages count since the enqueue of what waits, the start of what runs, and the end of what has finished. Texts are
    found as they are stored; case counts.
    """
    chosen = Chosen(task, older, newer, text, error)
    if chosen or cursor is not None:
        if offset:
            raise click.UsageError("--offset does not go with a filter; the next page is that of --cursor")
        _list_chosen(name, redis_url, states, chosen, cursor=cursor, limit=limit, look=look, as_json=as_json)
        return
    with visited(name, redis_url) as queue:
        found = queue.stats()
        pages = [
            _page(queue, state, cast("dict[str, int]", found)[f"{state}_depth"], offset, limit)
            for state in dict.fromkeys(states or PLACES)
        ]
        if not any(page.total for page in pages):
            must_be_known(queue, redis_url)
    has_more = any(offset + limit < page.total for page in pages)
    if as_json:
        show.out_json(
            {
                "queue": name,
                "jobs": [_plain(page.state, row) for page in pages for row in page.rows],
                "totals": {page.state: page.total for page in pages},
                "offset": offset,
                "next_offset": offset + limit if has_more else None,
            }
        )
        return
    again = _again(name, redis_url, limit)
    for page in pages:
        if page.total or states:
            _show(page, found["now_ms"], offset, limit, again)
    if not states and not any(page.total for page in pages):
        show.line(f"queue {name} holds no jobs")


def _list_chosen(
    name: str,
    redis_url: str | None,
    states: tuple[str, ...],
    chosen: Chosen,
    *,
    cursor: str | None,
    limit: int,
    look: int,
    as_json: bool,
) -> None:
    """Pages of the jobs that match a filter."""
    if BROKEN in states:
        raise click.UsageError(f"notes of {BROKEN} ids can't be filtered")
    places = list(dict.fromkeys(states or STATES))
    if cursor is not None and len(places) != 1:
        raise click.UsageError("--cursor is of one state; name it with --state")
    with visited(name, redis_url) as queue:
        found = queue.stats()
        pages: list[Page] = []
        for number, state in enumerate(places):  # what a state leaves is for those that follow
            share = max(1, (look - sum(page.looked for page in pages)) // (len(places) - number))
            pages.append(_chosen_page(queue, state, chosen, cursor, limit, share))
        if not any(page.total for page in pages):
            must_be_known(queue, redis_url)
        if chosen.task is not None and not any(page.rows for page in pages):
            warn_if_no_task(queue, [chosen.task])
    if as_json:
        show.out_json(
            {
                "queue": name,
                "jobs": [_plain(page.state, row) for page in pages for row in page.rows],
                "totals": {page.state: page.total for page in pages},
                "looked": {page.state: page.looked for page in pages},
                "cursors": {page.state: page.cursor for page in pages if page.cursor},
            }
        )
        return
    again = _again(name, redis_url, limit) + chosen.typed()
    for page in pages:
        if page.rows or page.cursor or states:
            _show_chosen(page, found["now_ms"], again)
    if not states and not any(page.rows or page.cursor for page in pages):
        show.line(f"queue {name} holds no such jobs{chosen.says()}")


def _chosen_page(queue: Queue, state: str, chosen: Chosen, cursor: str | None, limit: int, look: int) -> Page:
    rows: list[JobRecord] = []
    looked = total = 0
    with bar(f"looking through {state} jobs", 1) as moved:
        while True:
            left = min(look - looked, USUALLY_LOOKED)
            some = queue.inspector.find(state, **chosen.options(), limit=limit - len(rows), cursor=cursor, look=left)
            rows += some.jobs
            looked, total, cursor = looked + some.looked, some.total, some.cursor
            if cursor is None or len(rows) >= limit or looked >= look:
                return Page(state, rows, total, looked, cursor)
            moved(looked, min(total, look))


def _show_chosen(page: Page, now_ms: int, again: str) -> None:
    show.out(show.heading(page.state))
    if page.rows:
        show.out(_table(page, now_ms))
    show.line(f"{len(page.rows):,} found, {page.looked:,} of {page.total:,} looked at")
    if page.cursor:
        show.line(f"next page: {again} --state {page.state} --cursor {page.cursor}")
    show.out("")


def _page(queue: Queue, state: str, total: int, offset: int, limit: int) -> Page:
    """A page, in as many requests as its bytes need: one answers 1 MiB at the most."""
    rows: list[Any] = []
    read = getattr(queue, f"list_{state}")
    while len(rows) < limit and offset + len(rows) < total:
        some = read(offset=offset + len(rows), limit=limit - len(rows))
        if not some:
            break
        rows += some
    return Page(state, rows, total)


def _plain(state: str, row: JobRecord | BrokenNote) -> dict[str, Any]:
    return {"state": state, **(asdict(row) if isinstance(row, BrokenNote) else show.plain(row))}


def _show(page: Page, now_ms: int, offset: int, limit: int, again: str) -> None:
    show.out(show.heading(page.state))
    if not page.rows:
        show.line(
            f"none{f' from {offset:,} on' if page.total else ''}; {show.count(page.total, 'job')} in all\n".strip()
        )
        show.out("")
        return
    show.out(_table(page, now_ms))
    last = offset + len(page.rows)
    show.line(f"{offset + 1:,} to {last:,} of {max(page.total, last):,}")
    if offset + limit < page.total:
        show.line(f"next page: {again} --state {page.state} --offset {offset + limit}")
    show.out("")


def _table(page: Page, now_ms: int) -> Any:
    if page.state == BROKEN:
        notes = [row for row in page.rows if isinstance(row, BrokenNote)]
        rows = [(n.id, show.clock(n.at_ms, now_ms), show.roughly(n.at_ms, now_ms), n.reason) for n in notes]
        return show.table(["id", "met", "", "reason"], rows, times=(1, 2))
    columns = COLUMNS[page.state]
    records = [row for row in page.rows if isinstance(row, JobRecord)]
    cells = [(record.id, *(text(record, now_ms) for _, text in columns)) for record in records]
    times = [number for number, (title, _) in enumerate(columns, 1) if title in _TIMES]
    return show.table(["id", *(title for title, _ in columns)], cells, right=["attempts"], times=times)


def _again(name: str, redis_url: str | None, limit: int) -> str:
    """The command as it was given; a URL that may hold a password is not repeated."""
    where = "" if redis_url is None else f" --redis {'URL' if '@' in redis_url else shlex.quote(redis_url)}"
    return f"schedq jobs {name}{where} --limit {limit}"
