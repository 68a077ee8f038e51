"""The workers of a queue: what each runs, since when."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits


async def workers(request: Request, visits: Visits) -> View:
    """The live workers."""
    name = request.path_params["name"]
    async with visits.at(name) as found:
        stats, crew = await asyncio.gather(found.stats(), found.list_workers())
    facts = {
        "queue": name,
        "section": "workers",
        "stats": stats,
        "now_ms": stats["now_ms"],
        "workers": sorted(crew, key=lambda worker: (worker.host, worker.pid, worker.id)),
        "back": f"/queues/{name}/workers",
    }
    return View("workers.html", facts)
