"""All queues of a Redis at a glance."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from starlette.requests import Request

from schedq.dashboard.history import WINDOWS, sparklines
from schedq.dashboard.pages.asked import one_of, whole
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits
from schedq.errors import Conflict
from schedq.operations.samples import MOST_SAMPLES, rate

_ROWS: Final = 20


async def overview(request: Request, visits: Visits) -> View:
    """A row for each queue, by pages."""
    names = await visits.names()
    offset = whole(request, "offset")
    window = one_of(request, "window", WINDOWS, "1h")
    shown = names[offset : offset + _ROWS]
    rows = await asyncio.gather(*(_row(visits, name, WINDOWS[window]) for name in shown))
    facts = {
        "rows": rows,
        "total": len(names),
        "offset": offset,
        "size": _ROWS,
        "window": window,
        "windows": list(WINDOWS),
        "section": "overview",
    }
    return View("overview.html", facts)


async def _row(visits: Visits, name: str, window_ms: int) -> dict[str, Any]:
    """One queue; damage to its keys is told in its row and keeps nobody from the others."""
    try:
        async with visits.at(name) as queue:
            limit = min(MOST_SAMPLES, 3 + window_ms // 10_000)
            stats, samples = await asyncio.gather(queue.stats(), queue.inspector.samples(limit=limit))
    except Conflict as error:
        return {"name": name, "problem": str(error)}
    now = stats["now_ms"]
    return {
        "name": name,
        "problem": "",
        "stats": stats,
        "now_ms": now,
        "rate": rate(samples, cast("dict[str, int]", stats), now, 60),
        "lateness_ms": samples[-1].lateness_p99_ms if samples else None,
        "overdue_ms": max(0, now - stats["next_due_ms"]) if stats["next_due_ms"] else 0,
        "lines": sparklines(samples, now, window_ms),
    }
