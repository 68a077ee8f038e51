"""The log of a queue: how jobs ended and what operators did, filtered, from its newest entry to its oldest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request

from schedq.dashboard.rendering import PageData
from schedq.inspect.audit import LogEntry, entry_of
from schedq.model.settings import Settings
from schedq.model.tasks import task_name
from schedq.queue.queue import AsyncQueue
from schedq.queue.requests import acarry_out
from schedq.transitions import Operation, RoundTrips, identity, unwrap

_SIZES: Final = (100, 500, 1000)
_TOGETHER: Final = 100
_MOST_LOOKED: Final = 5000
_ID_CHARACTERS: Final = frozenset("0123456789-")
KINDS: Final[Mapping[str, str]] = {
    "": "all",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "refuse": "refused",
    "act": "actions",
    "schedule": "schedules",
    "stop": "stopped workers",
}
"""What begins the moves of a kind of entries, and its name; all others are actions."""


async def page(request: Request, queue: AsyncQueue) -> PageData:
    """Jobs that ended and actions of operators, newest first; only the newest ones without a filter are live."""
    given = request.query_params
    limit = next((size for size in _SIZES if given.get("limit") == str(size)), _SIZES[0])
    typed = {name: given.get(name, "").strip()[:200] for name in ("kind", "who", "task")}
    place, at = next(
        ((name, text) for name in ("before", "after") if (text := _entry_id(given.get(name, "")))), ("", "")
    )
    stats = await queue.stats()
    entries, has_more = await acarry_out(queue._client, _found(queue.settings, place, at, limit, typed))
    here = {name: text for name, text in (typed | {"limit": limit}).items() if text}
    at_oldest, at_newest = (at == "0", not has_more) if place == "after" else (not has_more, not place)

    def link(**more: str) -> str:
        return f"?{urlencode(here | more)}"

    links = [
        ("Newest", "" if at_newest else link()),
        ("Newer", link(after=entries[0].entry_id) if entries and not at_newest else ""),
        ("Older", link(before=entries[-1].entry_id) if entries and not at_oldest else ""),
        ("Oldest", "" if at_oldest else link(after="0")),
    ]
    context = {
        "now_ms": stats["now_ms"],
        "entries": entries,
        "limit": limit,
        "sizes": _SIZES,
        "kinds": KINDS,
        "typed": typed,
        "is_filtered": any(typed.values()),
        "is_moved": bool(place),
        "links": [(words, address) for words, address in links if address],
    }
    return PageData("log.html", context)


def _entry_id(text: str) -> str:
    return text if text and text[0].isdigit() and len(text) <= 41 and _ID_CHARACTERS.issuperset(text) else ""


def _found(
    queue: Settings,
    place: str,
    at: str,
    limit: int,
    typed: Mapping[str, str],
) -> RoundTrips[tuple[list[LogEntry], bool]]:
    """Entries before or after another one, newest first, and whether there are more in that direction."""
    found: list[LogEntry] = []
    looked, size = 0, max(limit + 1, 1000 if any(typed.values()) else 0)
    while looked < _MOST_LOOKED:
        edge = f"({at}" if at else "+"
        words = ("XRANGE", queue.keys.log, edge, "+") if place == "after" else ("XREVRANGE", queue.keys.log, edge, "-")
        (reply,) = yield [Operation("log", None, (), (*words, "COUNT", size), identity)]
        some = [*map(entry_of, unwrap(reply))]
        looked += len(some)
        found += yield from _matching(queue, some, typed)
        if len(found) > limit or len(some) < size:
            break
        at = some[-1].entry_id
    shown = found[:limit]
    return shown[::-1] if place == "after" else shown, len(found) > limit


def _kind(move: str) -> str:
    word = move.partition(" ")[0]
    return word if word in KINDS else "act"


def _matching(queue: Settings, entries: Sequence[LogEntry], typed: Mapping[str, str]) -> RoundTrips[list[LogEntry]]:
    """Those that match; only stored records say which task a job calls."""
    kind, who, task = typed["kind"], typed["who"], typed["task"]
    found = [entry for entry in entries if kind in ("", _kind(entry.move)) and who in entry.fields.get("who", "")]
    if not task:
        return found
    matching = []
    for first in range(0, len(found), _TOGETHER):
        some = found[first : first + _TOGETHER]
        jobs = (Operation("log", None, (), ("HGET", queue.keys.job(entry.id), "payload"), identity) for entry in some)
        replies = yield [*jobs]
        for entry, payload in zip(some, replies, strict=True):
            if task_name(payload if isinstance(payload, str) else "") == task or f"task {task} " in f"{entry.note} ":
                matching.append(entry)
    return matching
