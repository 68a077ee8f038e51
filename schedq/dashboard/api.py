"""The API under `/api`: what pages show, as the JSON that commands print. Each route is one row of `ROUTES`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Final, NamedTuple, cast

from starlette.requests import Request
from starlette.responses import Response

from schedq.dashboard.openapi import Schema, Shape, document, fields_of
from schedq.dashboard.pages import FILTERS, MOST_TYPED, criteria
from schedq.dashboard.queue_pool import QueuePool
from schedq.dashboard.security import Refusal, base
from schedq.doctor.examination import UNREACHABLE, Report, examine
from schedq.errors import Conflict, StoreUnavailable, UsageError
from schedq.inspect import gate_words
from schedq.inspect.audit import LogEntry
from schedq.inspect.batch_timeline import BatchTimeline
from schedq.inspect.error_groups import Errors
from schedq.inspect.forecast import Forecast
from schedq.inspect.gates import GateKey, GateStatus
from schedq.inspect.overview import Pulse
from schedq.inspect.plain import plain, schedule, schedule_page, task_figures
from schedq.inspect.queue_names import nearest
from schedq.inspect.run_tree import STATES, RunPage, run_list
from schedq.inspect.stats import Stats
from schedq.inspect.timeline import Timeline
from schedq.model.groups import BatchProgress, ChildFailure
from schedq.model.lifecycle import BROKEN, FINISHED, JOB_STATES
from schedq.model.progress import Progress
from schedq.model.records import JobRecord
from schedq.model.times import parsed_duration
from schedq.queue.queue import AsyncQueue
from schedq.schedules.records import ScheduleRecord, SlotRecord
from schedq.transitions.heartbeat import WorkerRecord

Values = Mapping[str, Any]
Reply = Awaitable[dict[str, Any]]
_KEYS: Final = 20
"""How many keys of a gate are shown."""
_EVER: Final = "ever"


class ApiRoute(NamedTuple):
    """One route.

    Attributes:
        does: what it returns, in words.
        reply: the shape of that.
        read: reads it from the queue that the path names, or from the pool if it names none.
        takes: the schemas of its parameters by name; those of the path are texts.
    """

    does: str
    reply: Shape
    read: Callable[[Any, Values], Reply]
    takes: Mapping[str, Schema] = {}


def _whole(default: int, most: int, least: int = 1) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


def _text(**more: object) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": MOST_TYPED, **more}


_OFFSET: Final = {"offset": _whole(0, 10**9, 0)}
_LIMIT: Final = {"limit": _whole(100, 1000)}
_WITHIN: Final = "a duration such as 90m or 7d"
_QUEUE: Final = {"queue": str}
_CURSOR: Final = _text(maxLength=10_000)
_RUN: Final = {
    **dict.fromkeys(("id", "state", "task", "flow", "waits", "undo"), str),
    **dict.fromkeys(("operations", "began_at_ms", "ended_at_ms", "took_ms"), int),
}
_FIGURES: Final = {
    "count": int,
    "p50_ms": float | None,
    "p99_ms": float | None,
    "longest_ms": int,
    "bins": [{"below_ms": float, "count": int}],
}
_TASK: Final = {"task": str, **dict.fromkeys(("completed", "failed", "retried", "cancelled"), int)}
_JOB: Final = {
    **fields_of(JobRecord),
    "progress": ({**fields_of(Progress), "fraction": float | None}, None),
    "payload_text?": str,
}
_LISTED_JOB: Final = {name: it for name, it in _JOB.items() if name != "fields"}
_LISTED_SCHEDULE: Final = {
    **{name: it for name, it in fields_of(ScheduleRecord).items() if name not in ("fields", "slots")},
    "payload_text?": str,
}
_GATE: Final = {name: it for name, it in fields_of(GateStatus).items() if name != "now_ms"} | {"limits": dict[str, Any]}


# -- all queues


async def _queues(pool: QueuePool, values: Values) -> dict[str, Any]:
    names, begin = await pool.names(), values["offset"]
    end = begin + values["limit"]
    damaged: dict[str, str] = {}

    async def read(name: str) -> dict[str, Any]:
        try:
            async with pool.open(name) as queue:
                return {"queue": name, **await queue.stats()}
        except Conflict as error:  # one queue's damage must not hide the others
            damaged[name] = str(error)
            return {}

    found = await asyncio.gather(*map(read, names[begin:end]))
    next_offset = end if end < len(names) else None
    page = {"queues": [*filter(None, found)], "damaged": damaged, "total": len(names)}
    return page | {"offset": begin, "next_offset": next_offset}


_examining: Final = asyncio.Semaphore(1)


async def _doctor(pool: QueuePool, values: Values) -> dict[str, Any]:
    if _examining.locked():
        raise Refusal(429, "An examination is running; try again when it has ended.")
    async with _examining:
        chosen = [values["queue"]] if "queue" in values else []
        report = await asyncio.to_thread(examine, pool.redis, chosen)
    if report.findings and report.findings[0].code == UNREACHABLE.code:
        raise StoreUnavailable(report.findings[0].says)
    return report.to_dict()


# -- one queue


async def _known(queue: AsyncQueue) -> None:
    """Check that something is stored about a queue.

    Raises:
        Refusal: nothing is.
    """
    names = await queue.list_queues()
    if queue.name in names:
        return
    stats = await queue.stats()
    if not any(value for name, value in stats.items() if name not in ("now_ms", "visibility_ms")):
        raise Refusal(404, f"Nothing is stored about queue {queue.name}{nearest(queue.name, names)}.")


async def _stats(queue: AsyncQueue, _: Values) -> dict[str, Any]:
    stats, paused, live = await asyncio.gather(queue.stats(), queue.list_paused_tasks(), queue.list_workers())
    return {**stats, "tasks_paused_since_ms": paused, "live_workers": [*map(asdict, live)]}


async def _tasks(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    found, within, task = await queue.inspector.task_stats(), values["within"], values.get("task")
    period = found.ever if within == _EVER else found.within(parsed_duration(within))
    if task is not None and task not in period.tasks:
        raise Refusal(404, f"Nothing was counted of task {task!r} in this time.")
    return task_figures(queue.name, period, task)


async def _jobs(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    state, cursor, limit = values["state"], values.get("cursor"), values["limit"]
    if state == BROKEN:
        if not (cursor or "0").isdecimal():
            raise UsageError(f"cursor {cursor!r:.60} is not for broken jobs")
        offset = int(cursor or 0)
        notes, stats = await asyncio.gather(queue.list_broken(offset, limit), queue.stats())
        so_far: dict[str, int] = {}
        rows, looked, total = [*map(asdict, notes)], len(notes), stats["broken_depth"]
        ahead = str(offset + limit) if len(notes) == limit else None
    else:
        found, stats = await asyncio.gather(
            queue.inspector.find(state, **criteria(values), limit=limit, cursor=cursor), queue.stats()
        )
        page, so_far = found, {state: cast("dict[str, int]", stats)[f"{state}_total"]} if state in FINISHED else {}
        rows, looked, total, ahead = [*map(plain, page.jobs)], page.looked, page.total, page.cursor
    listed = {"jobs": [{"state": state, **row} for row in rows], "totals": {state: total}, "so_far": so_far}
    return listed | {"looked": {state: looked}, "cursors": {state: ahead} if ahead else {}}


async def _job(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    job_id, inspector = values["job_id"], queue.inspector
    record, line, why = await asyncio.gather(queue.get_job(job_id), inspector.timeline(job_id), inspector.why(job_id))
    if record is None or line is None:
        raise Refusal(404, f"Nothing is stored about job {job_id} in queue {queue.name}.")
    return {**plain(record), "fields": dict(record.fields), "timeline": line.to_dict(), "why": why.to_dict()}


async def _schedules(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    offset, limit = values["offset"], values["limit"]
    stats, listed = await asyncio.gather(queue.stats(), queue.schedules.list(offset, limit + 1))
    records = await asyncio.gather(*(_with_slots(queue, record) for record in listed[:limit]))
    more = offset + limit if len(listed) > limit else None
    return schedule_page(queue.name, stats["now_ms"], records, offset, more)


async def _with_slots(queue: AsyncQueue, record: ScheduleRecord) -> ScheduleRecord:
    """The schedule with its last slots; as it is if it was deleted since, or another program gave it an invalid id."""
    with suppress(UsageError):
        return await queue.schedules.get(record.id) or record
    return record


async def _schedule(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    schedule_id = values["schedule_id"]
    stats, record = await asyncio.gather(queue.stats(), queue.schedules.get(schedule_id))
    if record is None:
        raise Refusal(404, f"Queue {queue.name} has no schedule {schedule_id}.")
    return schedule(queue.name, stats["now_ms"], record)


async def _gate(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    name = values["gate"]
    found = await queue.gates.get(name)
    if found is None:
        raise Refusal(404, f"Queue {queue.name} has no gate {name}.")
    return {**found.to_dict(), "keys_shown": [*map(asdict, await queue.gates.keys(name, limit=_KEYS))]}


async def _batch(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    batch = queue.batch(values["batch"])
    found, line = await asyncio.gather(batch.progress(), batch.timeline())
    return {**found._asdict(), "timeline": line.to_dict()}


async def _failures(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    name = values["batch"]
    batch = queue.batch(name)
    await batch.progress()  # raises JobGone
    found = await batch.failures(values["offset"], values["limit"])
    return {"batch": name, "failures": [one._asdict() for one in found]}


async def _forecast(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    within = parsed_duration(values["within"])
    found, gates = await asyncio.gather(queue.inspector.forecast(within), queue.gates.list())
    return {**found.to_dict(), "gates_drained_in_ms": {it.name: gate_words.drained_in_ms(it) for it in gates}}


async def _workers(queue: AsyncQueue, _: Values) -> dict[str, Any]:
    return {"workers": [*map(asdict, await queue.list_workers())]}


async def _gates(queue: AsyncQueue, _: Values) -> dict[str, Any]:
    return {"gates": [it.to_dict() for it in await queue.gates.list()]}


async def _batches(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    return {"batches": [it._asdict() for it in await queue.list_batches(values["limit"])]}


async def _workflows(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    states = (values["state"],) if "state" in values else STATES
    ask = run_list(queue.settings, states, values.get("task", ""), values["limit"], values.get("cursor"))
    return (await queue._drive(ask))._asdict()


async def _pulse(queue: AsyncQueue, _: Values) -> dict[str, Any]:
    return asdict(await queue.inspector.pulse())


async def _errors(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    return asdict(await queue.inspector.errors(values["limit"]))


async def _log(queue: AsyncQueue, values: Values) -> dict[str, Any]:
    return {"log": [*map(asdict, await queue.inspector.log(values.get("after"), values["limit"]))]}


_ONE: Final = "/api/queues/{queue}"
ROUTES: Final[Mapping[str, ApiRoute]] = {
    "/api/queues": ApiRoute(
        "Depths and totals of the queues",
        {
            "queues": [_QUEUE | fields_of(Stats)],
            "damaged": dict[str, str],
            "total": int,
            "offset": int,
            "next_offset": int | None,
        },
        _queues,
        {**_OFFSET, "limit": _whole(20, 100)},
    ),
    "/api/doctor": ApiRoute(
        "Findings of an examination of Redis and of one queue or all",
        {**fields_of(Report), "is_healthy": bool, "ignored": list[str]},
        _doctor,
        {"queue": _text()},
    ),
    _ONE: ApiRoute(
        "Depths, totals, paused tasks and live workers",
        _QUEUE | fields_of(Stats) | {"tasks_paused_since_ms": dict[str, int], "live_workers": [WorkerRecord]},
        _stats,
    ),
    f"{_ONE}/pulse": ApiRoute("The queue at a glance: rates, lateness, what runs", Pulse, _pulse),
    f"{_ONE}/tasks": ApiRoute(
        "What workers have counted of each task",
        {
            **_QUEUE,
            "since_ms": int,
            "until_ms": int,
            "tasks": [{**_TASK, "error_rate": float | None, "run": _FIGURES, "lateness": _FIGURES}],
        },
        _tasks,
        {"within": _text(default="1h", description=f"{_WITHIN}, 5m to 48h; or {_EVER}"), "task": _text()},
    ),
    f"{_ONE}/jobs": ApiRoute(
        "Jobs of a state that match, by pages; `cursors` has the cursor of the next one",
        {
            **_QUEUE,
            "jobs": [({"state": str, **_LISTED_JOB}, {"state": str, "id": str, "reason": str, "at_ms": int})],
            "totals": dict[str, int],
            "so_far": dict[str, int],
            "looked": dict[str, int],
            "cursors": dict[str, str],
        },
        _jobs,
        {
            "state": {"enum": [*JOB_STATES], "default": JOB_STATES[0]},
            **dict.fromkeys(FILTERS, _text()),
            "cursor": _CURSOR,
            **_LIMIT,
        },
    ),
    f"{_ONE}/jobs/{{job_id}}": ApiRoute(
        "Everything stored about a job, its timeline, and why it does not run",
        {**_QUEUE, **_JOB, "timeline": Timeline, "why": dict[str, Any]},
        _job,
    ),
    f"{_ONE}/errors": ApiRoute(
        "The newest failed jobs, grouped by error", _QUEUE | fields_of(Errors), _errors, {"limit": _whole(1000, 5000)}
    ),
    f"{_ONE}/schedules": ApiRoute(
        "Schedules by next slot",
        {
            **_QUEUE,
            "now_ms": int,
            "schedules": [{**_LISTED_SCHEDULE, "last_slot": SlotRecord | None}],
            "offset": int,
            "next_offset": int | None,
        },
        _schedules,
        {**_OFFSET, "limit": _whole(50, 200)},
    ),
    f"{_ONE}/schedules/{{schedule_id}}": ApiRoute(
        "Everything stored about a schedule",
        {**_QUEUE, "now_ms": int, **fields_of(ScheduleRecord), "payload_text?": str},
        _schedule,
    ),
    f"{_ONE}/workers": ApiRoute("The live workers", {**_QUEUE, "workers": [WorkerRecord]}, _workers),
    f"{_ONE}/gates": ApiRoute("The gates", {**_QUEUE, "gates": [_GATE]}, _gates),
    f"{_ONE}/gates/{{gate}}": ApiRoute(
        "A gate and its keys with most waiting jobs", {**_QUEUE, **_GATE, "keys_shown": [GateKey]}, _gate
    ),
    f"{_ONE}/batches": ApiRoute("Batches and chains", {**_QUEUE, "batches": [BatchProgress]}, _batches, _LIMIT),
    f"{_ONE}/batches/{{batch}}": ApiRoute(
        "A batch and its timeline", {**_QUEUE, **fields_of(BatchProgress), "timeline": BatchTimeline}, _batch
    ),
    f"{_ONE}/batches/{{batch}}/failures": ApiRoute(
        "Its children that failed", {**_QUEUE, "batch": str, "failures": [ChildFailure]}, _failures, _OFFSET | _LIMIT
    ),
    f"{_ONE}/workflows": ApiRoute(
        "Runs of workflows, of each state at most `limit`; `cursors` has that of the next page of a state",
        {**_QUEUE, **fields_of(RunPage), "runs": [_RUN]},
        _workflows,
        {"state": {"enum": [*STATES]}, "task": _text(), "cursor": _CURSOR, "limit": _whole(20, 1000)},
    ),
    f"{_ONE}/log": ApiRoute(
        "Ends of jobs and operators' actions, oldest first: the newest, or those after an entry",
        {**_QUEUE, "log": [LogEntry]},
        _log,
        {"after": _text(), **_LIMIT},
    ),
    f"{_ONE}/forecast": ApiRoute(
        "What is due when",
        _QUEUE | fields_of(Forecast) | {"gates_drained_in_ms": dict[str, float | None]},
        _forecast,
        {"within": _text(default="24h", description=f"{_WITHIN}, 1m to 31d")},
    ),
}


# -- requests


def json_response(value: object, status: int = 200) -> Response:
    """A value as ASCII, so that no text in it can be taken for anything else."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # other programs may store NaN, which is not JSON
        text = json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None), separators=(",", ":"))
    return Response(text, status, media_type="application/json")


