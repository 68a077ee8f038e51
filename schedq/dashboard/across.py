"""Pages across queues: the panels of the overview; jobs, errors, schedules and workers of all queues.

A page covers at most 20 queues, and reads a bounded amount of each.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from time import monotonic
from typing import Any, Final

from starlette.requests import Request

from schedq.dashboard import pages
from schedq.dashboard.charts import WINDOWS, ChartLine, Point, Ticks, path, scale
from schedq.dashboard.pages import Page
from schedq.dashboard.queue_pool import QueuePool
from schedq.dashboard.rendering import PageData
from schedq.doctor.checks import LEVELS, plain
from schedq.doctor.examination import Report, examine
from schedq.doctor.server import ServerInfo, read_server
from schedq.errors import Conflict, UsageError
from schedq.inspect.display import number
from schedq.inspect.overview import Pulse
from schedq.inspect.queue_names import depths
from schedq.inspect.summary import JobSummary, summaries
from schedq.model.lifecycle import JOB_STATES
from schedq.model.settings import NO_QUEUE
from schedq.queue.queue import AsyncQueue
from schedq.schedules.records import ScheduleRecord
from schedq.transitions import RoundTrips
from schedq.transitions.heartbeat import WorkerRecord

QUEUES: Final = 20
"""The most queues on a page."""
MOST_QUEUES: Final = 5_000
"""The most queues whose jobs are counted, or in which an id is looked for."""
_JOBS: Final = 10
"""The most jobs of one queue."""
_SCHEDULES: Final = 25
_ERRORS: Final = 500
"""The most failed jobs of one queue that are grouped."""
_ROWS: Final = 200
"""The most rows of errors, schedules or workers."""
_PANEL_ROWS: Final = 8
_EXAMINED: Final = 200
"""The most entries of each list that an examination reads."""
_FRESH_S: Final = 30.0
"""Seconds for which findings are shown before the queues are examined again."""
_OVERVIEW_EVERY_S: Final = 2.0
_A_SECOND: Final = 250
"""How many queues are counted per second while a browser shows them, which takes about a fiftieth of it."""
_EVERY_S: Final = 5.0
_PINGS: Final = 3
Read = Callable[[AsyncQueue], Awaitable[Any]]
Found = list[tuple[str, Any]]
"""What was read of each queue, by its name."""


async def of_each(pool: QueuePool, names: Iterable[str], read: Read) -> tuple[Found, list[tuple[str, str]]]:
    """What `read` returns for each queue; and which queues can't be read, with the reasons."""

    async def one(name: str) -> tuple[str, Any, str]:
        try:
            async with pool.open(name) as queue:
                return name, await read(queue), ""
        except (Conflict, UsageError) as error:
            return name, None, str(error)

    found = await asyncio.gather(*map(one, names))
    return [row[:2] for row in found if not row[2]], [(name, problem) for name, _, problem in found if problem]


def matching(names: Iterable[str], text: str) -> list[str]:
    """The names that contain a text, in lower or upper case."""
    return [name for name in names if text.casefold() in name.casefold()]


def typed_queue(request: Request) -> str:
    """The filter by name."""
    return request.query_params.get("queue", "").strip()[:100]


async def depths_of(pool: QueuePool, names: Sequence[str]) -> dict[str, Counter[str]]:
    """How many jobs of each state queues have; {} if they are too many, or on several servers of a cluster."""
    async with pool.open(NO_QUEUE) as queue:
        if queue.settings.tagged or len(names) > MOST_QUEUES:
            return {}
        return await queue._drive(depths(names))


# -- the overview


async def overview(request: Request, pool: QueuePool) -> PageData:
    """The list of queues with panels about those on the page."""
    data = await pages._overview(request, pool)
    rows = [row for row in data.context["rows"] if not row["problem"]]
    names = [row["name"] for row in rows]
    found, _ = await of_each(pool, names, _status)
    redis = await _redis(pool)  # alone: other work of this process would count as latency
    window_ms = WINDOWS[data.context["window"]]
    now_ms = max((row["now_ms"] for row in rows), default=0)
    names_of_all = data.context["_names"]
    every = await depths_of(pool, names_of_all) if len(names_of_all) > QUEUES else {}
    context = {
        "now_ms": now_ms,
        "places": JOB_STATES,
        "totals": totals(every.values() if every else (row["stats"] for row in rows)),
        "counted": len(every),
        "graph": graph(rows, now_ms, window_ms),
        "redis": redis,
        "findings": _findings(pool, names, now_ms),
        "levels": LEVELS,
        **_panels(dict(found)),
    }
    return replace(data, context=data.context | context, every_s=max(_OVERVIEW_EVERY_S, len(every) / _A_SECOND))


async def _status(queue: AsyncQueue) -> tuple[Pulse, list[JobSummary], list[ScheduleRecord]]:
    """One queue: how it is doing, its oldest waiting job, its next schedules."""
    oldest = queue._ask(summaries(queue.settings, queue.settings.keys.pending, "oldest", 0, 1))
    soonest = queue.schedules.list(limit=_PANEL_ROWS)
    pulse, jobs, schedules = await asyncio.gather(queue.inspector.pulse(), oldest, soonest)
    return pulse, jobs, schedules


