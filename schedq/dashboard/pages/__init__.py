"""The pages by their paths. Each reads a bounded part of Redis and answers with what to show; none writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request

from schedq.dashboard.pages.failed import failed
from schedq.dashboard.pages.future import delayed
from schedq.dashboard.pages.job import job
from schedq.dashboard.pages.jobs import jobs
from schedq.dashboard.pages.overview import overview
from schedq.dashboard.pages.past import audit
from schedq.dashboard.pages.queue import queue
from schedq.dashboard.pages.schedules import schedule, schedules
from schedq.dashboard.pages.workers import workers
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits

PAGES: Final[Mapping[str, Callable[[Request, Visits], Awaitable[View]]]] = {
    "/": overview,
    "/queues/{name}": queue,
    "/queues/{name}/jobs": jobs,
    "/queues/{name}/jobs/{job_id}": job,
    "/queues/{name}/failed": failed,
    "/queues/{name}/delayed": delayed,
    "/queues/{name}/schedules": schedules,
    "/queues/{name}/schedules/{schedule_id}": schedule,
    "/queues/{name}/workers": workers,
    "/queues/{name}/log": audit,
}
