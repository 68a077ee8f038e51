"""The pages by path. Each reads a bounded amount of data from Redis and returns what to show; none writes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast
from urllib.parse import urlencode

from starlette.requests import Request

from schedq.dashboard import help_pages, log_page, runs, tasks
from schedq.dashboard.action_table import actions_of_batch
from schedq.dashboard.charts import WINDOWS, charts, forecast_chart, sparklines, window_of
from schedq.dashboard.gates import gate_page, gates_page
from schedq.dashboard.queue_pool import QueuePool
from schedq.dashboard.rendering import PageData
from schedq.dashboard.security import Refusal, inner_path
from schedq.errors import Conflict, SchedqError, UsageError
from schedq.inspect.batches import arguments, batch_facts
from schedq.inspect.overview import Pulse
from schedq.inspect.queue_names import existing, nearest
from schedq.inspect.run_tree import run_of
from schedq.inspect.samples import MOST_SAMPLES, Sample, newest, rate
from schedq.inspect.stats import Stats, stats
from schedq.inspect.timeline import OVER, RETRY, STEP_KIND, WAITING, Timeline, TimelineEvent
from schedq.inspect.uniqueness import StoredRule
from schedq.model.expiry import expires_at_ms
from schedq.model.groups import BatchProgress
from schedq.model.lifecycle import BROKEN, FINISHED, JOB_STATES
from schedq.model.progress import Progress
from schedq.model.settings import NO_QUEUE
from schedq.model.tasks import is_task_call
from schedq.model.times import parsed_duration, span
from schedq.queue.queue import AsyncQueue
from schedq.schedules.records import ScheduleRecord
from schedq.transitions import groups, unwrap

Page = Callable[[Request, QueuePool], Awaitable[PageData]]
_QUEUES: Final = 20
"""Number of rows in the list of queues."""
_ROWS: Final = 50
"""Number of rows in the lists of schedules, of batches and of delayed jobs."""
_JOB_ROWS: Final = (50, 100, 500)
_MOST_TASKS: Final = 20
"""Number of rows in a queue's list of tasks."""
_CHART_MS: Final = 5000
"""How often charts move, so that a browser does not get them again every second."""
_FORECASTS_S: Final = {"1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""Periods that the forecast can show, seconds."""
_COSTLY_EVERY_S: Final = 5.0
"""Minimum seconds between two updates of a page that reads a lot."""
FILTERS: Final = ("task", "text", "error", "unique", "gate", "key", "header", "older", "newer")
MOST_TYPED: Final = 400
"""Maximum number of characters of a filter."""
ACTIONS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "pending": ("cancel", "delete"),
    "delayed": ("run_now", "reschedule", "cancel", "delete"),
    "processing": ("cancel",),
    "completed": ("delete",),
    "failed": ("requeue", "delete"),
    "cancelled": ("requeue", "delete"),
    "broken": (),
}
"""The actions that apply to jobs of a state."""


# -- query parameters; invalid values count as absent


def _number(request: Request, name: str, default: int = 0) -> int:
    """A whole number, at most 10^9."""
    text = request.query_params.get(name, "")
    return min(int(text), 10**9) if text.isascii() and text.isdigit() and len(text) < 16 else default


def _one_of(request: Request, name: str, choices: Mapping[str, object] | tuple[str, ...], default: str) -> str:
    text = request.query_params.get(name, "")
    return text if text in choices else default


def _limit(request: Request, sizes: tuple[int, ...]) -> int:
    """The page size, by default the smallest."""
    limit = _number(request, "limit")
    return limit if limit in sizes else sizes[0]


def _query_string(fields: Mapping[str, object]) -> str:
    """A query string of the fields that are not empty."""
    text = urlencode({name: str(value) for name, value in fields.items() if value not in ("", None)})
    return f"?{text}" if text else ""


# -- all queues


async def _overview(request: Request, pool: QueuePool) -> PageData:
    """All queues of a Redis, one row each."""
    names = await pool.names()
    offset = _number(request, "offset")
    window = _one_of(request, "window", WINDOWS, "1h")
    context = {
        "rows": await _rows_of(pool, names[offset : offset + _QUEUES], window),
        "_names": names,
        "total": len(names),
        "offset": offset,
        "size": _QUEUES,
        "window": window,
        "windows": list(WINDOWS),
        "section": "overview",
    }
    return PageData("overview.html", context)


