"""`schedq export` and `schedq import`: jobs as JSON lines."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from itertools import islice
from typing import Any, Final, TextIO

import click

from schedq.cli import show
from schedq.cli.chosen import Chosen, bar, filter_options, state_option
from schedq.cli.options import json_option, redis_option
from schedq.cli.queues import must_be_known, used, visited, warn_if_mistyped, warn_if_no_task
from schedq.cli.typed import QUEUE_NAME, from_json
from schedq.errors import SchedqError
from schedq.operations.filters import STATES
from schedq.operations.transfer import Imported, exported

_PAGE: Final = 150
_BATCH: Final = 1000
_MOST_NAMED: Final = 20


@click.command(
    short_help="Write jobs as JSON lines.",
    epilog="""\b
Examples:
  schedq export emails > emails.jsonl
  schedq export emails --state failed --older 7d > failed.jsonl""",
    no_args_is_help=True,
)
@click.argument("name", type=QUEUE_NAME)
@state_option(STATES, f"Only jobs of this state: {', '.join(STATES)}; may be given again.")
@filter_options
@redis_option
def export(
    name: str,
    states: tuple[str, ...],
    task: str | None,
    older: timedelta | None,
    newer: timedelta | None,
    text: str | None,
    error: str | None,
    redis_url: str | None,
) -> None:
    """Write the jobs of the queue NAME to standard output, a JSON object on each line; `import` reads them.

    Those that wait come in the order in which they run. Jobs that come, go or move meanwhile may be left out, or come
    twice; pause the queue for an exact copy.
    """
    chosen = Chosen(task, older, newer, text, error)
    is_seen = sys.stdout.isatty()  # what is printed would run into a bar
    with visited(name, redis_url) as queue:
        count = 0
        for state in dict.fromkeys(states or STATES):
            cursor: str | None = None
            with nullcontext(None) if is_seen else bar(f"{state} jobs", 1) as moved:
                looked = 0
                while True:
                    page = queue.inspector.find(state, **chosen.options(), limit=_PAGE, cursor=cursor)
                    for job in page.jobs:
                        show.out_json(exported(job, state))
                    count, looked, cursor = count + len(page.jobs), looked + page.looked, page.cursor
                    if cursor is None:
                        break
                    if moved is not None:
                        moved(looked, page.total)
        if not count:
            must_be_known(queue, redis_url)
            if task is not None:
                warn_if_no_task(queue, [task])


@click.command(
    "import",
    short_help="Store jobs from JSON lines, as export writes them.",
    epilog="""\b
Examples:
  schedq import emails < emails.jsonl
  schedq import emails failed.jsonl --finished""",
    no_args_is_help=True,
)
@click.argument("name", type=QUEUE_NAME)
@click.argument("file", type=click.File("r", encoding="utf-8", errors="surrogateescape"), default="-")
@click.option("--finished", is_flag=True, help="Finished jobs too: they wait as new ones; else they are skipped.")
@redis_option
@json_option
def import_(
    name: str,
    file: TextIO,
    finished: bool,  # noqa: FBT001 - click passes flags by name
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Store jobs in the queue NAME from FILE, or standard input: one JSON object on each line.

    Jobs keep their ids, so a line that is there already changes nothing, and the same file may be given again. Delayed
    jobs keep the instant at which they are due; one that ran when it was exported waits. A line that can't be meant is
    named by its number, and nothing of it is stored; the others are, and the exit code is 1.
    """
    total = _Total()
    with used(name, redis_url) as queue:
        warn_if_mistyped(queue, redis_url)
        lines = enumerate(_text(file), 1)
        while batch := list(islice(lines, _BATCH)):
            entries, numbers = _parsed(batch, total)
            try:
                total.add(queue.inspector.import_jobs(entries, finished=finished), numbers)
            except SchedqError as error:
                first = batch[0][0]
                raise click.ClickException(f"{error}; lines before {first} are stored, from there on maybe") from error
    total.tell(name, as_json=as_json)


class _Total:
    """What has become of the lines so far."""

    def __init__(self) -> None:
        self.stored = self.existed = self.skipped = 0
        self.refused: dict[int, str] = {}

    def add(self, some: Imported, numbers: list[int]) -> None:
        """What became of some of them; `numbers` are their lines."""
        self.stored += some.stored
        self.existed += some.existed
        self.skipped += some.skipped
        self.refused |= {numbers[entry]: why for entry, why in some.refused.items()}

    def tell(self, name: str, *, as_json: bool) -> None:
        """Say it; exit code 1 if a line was refused."""
        refused = dict(sorted(self.refused.items()))
        if as_json:
            told = {"queue": name, "stored": self.stored, "existed": self.existed, "skipped": self.skipped}
            show.out_json(told | {"refused": [{"line": line, "error": why} for line, why in refused.items()]})
        else:
            for line, why in islice(refused.items(), _MOST_NAMED):
                show.warn(f"line {line}: {why}")
            if len(refused) > _MOST_NAMED:
                show.warn(f"and {len(refused) - _MOST_NAMED:,} more lines")
            there = f"; {self.existed:,} were there already" if self.existed else ""
            skipped = f"; {self.skipped:,} finished ones skipped" if self.skipped else ""
            bad = f"; {show.count(len(refused), 'line')} refused" if refused else ""
            show.line(f"queue {name}: {show.count(self.stored, 'job')} stored{there}{skipped}{bad}")
        if refused:
            raise click.exceptions.Exit(1)


def _text(file: TextIO) -> Iterator[str]:
    """Its lines; bytes that are no UTF-8 come through, to be refused with the number of their line."""
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(encoding="utf-8", errors="surrogateescape")
    yield from file


def _parsed(batch: list[tuple[int, str]], total: _Total) -> tuple[list[Any], list[int]]:
    """The entries of some lines and their numbers; lines that hold no JSON are counted as refused."""
    entries: list[Any] = []
    numbers: list[int] = []
    for number, text in batch:
        if not text.strip():
            continue
        try:
            entries.append(from_json(text))
            numbers.append(number)
        except click.BadParameter as error:
            total.refused[number] = error.message
    return entries, numbers
