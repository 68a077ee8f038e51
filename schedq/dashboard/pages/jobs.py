"""The jobs of one state, by pages, filtered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import click
from starlette.requests import Request

from schedq.aio import AsyncQueue
from schedq.cli.typed import DURATION
from schedq.dashboard.pages.asked import SIZES, one_of, query, size, whole
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits
from schedq.errors import UsageError
from schedq.lifecycle import BROKEN, PLACES

ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "pending": ("cancel", "delete"),
    "delayed": ("run_now", "reschedule", "cancel", "delete"),
    "processing": ("cancel",),
    "completed": ("delete",),
    "failed": ("requeue", "delete"),
    "cancelled": ("requeue", "delete"),
    "broken": (),
}
"""What can be done to the jobs of a state."""
FILTERS: Final = ("task", "text", "error", "older", "newer")
MOST_TYPED: Final = 400
"""Characters of a filter."""


async def jobs(request: Request, visits: Visits) -> View:
    """A page of jobs; it stays true while one looks, unless it is filtered: that costs too much to be done anew."""
    name = request.path_params["name"]
    state = one_of(request, "state", PLACES, "pending")
    typed = {key: request.query_params.get(key, "").strip()[:MOST_TYPED] for key in FILTERS}
    limit, offset = size(request), whole(request, "offset")
    cursor = request.query_params.get("cursor") or None
    async with visits.at(name) as found:
        stats, rows = await asyncio.gather(found.stats(), _rows(found, state, typed, limit, offset, cursor))
    here = {"state": state, "limit": "" if limit == SIZES[0] else limit, **typed}
    ahead = {"cursor": rows["cursor"]} if rows["cursor"] else {"offset": rows["offset"]} if rows["offset"] else None
    facts = {
        "queue": name,
        "section": "jobs",
        "stats": stats,
        "now_ms": stats["now_ms"],
        "places": PLACES,
        "state": state,
        "typed": typed,
        "is_filtered": any(typed.values()),
        "is_first": cursor is None and not offset,
        "jobs": rows["jobs"],
        "notes": rows["notes"],
        "looked": rows["looked"],
        "limit": limit,
        "sizes": SIZES,
        "actions": ACTIONS[state],
        "first": query(here),
        "ahead": None if ahead is None else query({**here, **ahead}),
        "back": f"/queues/{name}/jobs{query(here)}",
    }
    return View("jobs.html", facts)


async def _rows(
    queue: AsyncQueue, state: str, typed: Mapping[str, str], limit: int, offset: int, cursor: str | None
) -> dict[str, Any]:
    """Jobs, or notes about what could not be run; and where the next page begins."""
    rows: dict[str, Any] = {"jobs": (), "notes": (), "looked": 0, "cursor": None, "offset": 0}
    if state == BROKEN:
        notes = await queue.list_broken(offset=offset, limit=limit)
        return rows | {"notes": notes, "offset": offset + limit if len(notes) == limit else 0}
    page = await queue.inspector.find(state, **criteria(typed), limit=limit, cursor=cursor)
    return rows | {"jobs": page.jobs, "looked": page.looked, "cursor": page.cursor}


def criteria(typed: Mapping[str, str]) -> dict[str, Any]:
    """What was typed into the filter, as `find` takes it.

    Raises:
        UsageError: an age is no duration.
    """
    found: dict[str, Any] = {key: typed[key] for key in ("task", "text", "error") if typed.get(key)}
    for key in ("older", "newer"):
        if typed.get(key):
            found[f"{key}_than"] = duration(typed[key])
    return found


def duration(text: str) -> timedelta:
    """A duration as people type it.

    Raises:
        UsageError: it is none.
    """
    try:
        return DURATION.convert(text, None, None)
    except click.UsageError as error:
        raise UsageError(error.format_message()) from error