def _panels(statuses: Mapping[str, tuple[Pulse, list[JobSummary], list[ScheduleRecord]]]) -> dict[str, Any]:
    """What is failing, waiting, running and scheduled, the worst or soonest of all queues first."""
    failing = [(name, task) for name, (pulse, *_) in statuses.items() for task in pulse.failing]
    waiting = [(name, job) for name, (_, jobs, _) in statuses.items() for job in jobs]
    running = [(name, job) for name, (pulse, *_) in statuses.items() for job in pulse.running if job.started_at_ms]
    slots = [(name, each) for name, (*_, some) in statuses.items() for each in some if each.next_slot_ms]
    return {
        "failing": sorted(failing, key=lambda row: -row[1].failed)[:_PANEL_ROWS],
        "waiting": sorted(waiting, key=lambda row: -row[1].waits_ms)[:3],
        "running": sorted(running, key=lambda row: row[1].started_at_ms)[:3],
        "slots": sorted(slots, key=lambda row: row[1].next_slot_ms or 0)[:_PANEL_ROWS],
        "workers": _by_worker((name, pulse.workers) for name, (pulse, *_) in statuses.items()),
        "since_ms": min((pulse.since_ms for pulse, *_ in statuses.values()), default=0),
        "size_of_panel": _PANEL_ROWS,
    }


def _by_worker(found: Iterable[tuple[str, Sequence[WorkerRecord]]]) -> list[tuple[WorkerRecord, list[str]]]:
    """Each worker once, with the queues that it serves."""
    workers: dict[str, tuple[WorkerRecord, list[str]]] = {}
    for name, some in found:
        for worker in some:
            workers.setdefault(worker.id, (worker, []))[1].append(name)
    return sorted(workers.values(), key=lambda row: (row[0].host, row[0].pid, row[0].id))


