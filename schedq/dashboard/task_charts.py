"""Charts of a task's figures: attempts over time, and histograms of durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final

from schedq.dashboard.charts import BOTTOM, HEIGHT, LEFT, RIGHT, Ticks, Times, Zone, clock, heights, scale
from schedq.inspect.display import NOTHING, approximate, count, number
from schedq.inspect.task_stats import CountedTime
from schedq.model.task_stats import Counts, Histogram
from schedq.model.times import span

_ENDS: Final = {"completed": "green", "failed": "red", "retried": "amber", "cancelled": "grey"}
"""How attempts end, and the color of each."""
_MOST_TICKS: Final = 7


@dataclass(frozen=True, slots=True)
class Columns:
    """A chart with one column for each period or range of durations, ready to be rendered.

    Attributes:
        title: what it shows.
        legend: name and color of the parts of a column.
        columns: the values of each, and its parts from below: color, top and height.
        heights: ticks of the y axis.
        times: ticks of the x axis.
        alt_text: the chart as text, for screen readers.
    """

    title: str
    legend: Mapping[str, str]
    columns: tuple[tuple[Zone, tuple[tuple[str, float, float], ...]], ...]
    heights: Ticks
    times: Times
    alt_text: str


def history(parts: Sequence[CountedTime], task: str) -> Columns:
    """The attempts of a task over time."""
    found = [(part, part.tasks.get(task, Counts())) for part in parts]
    rows = [
        (part.since_ms, _label(part, counts), {end: getattr(counts, end) for end in _ENDS}) for part, counts in found
    ]
    ticks = [(clock(part.since_ms), part.since_ms) for part in parts]
    total = sum((counts for _, counts in found), Counts())
    return _columns("Attempts", _ENDS, rows, ticks, f"{count(total.attempts, 'attempt')}: {_ends(total)}")


def histogram(title: str, found: Histogram, longest_ms: int) -> Columns:
    """The distribution of durations."""
    bins = range(min(found.bins), max(found.bins) + 1) if found.bins else range(0)
    edges = [tuple(map(approximate, found.edges(number))) for number in bins]
    rows = [
        (0, f"{low} to {high}: {count(found.bins.get(bin_, 0), 'attempt')}", {"attempts": found.bins.get(bin_, 0)})
        for bin_, (low, high) in zip(bins, edges, strict=True)
    ]
    marks = [(name, found.quantile_ms(share)) for name, share in (("median", 0.5), ("p99", 0.99))]
    said = ", ".join(f"{name} {NOTHING if ms is None else approximate(min(ms, longest_ms))}" for name, ms in marks)
    alt_text = f"{said}, longest {approximate(longest_ms) if found.bins else NOTHING}"
    return _columns(title, {"attempts": "blue"}, rows, [(low, 0) for low, _ in edges], alt_text)


def _label(part: CountedTime, counts: Counts) -> str:
    median, rate = counts.run_quantile_ms(0.5), counts.error_rate
    more = "" if median is None or rate is None else f", median {approximate(median)}, {100 * rate:.3g} % errors"
    day = datetime.fromtimestamp(part.since_ms // 1000, UTC)
    return f"{day:%m-%d %H:%M} UTC, {span(part.until_ms - part.since_ms)}: {_ends(counts)}{more}"


def _ends(counts: Counts) -> str:
    found = {end: getattr(counts, end) for end in _ENDS}
    return ", ".join(f"{found[end]:,} {end}" for end in _ENDS if found[end]) or "none"


def _columns(
    title: str,
    legend: Mapping[str, str],
    rows: Sequence[tuple[int, str, Mapping[str, int]]],
    ticks: Sequence[tuple[str, int]],
    alt_text: str,
) -> Columns:
    """The chart of rows: time, label, and the height of each part."""
    top, step = scale(max((sum(parts.values()) for _, _, parts in rows), default=0))
    step, width = max(1, step), (RIGHT - LEFT) / max(1, len(rows))
    columns = []
    for nth, (at_ms, label, parts) in enumerate(rows):
        tops = accumulate(parts.values())
        drawn = tuple(
            (legend[name], round(BOTTOM - HEIGHT * above / top, 1), round(HEIGHT * value / top, 1))
            for (name, value), above in zip(parts.items(), tops, strict=True)
            if value
        )
        columns.append((Zone(round(LEFT + nth * width, 1), round(width, 1), at_ms, label), drawn))
    every = -(-len(ticks) // _MOST_TICKS) or 1
    times = tuple((round(LEFT + nth * width, 1), *ticks[nth]) for nth in range(0, len(ticks), every))
    marks = heights(BOTTOM, HEIGHT, top, step, number)
    return Columns(title, legend, tuple(columns), marks, times, f"{title}: {alt_text}")
