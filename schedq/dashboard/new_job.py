"""The form that enqueues a job: a call of a task, any payload, or the edited payload of a stored job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request

from schedq.dashboard.queue_pool import QueuePool
from schedq.dashboard.rendering import PageData
from schedq.dashboard.security import form_fields, who
from schedq.errors import Conflict, QueueFull, UsageError
from schedq.inspect.display import pretty
from schedq.model import backoff as plans
from schedq.model.escaping import harmless
from schedq.model.ids import new_ids
from schedq.model.keys import checked_id
from schedq.model.records import JobRecord, whole
from schedq.model.tasks import task_call
from schedq.model.times import parsed_duration
from schedq.queue.queue import AsyncQueue
from schedq.transitions.pause import checked_task

_FIELDS: Final = ("id", "job", "task", "args", "kwargs", "payload", "delay", "run_at")
_MOST_NAMED: Final = 200


async def answer(request: Request, pool: QueuePool) -> PageData | tuple[str, str]:
    """The form; or once it was sent and a job was enqueued, the path to redirect to, and the notice to show there."""
    name, problem = request.path_params["name"], ""
    is_sent = request.method == "POST"
    given = {key: values[0] for key, values in form_fields(request).items()} if is_sent else request.query_params
    typed = {key: given.get(key, "") for key in _FIELDS}
    async with pool.open(name) as queue:
        record = await queue.get_job(checked_id(typed["job"])) if typed["job"] else None
        if is_sent:
            try:
                job_id = await _enqueue(queue, typed, record)
            except (UsageError, Conflict, QueueFull) as error:
                problem = str(error)
            else:
                source = f", edited from job {typed['job']}" if typed["job"] else ""
                await queue.inspector.note("enqueue", f"job {job_id}{source}", who=who(request) or "dashboard")
                return f"/queues/{name}/jobs/{job_id}", f"Job {job_id} was enqueued{source}."
        elif record is not None:
            typed["payload"] = pretty(record.fields.get("payload", ""))
        typed["id"] = typed["id"] or new_ids()[0]
        workers = await queue.list_workers()
    context = {
        "queue": name,
        "section": "jobs",
        "typed": typed,
        "problem": problem,
        "tasks": sorted({task for worker in workers for task in worker.tasks})[:_MOST_NAMED],
    }
    return PageData("new_job.html", context, 400 if problem else 200)


async def _enqueue(queue: AsyncQueue, typed: Mapping[str, str], record: JobRecord | None) -> str:
    """Store the job; returns its id. A form that is sent twice stores one job.

    Raises:
        UsageError: what was typed is invalid.
    """
    payload: Any = _json("the payload", typed["payload"]) if typed["payload"].strip() else None
    if task := typed["task"].strip():
        if typed["payload"].strip():
            raise UsageError("give a task or a payload, not both")
        args, kwargs = _json("args", typed["args"] or "[]"), _json("kwargs", typed["kwargs"] or "{}")
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise UsageError('args is a JSON array, such as ["ada", 17], and kwargs an object, such as {"copies": 2}')
        payload = task_call(checked_task(task), args, kwargs)
    elif not typed["payload"].strip():
        raise UsageError("nothing to enqueue: give a task or a payload")
    delay, run_at = typed["delay"].strip(), typed["run_at"].strip()
    if delay and run_at:
        raise UsageError("give a delay or a time, not both")
    when: dict[str, Any] = {"delay": parsed_duration(delay)} if delay else {"run_at": _time(run_at)} if run_at else {}
    stored: str = await queue.enqueue(payload, job_id=checked_id(typed["id"]), **when, **_options(record))
    return stored


def _options(record: JobRecord | None) -> dict[str, Any]:
    """The options of the job whose payload was edited, except its unique key and expiry."""
    if record is None:
        return {}
    fields = record.fields
    times = {name: whole(fields.get(f"{name}_ms")) / 1000 for name in ("timeout", "completed_ttl", "failed_ttl")}
    return {
        "max_attempts": record.max_attempts,
        "backoff": plans.from_text(fields.get("backoff", "")),
        "headers": record.headers or None,
        "gate": record.gate or None,
        "key": record.key or None,
        **{name: seconds for name, seconds in times.items() if f"{name}_ms" in fields},
    }


def _json(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{what} is not JSON: {harmless(str(error))}") from None


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(
            f"{harmless(text)[:80]!r} is not a time with an offset; write 2030-01-01T09:00+01:00, or …Z for UTC"
        )
    return found