def _value(name: str, text: str, rule: Schema) -> Any:
    """A parameter, checked against its schema.

    Raises:
        UsageError: it is invalid.
    """
    if "enum" in rule:
        words, is_valid = f"one of {', '.join(rule['enum'])}", text in rule["enum"]
    elif rule["type"] == "integer":
        words = f"a whole number from {rule['minimum']} to {rule['maximum']}"
        is_number = text.isascii() and text.isdigit() and len(text) < 16
        is_valid = is_number and rule["minimum"] <= int(text) <= rule["maximum"]
    else:
        words, is_valid = f"a text of 1 to {rule['maxLength']} characters", 0 < len(text) <= rule["maxLength"]
    if not is_valid:
        raise UsageError(f"{name} must be {words}, got {text!r:.100}")
    return int(text) if rule.get("type") == "integer" else text


def _values(request: Request, route: ApiRoute) -> dict[str, Any]:
    found = {name: rule["default"] for name, rule in route.takes.items() if "default" in rule}
    for name, text in request.query_params.items():
        if name not in route.takes:
            raise UsageError(f"there is no parameter {name!r:.100}; there is {', '.join(route.takes) or 'none'}")
        found[name] = _value(name, text, route.takes[name])
    return {**found, **request.path_params}


async def serve(pool: QueuePool, route: ApiRoute, request: Request) -> Response:
    """Reply to a request.

    Raises:
        Refusal, SchedqError: there is no reply.
    """
    values = _values(request, route)
    try:
        if "queue" not in request.path_params:
            return json_response(await route.read(pool, values))
        async with pool.open(values["queue"]) as queue:
            await _known(queue)
            return json_response({"queue": queue.name, **await route.read(queue, values)})
    except StoreUnavailable as error:
        raise Refusal(503, str(error)) from None


async def openapi(title: str, request: Request) -> Response:
    """The document that describes the API."""
    return json_response(document(ROUTES, title, version("schedq"), base(request)))
