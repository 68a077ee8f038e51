"""The pages of tasks: what workers count of them, how they fail, and what limits them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from starlette.requests import Request

from schedq.dashboard.charts import BOTTOM, HEIGHT, LEFT, RIGHT, Ticks, Times, Zone, clock, heights, scale
from schedq.dashboard.rendering import PageData
from schedq.dashboard.security import Refusal
from schedq.inspect import gate_words
from schedq.inspect.display import NOTHING, approximate, count, number
from schedq.inspect.task_stats import CountedTime, TaskStats
from schedq.inspect.uniqueness import StoredRule
from schedq.model.gates import checked_gate_name
from schedq.model.records import JobRecord
from schedq.model.task_stats import Counts, Histogram
from schedq.model.tasks import NO_OPTIONS, TaskOptions
from schedq.model.times import span
from schedq.queue.queue import AsyncQueue
from schedq.transitions.announce import read_task_options
from schedq.transitions.pause import checked_task, paused_tasks

WINDOWS_S: Final[Mapping[str, int]] = {"1h": 3600, "2h": 7200, "24h": 86_400, "48h": 172_800, "ever": 0}
"""Periods of figures, seconds; 0 for all time."""
_ROWS: Final = 50
_EVERY_S: Final = 5.0
_JOBS: Final = 10
_LOOK: Final = 1000
"""The most jobs of a state among which those of a task are searched."""
_RECENT: Final = ("processing", "completed", "failed", "delayed")

_ENDS: Final = {"completed": "green", "failed": "red", "retried": "amber", "cancelled": "grey"}
"""How attempts end, and the color of each."""
_MOST_TICKS: Final = 7


async def tasks_page(request: Request, queue: AsyncQueue) -> PageData:
    """All tasks that have run, that a live worker has, or that are paused."""
    stats, workers, paused = await asyncio.gather(
        queue.inspector.task_stats(), queue.list_workers(), queue._ask(paused_tasks(queue.settings))
    )
    window, period = _period(request, stats, None)
    names = {*period.tasks, *stats.ever.tasks, *paused, *(task for worker in workers for task in worker.tasks)}
    rows = sorted(
        ((task, period.tasks.get(task, Counts())) for task in names), key=lambda row: (-row[1].run_ms, row[0])
    )
    text = request.query_params.get("offset", "")
    offset = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
    context = _common(stats, window, period) | {
        "rows": rows[offset : offset + _ROWS],
        "total": len(rows),
        "offset": offset,
        "size": _ROWS,
        "paused": paused,
    }
    return PageData("tasks.html", context, every_s=_EVERY_S)


async def task_page(request: Request, queue: AsyncQueue) -> PageData:
    """One task: its figures, its limits, its last errors and jobs.

    Raises:
        Refusal: nothing is known about it.
        UsageError: no task can have this name.
    """
    task = checked_task(request.path_params["task"])
    stats, workers, paused, options = await asyncio.gather(
        queue.inspector.task_stats(),
        queue.list_workers(),
        queue._ask(paused_tasks(queue.settings)),
        queue._ask(read_task_options(queue.settings, [task])),
    )
    finds = (queue.inspector.find(state, task=task, limit=_JOBS, look=_LOOK) for state in _RECENT)
    pages = await asyncio.gather(*finds)
    jobs = sorted((job for page in pages for job in page.jobs), key=_touched_ms, reverse=True)
    knowing = [worker.id for worker in workers if task in worker.tasks]
    if not (jobs or knowing or task in stats.ever.tasks or task in paused or task in options):
        raise Refusal(404, f"Nothing is known about task {task} of queue {queue.name}.")
    window, period = _period(request, stats, task)
    counts = period.tasks.get(task, Counts())
    errors = sorted((job for job in jobs if job.last_error), key=lambda job: -job.last_error_at_ms)
    context = _common(stats, window, period) | {
        "task": task,
        "counts": counts,
        "_charts": _charts(stats, window, task, counts),
        "limits": _limits(queue, options.get(task, NO_OPTIONS), jobs),
        "gates": await _gates(queue, task, jobs),
        "words": gate_words,
        "paused_ms": paused.get(task, 0),
        "workers": len(knowing),
        "errors": errors[:_JOBS],
        "jobs": [(job, _touched_ms(job)) for job in jobs[: 2 * _JOBS]],
    }
    return PageData("task.html", context, every_s=_EVERY_S)


def _period(request: Request, stats: TaskStats, task: str | None) -> tuple[str, CountedTime]:
    """The chosen period; by default the shortest in which the task ran, or any task."""
    chosen = request.query_params.get("window", "")
    for window in [chosen] if chosen in WINDOWS_S else WINDOWS_S:
        period = stats.within(WINDOWS_S[window]) if WINDOWS_S[window] else stats.ever
        if window == chosen or (period.tasks if task is None else task in period.tasks):
            return window, period
    return "1h", stats.within(WINDOWS_S["1h"])


def _common(stats: TaskStats, window: str, period: CountedTime) -> dict[str, Any]:
    return {
        "now_ms": stats.now_ms,
        "window": window,
        "windows": [*WINDOWS_S],
        "minutes": period.seconds / 60 if WINDOWS_S[window] else 0,
        "approximate": approximate,
    }


def _charts(stats: TaskStats, window: str, task: str, counts: Counts) -> list[Columns]:
    return [
        history(stats.history(WINDOWS_S[window] or WINDOWS_S["48h"]), task),
        histogram("Run time", counts.run, counts.longest_ms),
        histogram("Late by", counts.lateness, counts.latest_ms),
    ]


def _limits(queue: AsyncQueue, own: TaskOptions, jobs: list[JobRecord]) -> list[tuple[str, str]]:
    """Its options as workers announced them, or else those of the queue; how its newest job is unique."""
    fields = [job.fields for job in jobs if "unique_rule" in job.fields]
    return [
        ("Attempts", str(own.max_attempts or f"{queue.settings.max_attempts}, the queue's")),
        ("Backoff", str(own.backoff or f"{queue.settings.backoff}, the queue's")),
        ("Timeout", span(own.timeout_ms) if own.timeout_ms else "none"),
        *([("Unique", StoredRule.of(fields[0]["unique_rule"]).words())] if fields else []),
    ]


async def _gates(queue: AsyncQueue, task: str, jobs: list[JobRecord]) -> list[Any]:
    """The gate of its own, which has its name, and that of its newest job."""
    names = dict.fromkeys([task, *[job.gate for job in jobs if job.gate][:1]])
    valid = [name for name in names if _is_gate_name(name)]
    return [gate for gate in await asyncio.gather(*map(queue.gates.get, valid)) if gate is not None]


def _is_gate_name(name: str) -> bool:
    try:
        checked_gate_name(name)
    except ValueError:
        return False
    return True


def _touched_ms(job: JobRecord) -> int:
    return max(job.completed_at_ms, job.last_error_at_ms, job.started_at_ms)


# -- charts: attempts over time, and histograms of durations


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
    return f"{clock(part.since_ms, is_long=True)} UTC, {span(part.until_ms - part.since_ms)}: {_ends(counts)}{more}"


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