def totals(found: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The sums of depths and totals."""
    stats = [*found]
    names = [f"{state}_{what}" for state in JOB_STATES for what in ("depth", "total")]
    return {name: sum(each.get(name) or 0 for each in stats) for name in names}


async def _redis(pool: QueuePool) -> tuple[ServerInfo, float | None]:
    """What the server reports, and the shortest time of a few PINGs, ms; None if the user may not send one."""
    async with pool.open(NO_QUEUE) as queue:
        info = await queue._drive(read_server())
        return info, await queue._drive(_ping())


def _ping() -> RoundTrips[float | None]:
    times = []
    for _ in range(_PINGS):
        began = monotonic()
        (reply,) = yield [plain("PING")]
        if not isinstance(reply, Exception):
            times.append(1000 * (monotonic() - began))
    return min(times, default=None)


def _findings(pool: QueuePool, names: Sequence[str], now_ms: int) -> tuple[Report, int] | None:
    """What the doctor found in these queues, and when; None until it has. It only reads."""

    def make() -> tuple[Report, int]:
        return examine(pool.redis, names, sample=_EXAMINED, writes=False), now_ms

    found: tuple[Report, int] | None = pool.late.get(("doctor", *names), make, _FRESH_S)
    return found


# -- the graph of throughput

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 950, 14, 208
"""The edges of the plot, as in `overview.html`."""
_MOST_PARTS: Final = 240
_LEAST_PART_MS: Final = 10_000
_TICKS_S: Final = (60, 120, 300, 600, 1800, 3600)
_LINES: Final = (("completed", "green"), ("failed", "red"))


@dataclass(frozen=True, slots=True)
class Graph:
    """A large chart, ready to be rendered.

    Attributes:
        lines: its lines.
        heights: ticks of the y axis.
        times: ticks of the x axis.
        alt_text: the chart as text, for screen readers.
    """

    lines: tuple[ChartLine, ...]
    heights: Ticks
    times: Ticks
    alt_text: str


def graph(rows: Sequence[Mapping[str, Any]], now_ms: int, window_ms: int) -> Graph:
    """Jobs per second that completed and failed in all these queues together."""
    since = now_ms - window_ms
    found = {name: summed(rows, f"{name}_total", now_ms, window_ms) for name, _ in _LINES}
    top, step = scale(max((value or 0 for points in found.values() for _, value in points), default=0))

    def x(ms: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (ms - since) / window_ms

    def y(value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * value / top, 1)

    lines = tuple(
        ChartLine(name, kind, path(found[name], x, y), number(found[name][-1][1] if found[name] else None))
        for name, kind in _LINES
    )
    tick_s = next((each for each in _TICKS_S if window_ms <= 12_000 * each), _TICKS_S[-1])
    seconds = range(math.ceil(since / 1000 / tick_s) * tick_s, now_ms // 1000 + 1, tick_s)
    times = ((round(x(1000 * second), 1), f"{datetime.fromtimestamp(second, UTC):%H:%M}") for second in seconds)
    return Graph(
        lines,
        tuple((y(n * step), number(n * step)) for n in range(round(top / step) + 1)),
        tuple(tick for tick in times if _LEFT + 14 <= tick[0] <= _RIGHT - 10),
        "Jobs per second: now " + ", ".join(f"{line.last} {line.name}" for line in lines),
    )


def summed(rows: Iterable[Mapping[str, Any]], total: str, now_ms: int, window_ms: int) -> list[Point]:
    """The growth of a total per second, summed over queues; None where no queue has samples.

    Queues are sampled at different times, so each growth is spread evenly between its two samples.
    """
    part_ms = max(_LEAST_PART_MS, window_ms // _MOST_PARTS)
    first, last = (now_ms - window_ms) // part_ms + 1, now_ms // part_ms
    grown: dict[int, float] = {}
    for row in rows:
        counted = [(sample.at_ms, getattr(sample, total)) for sample in row["samples"]]
        for (begin, before), (end, after) in pairwise([*counted, (row["now_ms"], row["stats"][total])]):
            for part in range(max(first, begin // part_ms), min(last, end // part_ms) + 1) if end > begin else ():
                shared = min(end, (part + 1) * part_ms) - max(begin, part * part_ms)
                share = max(0, after - before) * max(0, shared) / (end - begin)
                grown[part] = grown.get(part, 0.0) + share
    points: list[Point] = []
    for part in range(first, last + 1):
        length_ms = min(now_ms, (part + 1) * part_ms) - part * part_ms
        if length_ms >= part_ms / 5:  # too little of the last one has passed
            points.append((part * part_ms + length_ms, 1000 * grown[part] / length_ms if part in grown else None))
    return points


# -- jobs, errors, schedules and workers


def _across(
    section: str,
    read: Callable[[Request, AsyncQueue], Awaitable[Any]],
    show: Callable[[Request, Found], dict[str, Any]],
) -> Page:
    """A page about all queues whose names match a filter, 20 at a time."""

    async def page(request: Request, pool: QueuePool) -> PageData:
        typed, offset = typed_queue(request), pages._number(request, "offset")
        names = matching(await pool.names(), typed)
        found, problems = await of_each(pool, names[offset : offset + QUEUES], lambda queue: read(request, queue))
        context = {
            "section": section,
            "typed": typed,
            "offset": offset,
            "size": QUEUES,
            "total": len(names),
            "problems": problems,
            "state": "",
            "now_ms": max((stats["now_ms"] for _, (stats, _) in found), default=0),
            **show(request, found),
        }
        return PageData(f"across_{section}.html", context, every_s=_EVERY_S)

    return page


def _state(request: Request) -> str:
    return pages._one_of(request, "state", JOB_STATES, "pending")


async def _jobs(request: Request, queue: AsyncQueue) -> Any:
    return await asyncio.gather(queue.stats(), getattr(queue, f"list_{_state(request)}")(limit=_JOBS))


def _show_jobs(request: Request, found: Found) -> dict[str, Any]:
    state = _state(request)
    return {
        "state": state,
        "places": JOB_STATES,
        "totals": totals(stats for _, (stats, _) in found),
        "rows": [(name, jobs, stats[f"{state}_depth"]) for name, (stats, jobs) in found if jobs],
    }


async def _failed(_: Request, queue: AsyncQueue) -> Any:
    return await asyncio.gather(queue.stats(), queue.inspector.errors(limit=_ERRORS))


def _show_failed(_: Request, found: Found) -> dict[str, Any]:
    groups = [(name, group) for name, (_, errors) in found for group in errors.groups]
    groups.sort(key=lambda row: (-row[1].count, -row[1].last_at_ms))
    return {
        "rows": [(name, group, pages.distinctive(group.text)) for name, group in groups[:_ROWS]],
        "more": max(0, len(groups) - _ROWS),
        "failed": sum(errors.failed for _, (_, errors) in found),
        "looked_at": sum(errors.looked_at for _, (_, errors) in found),
    }


async def _schedules(_: Request, queue: AsyncQueue) -> Any:
    return await asyncio.gather(queue.stats(), queue.schedules.list(limit=_SCHEDULES + 1))


def _show_schedules(_: Request, found: Found) -> dict[str, Any]:
    rows = [(name, record) for name, (_, records) in found for record in records[:_SCHEDULES]]
    rows.sort(key=lambda row: row[1].next_slot_ms or math.inf)
    return {
        "rows": rows[:_ROWS],
        "more": [name for name, (_, records) in found if len(records) > _SCHEDULES],
        "most": _SCHEDULES,
    }


async def _workers(_: Request, queue: AsyncQueue) -> Any:
    return await asyncio.gather(queue.stats(), queue.list_workers())


def _show_workers(_: Request, found: Found) -> dict[str, Any]:
    rows = _by_worker((name, workers) for name, (_, workers) in found)
    idle = [(name, stats) for name, (stats, _) in found if not stats["workers"] and stats["pending_depth"]]
    return {"rows": rows[:_ROWS], "more": max(0, len(rows) - _ROWS), "deserted": idle}


PAGES: Final[Mapping[str, Page]] = {
    "/": overview,
    "/jobs": _across("jobs", _jobs, _show_jobs),
    "/failed": _across("failed", _failed, _show_failed),
    "/schedules": _across("schedules", _schedules, _show_schedules),
    "/workers": _across("workers", _workers, _show_workers),
}
