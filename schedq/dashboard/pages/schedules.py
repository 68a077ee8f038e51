"""The schedules of a queue, and one of them with what became of its slots."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request

from schedq.aio import AsyncQueue
from schedq.dashboard.guard import Refusal
from schedq.dashboard.pages.asked import whole
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits
from schedq.errors import UsageError
from schedq.operations.timetable import ScheduleRecord

_ROWS: Final = 50
_NEXT: Final = 3
_MANY_NEXT: Final = 12


async def schedules(request: Request, visits: Visits) -> View:
    """A page of schedules, the one with the earliest next slot first."""
    name, offset = request.path_params["name"], whole(request, "offset")
    async with visits.at(name) as found:
        stats, records = await asyncio.gather(found.stats(), found.schedules.list(offset=offset, limit=_ROWS + 1))
        upcoming = await asyncio.gather(*(_next(found, record, _NEXT) for record in records[:_ROWS]))
    facts = {
        "queue": name,
        "section": "schedules",
        "now_ms": stats["now_ms"],
        "rows": [*zip(records, upcoming, strict=False)],
        "offset": offset,
        "size": _ROWS,
        "has_more": len(records) > _ROWS,
        "back": f"/queues/{name}/schedules",
    }
    return View("schedules.html", facts)


async def schedule(request: Request, visits: Visits) -> View:
    """One schedule.

    Raises:
        Refusal: there is none.
    """
    name, schedule_id = request.path_params["name"], request.path_params["schedule_id"]
    async with visits.at(name) as found:
        stats, record = await asyncio.gather(found.stats(), found.schedules.get(schedule_id))
        if record is None:
            raise Refusal(404, f"Queue {name} has no schedule {schedule_id}.")
        upcoming = await _next(found, record, _MANY_NEXT)
    facts = {
        "queue": name,
        "section": "schedules",
        "now_ms": stats["now_ms"],
        "schedule": record,
        "upcoming": upcoming,
        "back": f"/queues/{name}/schedules/{schedule_id}",
    }
    return View("schedule.html", facts)


async def _next(queue: AsyncQueue, record: ScheduleRecord, count: int) -> list[Any]:
    """Its next slots in its own zone; none of one that is damaged or at its end."""
    if record.state in ("damaged", "ended"):
        return []
    try:
        return [*await queue.schedules.next_slots(record.id, n=count)]
    except UsageError:
        return []  # deleted or damaged since
