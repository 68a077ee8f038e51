"""One job: what it is, why it does not run, what happened to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from schedq.cli.show import span
from schedq.dashboard.pages.jobs import ACTIONS
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits
from schedq.operations.timeline import Step, Timeline
from schedq.registry import is_task_call

_KINDS: Final = {
    "completed": "good",
    "running": "good",
    "failed": "bad",
    "retry": "bad",
    "lost": "bad",
    "cancelled": "warn",
    "asked to stop": "warn",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a job, or that will, ready to be shown.

    Attributes:
        at_ms: when.
        words: what.
        kind: its colour: good, bad, warn, next or ''.
        more: beside it, or ''.
    """

    at_ms: int
    words: str
    kind: str
    more: str


async def job(request: Request, visits: Visits) -> View:
    """All that is stored of one job."""
    name, job_id = request.path_params["name"], request.path_params["job_id"]
    async with visits.at(name) as found:
        inspector = found.inspector
        why, line, record = await asyncio.gather(
            inspector.why(job_id), inspector.timeline(job_id), found.get_job(job_id)
        )
    facts = {
        "queue": name,
        "section": "jobs",
        "id": job_id,
        "job": record,
        "why": why,
        "timeline": [] if line is None else [_event(line, step) for step in line.steps],
        "earlier": 0 if line is None else line.earlier,
        "now_ms": why.now_ms,
        "task": record.payload["task"] if record is not None and is_task_call(record.payload) else "",
        "actions": ACTIONS.get(record.status, ()) if record is not None else (),
        "back": f"/queues/{name}/jobs/{job_id}",
    }
    return View("job.html", facts, 200 if why.is_known else 404)


def _event(line: Timeline, step: Step) -> Event:
    attempt = step.attempt
    if attempt is not None:
        by = f" on {attempt.worker}" if attempt.worker else ""
        words = f"attempt {attempt.number}: {attempt.outcome} after {span(attempt.duration_ms)}{by}"
        if not attempt.ended_at_ms:
            words = f"attempt {attempt.number}: running for {span(attempt.duration_ms)}{by}"
        return Event(step.at_ms, words, _KINDS.get(attempt.outcome, ""), attempt.error)
    late = line.promoted_at_ms - line.due_at_ms
    more = f"{span(late)} late" if step.what == "promoted" and late >= 0 else ""
    return Event(step.at_ms, step.what, "next" if step.at_ms > line.now_ms else _KINDS.get(step.what, ""), more)
