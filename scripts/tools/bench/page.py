"""What the handbook shows of a run: a table for each claim, with a line for each contestant."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from scripts.tools.bench import report
from scripts.tools.bench.entries import CONTESTANTS
from scripts.tools.bench.rules import Found, median
from scripts.tools.handbook import Block

BLOCK: Final = Block("speed.md", "bench")


class Column(NamedTuple):
    """A column: its head, and the row of the benchmark and the figure that it shows."""

    head: str
    row: str
    figure: str


TABLES: Final = {
    "Throughput, jobs/s": (
        Column("enqueue one by one", "enqueue", "jobs/s"),
        Column("in bulk", "bulk", "jobs/s"),
        Column("one worker, async tasks", "drain-async", "jobs/s"),
        Column("plain tasks", "drain-plain", "jobs/s"),
        Column("two workers, async tasks", "drain-two-async", "jobs/s"),
        Column("plain tasks", "drain-two-plain", "jobs/s"),
    ),
    "From the due time to the start, ms": (
        Column("immediate job, p50", "latency", "p50 ms"),
        Column("p99", "latency", "p99 ms"),
        Column("after an idle gap, p50", "latency-sparse", "p50 ms"),
        Column("p99", "latency-sparse", "p99 ms"),
        Column("5,000 delayed jobs in 10 s, p50", "delayed", "p50 ms"),
        Column("p99", "delayed", "p99 ms"),
        Column("5,000 due at once, the last", "burst", "max ms"),
    ),
    "Memory, and what idle workers cost": (
        Column("Redis bytes per delayed job", "memory", "bytes/job"),
        Column("MB of a worker", "idle-1", "pss MB"),
        Column("requests/s of an idle worker", "idle-1", "requests/s"),
        Column("% CPU of it", "idle-1", "cpu %"),
        Column("requests/s of 20", "idle-20", "requests/s"),
    ),
    "Until a killed worker's job runs again, s": (
        Column("defaults", "crash", "s"),
        Column("short lease", "crash-short", "s"),
    ),
}


def text(found: Found) -> str:
    """The handbook's tables, in Markdown."""
    parts = [report.heading(found), *(_table(title, columns, found) for title, columns in TABLES.items())]
    parts.append(report.limits(found))
    if scale := found.get("scale"):
        parts.append(report.scale({**scale, "curves": {"delayed": scale["curves"]["delayed"]}}))
    parts.append(report.set_up(found, versions=False))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(title: str, columns: tuple[Column, ...], found: Found) -> str:
    """A line per contestant that has any of the figures, in the order of the first column; the best are in bold."""
    shown = [column for column in columns if column.row in found["figures"]]
    if not shown:
        return ""
    best = {column: min(_rank(column, who, found) for who in CONTESTANTS) for column in shown}
    who = [name for name in CONTESTANTS if any(_value(column, name, found) is not None for column in shown)]
    lines = []
    for name in sorted(who, key=lambda name: _rank(shown[0], name, found)):
        ranks = {column: _rank(column, name, found) for column in shown}
        cells = [_cell(_value(column, name, found), is_best=ranks[column] == best[column]) for column in shown]
        lines.append((name, *cells))
    return f"**{title}**\n\n" + report.table(("", *(column.head for column in shown)), lines)


def _value(column: Column, name: str, found: Found) -> float | str | None:
    measured: dict[str, Any] = found["figures"][column.row]
    return median(measured[name], column.figure) if name in measured else None


def _rank(column: Column, name: str, found: Found) -> tuple[int, float]:
    return report.rank(_value(column, name, found), column.figure)


def _cell(value: float | str | None, *, is_best: bool) -> str:
    said = "–" if value is None else report.number(value)
    return f"**{said}**" if is_best and isinstance(value, float) else said


def write(found: Found) -> None:
    """Write the results, and the tables made from them."""
    report.FOUND.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    report.BLOCK.write(report.text(found))
    BLOCK.write(text(found))
