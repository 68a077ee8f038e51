"""The log of a queue: ends of jobs and what operators did."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request

from schedq.dashboard.pages.asked import whole
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits

SIZES: Final = (100, 500, 1000)


async def audit(request: Request, visits: Visits) -> View:
    """The newest lines of the log first."""
    name, limit = request.path_params["name"], whole(request, "limit", SIZES[0])
    async with visits.at(name) as found:
        asked = found.inspector.log(limit=limit if limit in SIZES else SIZES[0])
        stats, entries = await asyncio.gather(found.stats(), asked)
    facts = {
        "queue": name,
        "section": "log",
        "now_ms": stats["now_ms"],
        "entries": entries[::-1],
        "limit": limit,
        "sizes": SIZES,
    }
    return View("log.html", facts)
