"""How things are shown: tables and texts for people, JSON for programs, local times with how far away they are.

What comes from Redis may hold anything, so it is escaped here and never read as markup.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
from rich import console as rich_console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from schedq import instants
from schedq.escaping import harmless as harmless
from schedq.escaping import harmless_lines as harmless_lines
from schedq.payload import UnreadablePayload, decode
from schedq.registry import is_task_call

NOTHING: Final = "–"
_PIPE_WIDTH: Final = 120
_MOST_BRIEF: Final = 200
_LONGEST_WHOLE: Final = 64
"""Characters of a text that is never cut: the longest that an id may have."""


class Console(rich_console.Console):
    """A console on which no text can steer the terminal, whatever it is part of; only styles can."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich's, which lets escapes pass."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else "\n".join(map(harmless, text.split("\n"))), style, control)


def out(*things: RenderableType) -> None:
    """Print for people: in a terminal as wide as it is and in colour, elsewhere plain, `COLUMNS` or 120 wide."""
    console = _console()
    with console.capture() as shown:
        for thing in things:
            console.print(thing)
    # Without the blanks that fill the last column, which a pipe would carry and a narrow terminal wrap.
    click.echo("\n".join(line.rstrip(" ") for line in shown.get().split("\n")), nl=False, color=True)


def width() -> int:
    """How wide `out` prints."""
    return _console().width


def _console() -> Console:
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def line(text: str) -> None:
    """Print one line for people, however long: what is in it can be copied."""
    click.echo(harmless(text))


def warn(text: str) -> None:
    """Print one line on stderr."""
    click.echo(harmless(f"schedq: {text}"), err=True)


def out_json(value: object) -> None:
    """Print for programs, in one line of ASCII."""
    click.echo(json.dumps(value, separators=(",", ":")))


# -- texts


def brief(payload: object) -> str:
    """A payload in a few words: a task call as it reads in Python, anything else as JSON."""
    if isinstance(payload, dict) and is_task_call(payload):
        args = [_compact(value) for value in payload.get("args", [])]
        args += [f"{name}={_compact(value)}" for name, value in payload.get("kwargs", {}).items()]
        return f"{payload['task']}({', '.join(args)})"[:_MOST_BRIEF]
    return _compact(payload)[:_MOST_BRIEF]


def stored(fields: Mapping[str, str], name: str) -> str:
    """A JSON field of a job, in a few words; as it is stored if it is no JSON."""
    text = fields.get(name)
    if text is None:
        return NOTHING
    try:
        return brief(decode(text))
    except UnreadablePayload:
        return text[:_MOST_BRIEF]


def pretty(text: str) -> str:
    """Stored JSON text set out over lines; as it is stored if it is no JSON."""
    try:
        return harmless_lines(json.dumps(decode(text), indent=2, ensure_ascii=False))
    except UnreadablePayload:
        return harmless_lines(text)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def count(number: int, noun: str) -> str:
    """`1 job`, `1,234 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# -- tables


def cell(text: str, style: str = "") -> Text:
    """One line of a table; what does not fit is cut, and shown to be."""
    return Text(harmless(text), style=style, no_wrap=True, overflow="ellipsis")


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: int = 0,
    right: Sequence[str] = (),
    times: Sequence[int] = (),
) -> Table:
    """A table without lines, fitted to the terminal by cutting what is longest.

    Args:
        titles: of the columns.
        rows: a text for each.
        whole: number of the column that is never cut: it holds what people copy. A very long one is folded.
        right: titles of columns with figures, which are never cut.
        times: numbers of columns with times, which are never cut either: half a time says nothing, or something wrong.
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


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Names and values, one pair a line."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(harmless(name)), Text(harmless_lines(value), overflow="fold"))
    return grid


def heading(text: str) -> Text:
    """A line above a table."""
    return Text(harmless(text), style="bold underline")


# -- times


span: Final = instants.span


def apart(ms: int, now_ms: int) -> str:
    """`in 4 min 5 s`, `4 min 5 s ago`."""
    if not ms:
        return NOTHING
    return f"in {span(ms - now_ms)}" if ms > now_ms else f"{span(now_ms - ms)} ago"


def roughly(ms: int, now_ms: int) -> str:
    """`in 4 min`, `4 min ago`; for tables."""
    if not ms:
        return NOTHING
    number, unit = span(abs(ms - now_ms)).split()[:2]
    return f"in {number} {unit}" if ms > now_ms else f"{number} {unit} ago"


def roundly(ms: int) -> str:
    """A duration by its largest unit: `10 min`; for headings."""
    return " ".join(span(ms).split()[:2])


def clock(ms: int, now_ms: int) -> str:
    """A local time, with the day if that is another one; for tables."""
    local, today = _local(ms), _local(now_ms)
    if local is None or today is None:
        return NOTHING if not ms else "never"
    return f"{local:%H:%M:%S}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M}"


def moment(ms: int, now_ms: int) -> str:
    """A local time in full, and how far away it is."""
    local = _local(ms)
    if local is None:
        return NOTHING if not ms else "never"
    return f"{local:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} {local:%z} ({apart(ms, now_ms)})"


def _local(ms: int) -> datetime | None:
    if not ms:
        return None
    try:
        return datetime.fromtimestamp(ms // 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return None  # the last hours of the year 9999 are in 10000 here


def plain(record: Any) -> dict[str, Any]:
    """A job for programs: what is stored, decoded; instants in ms. `payload_text` only if the payload can't be read."""
    found = {name: getattr(record, name) for name in record.__slots__ if name != "fields"}
    text = record.fields.get("payload")
    if record.payload is None and text not in (None, "null"):
        found["payload_text"] = text
    return found
