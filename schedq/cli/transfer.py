"""`schedq export` and `import`: move jobs out of a queue and into one as JSON lines."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import islice
from typing import Any, Final, TextIO

import click

from schedq.cli import output
from schedq.cli.enqueue import utf8
from schedq.cli.params import FilterOptions, filter_options, from_json, json_option, redis_option, state_option
from schedq.cli.queue_argument import QueueCommand, queue_argument
from schedq.cli.queues import (
    must_be_known,
    only_queue,
    open_or_create,
    open_queue,
    warn_if_mistyped,
    warn_if_no_task,
)
from schedq.errors import SchedqError
from schedq.inspect import display
from schedq.inspect.export import exported
from schedq.inspect.search import STATES

_BATCH: Final = 1000
_PAGE: Final = 150
_MOST_NAMED: Final = 20


@click.command(
    cls=QueueCommand,
    epilog="""\b
Examples:
  schedq export emails > emails.jsonl
  schedq export emails --state failed --older 7d > failed.jsonl""",
)
@queue_argument(takes_only=True)
@state_option(STATES, f"Only jobs in this state: {', '.join(STATES)}; repeatable.")
@filter_options
@redis_option
def export(name: str | None, states: tuple[str, ...], filters: FilterOptions, redis_url: str | None) -> None:
    """Write the jobs of the queue NAME to standard output, one JSON object per line; `import` reads them.

    Waiting jobs are written in the order in which they will run. Jobs that change state during the export may be
    missing or appear twice; pause the queue for an exact copy.
    """
    is_seen = sys.stdout.isatty()  # the output would mix with a progress bar
    count = 0
    with open_queue(name or only_queue(redis_url), redis_url) as queue:
        for state in dict.fromkeys(states or STATES):
            with output.progress_bar(f"{state} jobs", 1, is_hidden=is_seen) as moved:
                looked = 0
                cursor: str | None = ""
                while cursor is not None:
                    page = queue.inspector.find(state, **filters.given(), limit=_PAGE, cursor=cursor or None)
                    for job in page.jobs:
                        output.show_json(exported(job, state))
                    count += len(page.jobs)
                    looked += page.looked
                    cursor = page.cursor
                    moved(looked, page.total)
        if not count:
            must_be_known(queue, redis_url)
            if filters.task is not None:
                warn_if_no_task(queue, [filters.task])


@click.command(
    "import",
    cls=QueueCommand,
    epilog="""\b
Examples:
  schedq import emails < emails.jsonl
  schedq import emails failed.jsonl --finished""",
    no_args_is_help=True,
)
@queue_argument()
@click.argument("file", type=click.File("r", encoding="utf-8", errors="surrogateescape"), default="-")
@click.option(
    "--finished", is_flag=True, help="Store finished jobs too, as new pending ones, instead of skipping them."
)
@redis_option
@json_option
def import_(name: str, file: TextIO, finished: bool, redis_url: str | None, as_json: bool) -> None:
    """Store jobs in the queue NAME from FILE or standard input, one JSON object per line.

    Jobs keep their ids, so importing the same file again changes nothing. Delayed jobs keep their due times; a job
    that was running when exported becomes pending. An invalid line is reported by its number and skipped; the other
    lines are stored, and the exit code is 1.
    """
    counts = Counter(stored=0, existed=0, skipped=0)
    refused: dict[int, str] = {}
    with open_or_create(name, redis_url) as queue:
        warn_if_mistyped(queue, redis_url)
        lines = enumerate(utf8(file), 1)
        while batch := list(islice(lines, _BATCH)):
            entries = _entries(batch, refused)
            try:
                some = queue.inspector.import_jobs([*entries.values()], finished=finished)
            except SchedqError as error:
                first = batch[0][0]
                raise click.ClickException(
                    f"{error}; lines before {first} are stored, later ones may or may not be"
                ) from error
            counts.update(stored=some.stored, existed=some.existed, skipped=some.skipped)
            numbers = [*entries]
            refused |= {numbers[entry]: why for entry, why in some.refused.items()}
    _report_import(name, counts, dict(sorted(refused.items())), as_json=as_json)
    if refused:
        raise click.exceptions.Exit(1)


def _entries(batch: list[tuple[int, str]], refused: dict[int, str]) -> dict[int, Any]:
    """Decode lines; returns entries by line number, and adds lines that are not JSON to `refused`."""
    entries: dict[int, Any] = {}
    for number, text in batch:
        if text.strip():
            try:
                entries[number] = from_json(text)
            except click.BadParameter as error:
                refused[number] = error.message
    return entries


def _report_import(name: str, counts: Counter[str], refused: dict[int, str], *, as_json: bool) -> None:
    if as_json:
        lines = [{"line": line, "error": why} for line, why in refused.items()]
        output.show_json({"queue": name, **counts, "refused": lines})
        return
    for line, why in islice(refused.items(), _MOST_NAMED):
        output.warn(f"line {line}: {why}")
    if len(refused) > _MOST_NAMED:
        output.warn(f"and {len(refused) - _MOST_NAMED:,} more lines")
    there = f"; {counts['existed']:,} already existed" if counts["existed"] else ""
    skipped = f"; {counts['skipped']:,} finished ones skipped" if counts["skipped"] else ""
    bad = f"; {display.count(len(refused), 'line')} refused" if refused else ""
    output.line(f"queue {name}: {display.count(counts['stored'], 'job')} stored{there}{skipped}{bad}")
