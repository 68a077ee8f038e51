"""Failed jobs, grouped by what went wrong."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from starlette.requests import Request

from schedq.dashboard.pages.asked import query
from schedq.dashboard.pages.jobs import MOST_TYPED
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits

_LOOKED_AT: Final = 5000
"""Failed jobs, the newest: what happens now is in them."""
_EVERY_S: Final = 5.0
_MOST_GROUPS: Final = 100
"""On one page: errors that all differ would make a row of each job."""
_MASK: Final = re.compile(r"<(?:id|n|address)>")


async def failed(request: Request, visits: Visits) -> View:
    """The groups, the largest first."""
    name = request.path_params["name"]
    async with visits.at(name) as found:
        stats, errors = await asyncio.gather(found.stats(), found.inspector.errors(limit=_LOOKED_AT))
    groups = []
    for group in errors.groups[:_MOST_GROUPS]:
        part = distinctive(group.text)
        groups.append((group, part, query({"state": "failed", "error": part}) if part else ""))
    facts = {
        "queue": name,
        "section": "failed",
        "stats": stats,
        "now_ms": stats["now_ms"],
        "groups": groups,
        "more": len(errors.groups) - len(groups),
        "looked_at": errors.looked_at,
        "failed": errors.failed,
        "back": f"/queues/{name}/failed",
    }
    return View("failed.html", facts, every_s=_EVERY_S)


def distinctive(text: str) -> str:
    """The longest part that all errors of a group have as it is; '' if there is none that can be typed."""
    return max((part.strip()[:MOST_TYPED] for part in _MASK.split(text) if part.isprintable()), key=len, default="")
