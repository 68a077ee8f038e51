"""What comes: delayed jobs and slots of schedules, as a picture and as a list."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request

from schedq.dashboard.pages.asked import one_of
from schedq.dashboard.picture import picture
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits

WITHIN: Final = {"1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""Times that the picture may show, seconds."""
_ROWS: Final = 50
_EVERY_S: Final = 5.0


async def delayed(request: Request, visits: Visits) -> View:
    """The picture of what is due when, and the next of the jobs."""
    name = request.path_params["name"]
    within = one_of(request, "window", WITHIN, "24h")
    async with visits.at(name) as found:
        stats, jobs, forecast = await asyncio.gather(
            found.stats(), found.list_delayed(limit=_ROWS), found.inspector.forecast(WITHIN[within])
        )
    facts = {
        "queue": name,
        "section": "delayed",
        "stats": stats,
        "now_ms": stats["now_ms"],
        "jobs": jobs,
        "forecast": forecast,
        "picture": picture(forecast),
        "window": within,
        "windows": list(WITHIN),
        "back": f"/queues/{name}/delayed",
    }
    return View("delayed.html", facts, every_s=_EVERY_S)
