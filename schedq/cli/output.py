"""Output of the commands: tables and text for people, JSON for programs.

Values from Redis may contain anything, so they are escaped here and never interpreted as markup.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Timer
from typing import Final

import click
from rich import console as rich_console
from rich.cells import cell_len
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from schedq.cli.warning import warn as warn
from schedq.inspect import display
from schedq.model.escaping import harmless as harmless
from schedq.model.escaping import harmless_lines as harmless_lines
from schedq.model.progress import Progress

QUICK_S: Final = 0.5
"""What takes less time shows no progress."""
TO_MS: Final = len("2030-01-01 09:00:00.000")
"""The characters of an instant with its milliseconds."""


@contextmanager
def progress_bar(
    what: str, total: int, *, is_hidden: bool = False, after_s: float = 0
) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if stderr is a terminal; yields a function that takes the count and the total.

    It appears after `after_s` seconds.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if is_hidden or not console.is_terminal:
        yield lambda done, of: None  # noqa: ARG005 - nothing to show; a disabled Progress of old releases prints a line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(what, total=max(1, total))
    timer = Timer(after_s, progress.start)
    timer.start()
    try:
        if not after_s:
            timer.join()
        yield lambda done, of: progress.update(task, completed=done, total=max(1, of, done))
    finally:
        timer.cancel()
        timer.join()
        if progress.live.is_started:
            progress.stop()


_PIPE_WIDTH: Final = 120
_PIPE_TABLE_WIDTH: Final = 400
"""The most columns of a table in a pipe: programs want whole texts, and an error may be of any length."""
_LONG: Final = 100
"""Tables with more rows are written without rich if they fit, because it needs a millisecond per row."""
_LONGEST_WHOLE: Final = 64
"""Texts up to this many characters can be kept uncut: the longest valid id."""


class Console(rich_console.Console):
    """A console that escapes control characters in every text; only styles reach the terminal."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, and escape the control characters that rich lets through."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else "\n".join(map(harmless, text.split("\n"))), style, control)


def show(*things: RenderableType) -> None:
    """Print for people: in color and at full width on a terminal, else plain, `COLUMNS` or 120 columns wide.

    Without a terminal and without `COLUMNS`, tables are as wide as their texts.
    """
    click.echo(rendered(*things), nl=False, color=True)


def show_pages(*things: RenderableType) -> None:
    """Like `show`, but through a pager if the output does not fit on the terminal."""
    text, console = rendered(*things), _console()
    if console.is_terminal and text.count("\n") >= console.height:
        click.echo_via_pager(text, color=True)
    else:
        click.echo(text, nl=False, color=True)


def rendered(*things: RenderableType) -> str:
    """What `show` prints."""
    console = _console()
    usual = console.width
    with console.capture() as shown:
        for thing in things:
            is_list = isinstance(thing, Table) and thing.show_header
            console.width = _PIPE_TABLE_WIDTH if is_list and _is_unlimited(console) else usual
            console.print(thing, crop=False)  # code is never cut; tables keep to the width themselves
    # Trailing blanks of the last column would wrap in a narrow terminal.
    return "\n".join(line.rstrip(" ") for line in shown.get().split("\n"))


def width() -> int:
    """The width of what `show` prints, in columns."""
    return _console().width


def _console() -> Console:
    console = Console()
    if _is_unlimited(console):
        console.width = _PIPE_WIDTH
    return console


def _is_unlimited(console: Console) -> bool:
    return not console.is_terminal and "COLUMNS" not in os.environ


def line(text: str) -> None:
    """Print one line for people, never wrapped, so that it can be copied."""
    click.echo(harmless(text))


def show_json(value: object) -> None:
    """Print a value as one line of ASCII JSON."""
    click.echo(json.dumps(value, separators=(",", ":")))


def cell(text: str, style: str = "") -> Text:
    """A one-line cell; text that does not fit ends with an ellipsis."""
    return Text(harmless(text), style=style, no_wrap=True, overflow="ellipsis")


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: int = 0,
    right: Sequence[str] = (),
    times: Sequence[int] = (),
) -> Table:
    """A table without borders; the longest columns are cut to fit the terminal.

    Args:
        titles: column titles.
        rows: one text per column.
        whole: index of the column that people copy from: never cut, and folded if it is very long.
        right: titles of numeric columns, which are right-aligned and never cut.
        times: indexes of columns with times, which are never cut: a cut time misleads.
    """
    cells = [list(row) for row in rows]
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(titles):
        width = max([len(harmless(text)) for text in (title, *(row[number] for row in cells))])
        is_kept = number == whole or title in right or number in times
        made.add_column(
            title,
            justify="right" if title in right else "left",
            overflow="fold" if number == whole else "ellipsis",
            min_width=min(width, _LONGEST_WHOLE) if is_kept else None,
            no_wrap=is_kept and width <= _LONGEST_WHOLE,
        )
    for row in cells:
        made.add_row(*(Text(harmless(text)) if number == whole else cell(text) for number, text in enumerate(row)))
    return made


def show_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), times: Sequence[int] = ()
) -> None:
    """Print a `table` that may be long."""
    columns = [[*map(harmless, column)] for column in zip(titles, *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    console = _console()
    most = _PIPE_TABLE_WIDTH if _is_unlimited(console) else console.width
    is_even = all(len(text) == cell_len(text) for column in columns for text in column)
    if len(rows) <= _LONG or sum(widths) + 2 * len(widths) - 2 > most or not is_even:
        show(table(titles, rows, right=right, times=times))
        return
    # Of the table with the widest texts, only the header is used.
    header = rendered(table(titles, [["x" * width for width in widths]], right=right, times=times)).split("\n")[0]
    padded = [
        [text.rjust(width) if column[0] in right else text.ljust(width) for text in column[1:]]
        for column, width in zip(columns, widths, strict=True)
    ]
    click.echo("\n".join([header, *("  ".join(row).rstrip(" ") for row in zip(*padded, strict=True))]), color=True)


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Names and values, one pair per line; pairs with an empty value are omitted."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            grid.add_row(Text(harmless(name)), Text(harmless_lines(value), overflow="fold"))
    return grid


def heading(text: str) -> Text:
    """A heading above a table."""
    return Text(harmless(text), style="bold underline")


def progress_line(found: Progress) -> str:
    """A bar, the numbers and the note."""
    bar = "" if found.fraction is None else display.bar(found).partition(" ")[0] + "  "
    return bar + display.progress(found)


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action on one of several jobs or schedules.

    Attributes:
        said: what was done, in words; for a refusal, the reason.
        more: additional keys for --json.
        is_refusal: nothing was done.
    """

    said: str
    more: Mapping[str, str] = field(default_factory=dict)
    is_refusal: bool = False


def show_results(
    queue: str, things: str, ids: Iterable[str], act: Callable[[str], ActionResult], *, as_json: bool
) -> None:
    """Act on each id once and print the results; the exit code is 1 if an action was refused.

    Args:
        queue: name of the queue.
        things: key of the list in the JSON object: "jobs" or "schedules".
        ids: of the jobs or schedules.
        act: acts on one of them.
        as_json: print one JSON object for all instead of one line for each.
    """
    found = {}
    for one in dict.fromkeys(ids):
        found[one] = act(one)
        if not as_json and found[one].is_refusal:
            warn(found[one].said)
        elif not as_json:
            line(f"{one}: {found[one].said}")
    if as_json:
        said = [{"id": one, "answer": "no" if it.is_refusal else it.said, **it.more} for one, it in found.items()]
        show_json({"queue": queue, things: said})
    if any(it.is_refusal for it in found.values()):
        raise click.exceptions.Exit(1)