async def _rows_of(pool: QueuePool, names: Sequence[str], window: str) -> list[dict[str, Any]]:
    """The rows of some queues, in one round trip; on a cluster, where each has a node, in one for each."""

    async def row(name: str) -> dict[str, Any]:
        async with pool.open(name) as queue:
            return (await _read(queue, [name], window))[0]

    async with pool.open(NO_QUEUE) as queue:
        if not queue.settings.tagged:
            return await _read(queue, names, window)
    return await asyncio.gather(*map(row, names))


async def _read(queue: AsyncQueue, names: Sequence[str], window: str) -> list[dict[str, Any]]:
    settings = [queue.settings.of_queue(name) for name in names]
    limit = _most_samples(window)
    replies = await queue._client.execute([ask for one in settings for ask in (stats(one), newest(one, limit))])
    return [_row(*each, window) for each in zip(names, replies[::2], replies[1::2], strict=True)]


def _row(name: str, stats: Stats | SchedqError, samples: list[Sample] | SchedqError, window: str) -> dict[str, Any]:
    """One queue; if its keys are corrupt, its row says so and the others are shown."""
    try:
        stats, samples = unwrap(stats), unwrap(samples)
    except Conflict as error:
        return {"name": name, "problem": str(error)}
    now, due = stats["now_ms"], stats["next_due_ms"]
    return {
        "name": name,
        "problem": "",
        "stats": stats,
        "now_ms": now,
        "rate": rate(samples, cast("dict[str, int]", stats), now, 60),
        "lateness_ms": samples[-1].lateness_p99_ms if samples else None,
        "overdue_ms": max(0, now - due) if due else 0,
        "samples": samples,
        "lines": sparklines(samples, now, WINDOWS[window]),
    }


async def _samples(queue: AsyncQueue, window: str) -> list[Sample]:
    """The samples that fill a chart of this period."""
    return await queue.inspector.samples(limit=_most_samples(window))


