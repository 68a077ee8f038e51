"""One queue: charts, depths, what its workers do, which tasks are slow or fail."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from schedq.cli.queues import nearest
from schedq.dashboard.history import WINDOWS, charts
from schedq.dashboard.pages.asked import one_of
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits
from schedq.lifecycle import PLACES
from schedq.operations.pulse import Pulse
from schedq.operations.samples import MOST_SAMPLES


async def queue(request: Request, visits: Visits) -> View:
    """One queue at a glance."""
    name = request.path_params["name"]
    window = one_of(request, "window", WINDOWS, "1h")
    async with visits.at(name) as found:
        limit = min(MOST_SAMPLES, 3 + WINDOWS[window] // 10_000)
        pulse, samples = await asyncio.gather(found.inspector.pulse(), found.inspector.samples(limit=limit))
    facts = {
        "unknown": await _unknown(name, pulse, visits),
        "queue": name,
        "section": "queue",
        "pulse": pulse,
        "stats": pulse.stats,
        "now_ms": pulse.now_ms,
        "places": PLACES,
        "_charts": charts(samples, pulse.now_ms, WINDOWS[window]),
        "window": window,
        "windows": list(WINDOWS),
    }
    return View("queue.html", facts)


async def _unknown(name: str, found: Pulse, visits: Visits) -> str:
    """What to say of a queue of which nothing is stored; '' if something is."""
    stats = found.stats
    numbers = (value for key, value in stats.items() if key.endswith(("_depth", "_total")))
    if any(numbers) or stats["workers"] or stats["paused_since_ms"] is not None:
        return ""
    names = await visits.names()
    return "" if name in names else f"Nothing is stored of queue {name}{nearest(name, names)}"