def _most_samples(window: str) -> int:
    return min(MOST_SAMPLES, 3 + WINDOWS[window] // 10_000)


# -- one queue


def _of_queue(section: str, show: Callable[[Request, AsyncQueue], Awaitable[PageData]]) -> Page:
    """A page about the queue that its path names, in this section of the navigation."""

    async def page(request: Request, pool: QueuePool) -> PageData:
        name = request.path_params["name"]
        async with pool.open(name) as queue:
            data = await show(request, queue)
            gates, batches = queue.settings.keys.gates, queue.settings.keys.groups
            there, _ = await queue._drive(existing([gates, batches]))
        common = {"queue": name, "section": section, "back": inner_path(request)}
        common |= {"has_gates": gates in there, "has_batches": batches in there}
        return replace(data, context=common | data.context)

    return page


async def _queue(request: Request, queue: AsyncQueue) -> PageData:
    """Charts, depths, workers, and tasks that are slow or fail."""
    window = _one_of(request, "window", WINDOWS, "")
    pulse, samples = await asyncio.gather(queue.inspector.pulse(), _samples(queue, window or "1h"))
    window = window or window_of(samples, pulse.now_ms)
    context = {
        "unknown": await _unknown(queue, pulse),
        "pulse": pulse,
        "stats": pulse.stats,
        "now_ms": pulse.now_ms,
        "other_tasks": _other_tasks(pulse),
        "places": JOB_STATES,
        "_charts": charts(samples, -(-pulse.now_ms // _CHART_MS) * _CHART_MS, WINDOWS[window]),
        "window": window,
        "windows": list(WINDOWS),
    }
    return PageData("queue.html", context)


def _other_tasks(pulse: Pulse) -> list[str]:
    """Tasks that are paused, or that a live worker has, although no job of theirs has run lately."""
    known = set(pulse.paused_tasks).union(*(worker.tasks for worker in pulse.workers))
    return sorted(known - {task.task for task in pulse.tasks[:_MOST_TASKS]})[:_MOST_TASKS]


async def _unknown(queue: AsyncQueue, pulse: Pulse) -> str:
    """A hint if nothing is stored about this queue; '' otherwise."""
    stats = pulse.stats
    numbers = (value for key, value in stats.items() if key.endswith(("_depth", "_total")))
    if any(numbers) or stats["workers"] or stats["paused_since_ms"] is not None or stats["paused_tasks"]:
        return ""
    names = await queue.list_queues()
    return "" if queue.name in names else f"Nothing is stored about queue {queue.name}{nearest(queue.name, names)}"


# -- jobs


async def _jobs(request: Request, queue: AsyncQueue) -> PageData:
    """A page of jobs of one state; a filtered one is not live, because searching costs too much."""
    state = _one_of(request, "state", JOB_STATES, "pending")
    typed = {key: request.query_params.get(key, "").strip()[:MOST_TYPED] for key in FILTERS}
    limit, offset = _limit(request, _JOB_ROWS), _number(request, "offset")
    cursor = request.query_params.get("cursor") or None
    stats, (rows, ahead) = await asyncio.gather(queue.stats(), _rows(queue, state, typed, limit, offset, cursor))
    here = {"state": state, "limit": "" if limit == _JOB_ROWS[0] else limit, **typed}
    context = {
        "stats": stats,
        "now_ms": stats["now_ms"],
        "places": JOB_STATES,
        "state": state,
        "typed": typed,
        "is_filtered": any(typed.values()),
        "is_first": cursor is None and not offset,
        "limit": limit,
        "sizes": _JOB_ROWS,
        "actions": ACTIONS_OF[state],
        "first": _query_string(here),
        "ahead": _query_string(here | ahead) if ahead else None,
        "back": inner_path(request) + _query_string(here),
        **rows,
    }
    return PageData("jobs.html", context)


async def _rows(
    queue: AsyncQueue, state: str, typed: Mapping[str, str], limit: int, offset: int, cursor: str | None
) -> tuple[dict[str, Any], dict[str, object]]:
    """Jobs, or notes about corrupt entries; and where the next page starts, {} at the end."""
    if state == BROKEN:
        notes = await queue.list_broken(offset=offset, limit=limit)
        return {"notes": notes}, {"offset": offset + limit} if len(notes) == limit else {}
    page = await queue.inspector.find(state, **criteria(typed), limit=limit, cursor=cursor)
    return {"jobs": page.jobs, "looked": page.looked}, {"cursor": page.cursor} if page.cursor else {}


def criteria(typed: Mapping[str, str]) -> dict[str, Any]:
    """The filter as arguments of `find`.

    Raises:
        UsageError: an age is no duration.
    """
    texts = {key: typed[key] for key in FILTERS[:-2] if typed.get(key)}
    return texts | {f"{key}_than": parsed_duration(typed[key]) for key in ("older", "newer") if typed.get(key)}


_MASK: Final = re.compile(r"<(?:id|n|address)>")


async def _failed(_: Request, queue: AsyncQueue) -> PageData:
    """Failed jobs grouped by error: the newest 5000 jobs, and the 100 largest groups, because all errors may differ."""
    stats, errors = await asyncio.gather(queue.stats(), queue.inspector.errors(limit=5000))
    shown = [(group, distinctive(group.text)) for group in errors.groups[:100]]
    context = {
        "now_ms": stats["now_ms"],
        "groups": [
            (group, part, _query_string({"state": "failed", "error": part}) if part else "") for group, part in shown
        ],
        "more": len(errors.groups) - len(shown),
        "looked_at": errors.looked_at,
        "failed": errors.failed,
    }
    return PageData("failed.html", context, every_s=_COSTLY_EVERY_S)


def distinctive(text: str) -> str:
    """The longest text that all errors of a group share; '' if it can't be typed."""
    return max((part.strip()[:MOST_TYPED] for part in _MASK.split(text) if part.isprintable()), key=len, default="")


async def _delayed(request: Request, queue: AsyncQueue) -> PageData:
    """What is due when: delayed jobs and slots of schedules as a chart, and the next delayed jobs."""
    window = _one_of(request, "window", _FORECASTS_S, "24h")
    stats, jobs, forecast = await asyncio.gather(
        queue.stats(), queue.list_delayed(limit=_ROWS), queue.inspector.forecast(_FORECASTS_S[window])
    )
    context = {
        "stats": stats,
        "now_ms": stats["now_ms"],
        "jobs": jobs,
        "forecast": forecast,
        "chart": forecast_chart(forecast),
        "window": window,
        "windows": list(_FORECASTS_S),
    }
    return PageData("delayed.html", context, every_s=_COSTLY_EVERY_S)


# -- one job

_MOST_EVENTS: Final = 200
_MOST_CHILDREN: Final = 100
_MANY_ROWS: Final = 100
"""The rows of a chart from which on its page is sent less often."""
_KINDS: Final = {
    "completed": "good",
    "running": "good",
    "failed": "bad",
    "retry": "bad",
    "lost": "bad",
    "cancelled": "warn",
    "asked to stop": "warn",
    "error": "bad",
    "timeout": "warn",
}


@dataclass(frozen=True, slots=True)
class Event:
    """A past or future event of a job, as text.

    Attributes:
        at_ms: when.
        text: what.
        kind: its color: good, bad, warn, next or ''.
        more: details, or ''.
    """

    at_ms: int
    text: str
    kind: str
    more: str


async def _job(request: Request, queue: AsyncQueue) -> PageData:
    """Everything stored about one job, why it is not running, and its history."""
    job_id, inspector = request.path_params["job_id"], queue.inspector
    why, line, record = await asyncio.gather(inspector.why(job_id), inspector.timeline(job_id), queue.get_job(job_id))
    run = None if record is None else await queue._drive(run_of(queue.settings, record, 1, [_MOST_CHILDREN]))
    chart = None if record is None or run is None else runs.chart(run, record, why.now_ms)
    context = runs.flow_facts(record) | {
        "id": job_id,
        "job": record,
        "why": why,
        "timeline": [] if line is None else [_event(line, event) for event in line.steps[-_MOST_EVENTS:]],
        "left_out": 0 if line is None else max(0, len(line.steps) - _MOST_EVENTS),
        "earlier": 0 if line is None else line.earlier,
        "now_ms": why.now_ms,
        "expires_at_ms": expires_at_ms(record.fields) if record is not None else 0,
        "unique": record.fields.get("unique", "") if record is not None else "",
        "unique_rule": StoredRule.of(record.fields.get("unique_rule", "")).words() if record is not None else "",
        "gate": record.fields.get("gate", "") if record is not None else "",
        "key": record.fields.get("key", "") if record is not None else "",
        "ttls": [] if record is None else [(name, span(ms)) for name, ms in record.ttls_ms.items()],
        "task": record.payload["task"] if record is not None and is_task_call(record.payload) else "",
        "actions": ACTIONS_OF.get(record.status, ()) if record is not None else (),
        "run": chart,
        "messages": runs.messages(record) if record is not None else [],
        "takes_messages": record is not None and record.status not in FINISHED and "run" in record.fields,
    }
    every_s = _COSTLY_EVERY_S if chart is not None and len(chart.rows) > _MANY_ROWS else 1.0
    return PageData("job.html", context, 200 if why.is_known else 404, every_s)


def _event(line: Timeline, event: TimelineEvent) -> Event:
    attempt = event.attempt
    if attempt is not None:
        by = f" on {attempt.worker}" if attempt.worker else ""
        how = f"{attempt.outcome} after" if attempt.ended_at_ms else "running for"
        text = f"attempt {attempt.number}: {how} {span(attempt.duration_ms)}{by}"
        return Event(event.at_ms, text, _KINDS.get(attempt.outcome, ""), attempt.error)
    if (it := event.operation) is not None:
        is_over = event.what == OVER or (it.kind == STEP_KIND and it.ended_at_ms)
        text = f"{event.text} after {span(it.duration_ms)}" if is_over else event.text
        kind = "next" if event.at_ms > line.now_ms else _KINDS.get(it.outcome, "") if is_over else ""
        return Event(event.at_ms, text, kind, it.note if is_over or it.outcome in (WAITING, RETRY) else "")
    late = line.promoted_at_ms - line.due_at_ms
    more = f"{span(late)} late" if event.what == "promoted" and late >= 0 else ""
    return Event(event.at_ms, event.text, "next" if event.at_ms > line.now_ms else _KINDS.get(event.what, ""), more)


# -- schedules


async def _schedules(request: Request, queue: AsyncQueue) -> PageData:
    """A page of schedules, earliest next slot first."""
    offset = _number(request, "offset")
    stats, records = await asyncio.gather(queue.stats(), queue.schedules.list(offset=offset, limit=_ROWS + 1))
    shown = records[:_ROWS]
    context = {
        "now_ms": stats["now_ms"],
        "rows": [*zip(shown, await asyncio.gather(*(_next(queue, record, 3) for record in shown)), strict=True)],
        "offset": offset,
        "size": _ROWS,
        "has_more": len(records) > _ROWS,
    }
    return PageData("schedules.html", context)


async def _schedule(request: Request, queue: AsyncQueue) -> PageData:
    """One schedule, with the outcome of its slots.

    Raises:
        Refusal: there is none.
    """
    schedule_id = request.path_params["schedule_id"]
    stats, record = await asyncio.gather(queue.stats(), queue.schedules.get(schedule_id))
    if record is None:
        raise Refusal(404, f"Queue {queue.name} has no schedule {schedule_id}.")
    upcoming = await _next(queue, record, 12)
    return PageData("schedule.html", {"now_ms": stats["now_ms"], "schedule": record, "upcoming": upcoming})


async def _next(queue: AsyncQueue, record: ScheduleRecord, count: int) -> list[Any]:
    """The next slots of a schedule in its time zone; none if it is damaged or has ended."""
    if record.state in ("damaged", "ended"):
        return []
    try:
        return [*await queue.schedules.next_slots(record.id, n=count)]
    except UsageError:
        return []  # deleted or damaged in the meantime


# -- batches


async def _batches(request: Request, queue: AsyncQueue) -> PageData:
    """A page of batches and chains, first those that have not ended."""
    offset = _number(request, "offset")
    stats, found = await asyncio.gather(queue.stats(), queue._drive(groups.list_groups(queue.settings, _ROWS, offset)))
    return PageData("batches.html", _of_batches(found, offset, stats["batches"]) | {"now_ms": stats["now_ms"]})


async def _batch(request: Request, queue: AsyncQueue) -> PageData:
    """One batch or chain, with the children that failed, and its timeline."""
    name, offset = request.path_params["batch"], _number(request, "offset")
    batch = queue.batch(name)
    ask = queue._drive(groups.read(queue.settings, name))
    line, failures, found, fields = await asyncio.gather(
        batch.timeline(), batch.failures(offset, _ROWS), batch.progress(), ask
    )
    more = {"now_ms": line.now_ms, "one": found, "line": line, "failures": failures, "arguments": arguments}
    more["actions"] = actions_of_batch(found, fields)
    return PageData(
        "batches.html",
        _of_batches([found], offset, line.failures) | more | {"jobs": f"{name}-%s-{fields.get('generation', '')}"},
    )


def _of_batches(found: Sequence[BatchProgress], offset: int, total: int) -> dict[str, Any]:
    rows = [(it, batch_facts(it), Progress(it.completed + it.failed, it.total or None)) for it in found]
    return {"rows": rows, "offset": offset, "size": _ROWS, "has_more": total > offset + _ROWS, "one": None}


# -- workers


async def _workers(_: Request, queue: AsyncQueue) -> PageData:
    """The live workers, what each runs, and since when."""
    stats, live = await asyncio.gather(queue.stats(), queue.list_workers())
    workers = sorted(live, key=lambda worker: (worker.host, worker.pid, worker.id))
    return PageData("workers.html", {"stats": stats, "now_ms": stats["now_ms"], "workers": workers})


PAGES: Final[Mapping[str, Page]] = {
    "/": _overview,
    "/queues/{name}": _of_queue("queue", _queue),
    "/queues/{name}/jobs": _of_queue("jobs", _jobs),
    "/queues/{name}/jobs/{job_id}": _of_queue("jobs", _job),
    "/queues/{name}/failed": _of_queue("failed", _failed),
    "/queues/{name}/delayed": _of_queue("delayed", _delayed),
    "/queues/{name}/schedules": _of_queue("schedules", _schedules),
    "/queues/{name}/schedules/{schedule_id}": _of_queue("schedules", _schedule),
    "/queues/{name}/gates": _of_queue("gates", gates_page),
    "/queues/{name}/gates/{gate}": _of_queue("gates", gate_page),
    "/queues/{name}/batches": _of_queue("batches", _batches),
    "/queues/{name}/batches/{batch}": _of_queue("batches", _batch),
    "/queues/{name}/workflows": _of_queue("workflows", runs.page),
    "/queues/{name}/workers": _of_queue("workers", _workers),
    "/queues/{name}/log": _of_queue("log", log_page.page),
    "/queues/{name}/tasks": _of_queue("tasks", tasks.tasks_page),
    "/queues/{name}/tasks/{task:path}": _of_queue("tasks", tasks.task_page),
    "/help": help_pages.contents,
    "/help/{topic}": help_pages.topic,
}
