"""Search in all queues for a job id, a text or a header; a request looks at a bounded number of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from starlette.requests import Request

from schedq.dashboard import pages
from schedq.dashboard.across import MOST_QUEUES, depths_of, matching, typed_queue
from schedq.dashboard.queue_pool import QueuePool
from schedq.dashboard.rendering import PageData, segment
from schedq.errors import Conflict, UsageError
from schedq.inspect.queue_names import existing
from schedq.inspect.search import Filter, find
from schedq.model.keys import QueueKeys, checked_id
from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING, PROCESSING
from schedq.model.records import JobRecord
from schedq.model.settings import NO_QUEUE

_STATES: Final = (FAILED, PROCESSING, PENDING, DELAYED, COMPLETED, CANCELLED)
"""The order in which the jobs of a queue are searched."""
_KINDS: Final = {"any": "job id or text", "text": "text in payload or error", "header": "header"}
_MOST_LOOKED: Final = 50_000
_LOOKED_AT_ONCE: Final = 5_000
_MOST_FOUND: Final = 50
_MOST_S: Final = 0.6
_UNKNOWN: Final = dict.fromkeys([f"{state}_depth" for state in _STATES], 1)


async def search(request: Request, pool: QueuePool) -> PageData:
    """The job with an id, or the jobs with a text or a header; not live, because searching costs too much."""
    text = request.query_params.get("q", "").strip()[: pages.MOST_TYPED]
    kind = pages._one_of(request, "kind", _KINDS, "any")
    at, cursor = request.query_params.get("at", ""), request.query_params.get("cursor") or None
    typed = typed_queue(request)
    names = matching(await pool.names(), typed)
    context: dict[str, Any] = {
        "text": text,
        "kind": kind,
        "kinds": _KINDS,
        "typed": typed,
        "holders": (),
        "found": None,
    }
    if text and kind == "any" and not at:
        holders = await _holders(pool, names[:MOST_QUEUES], text)
        if len(holders) == 1:
            return PageData("search.html", context, location=f"/queues/{segment(holders[0])}/jobs/{segment(text)}")
        context["holders"] = holders
    if text and not context["holders"]:
        state = pages._one_of(request, "state", _STATES, _STATES[0])
        # By magnitude, because sizes change from page to page: a queue gets another place only if it changes a lot.
        depths = await depths_of(pool, names)
        sizes = {name: depths[name].total().bit_length() // 2 if name in depths else 0 for name in names}
        begin = pages._number(request, "size"), at
        later = sorted((size, name) for name, size in sizes.items() if (size, name) > begin and name != at)
        found = _Search([at] * (at in sizes) + [name for _, name in later], at, state, cursor, depths)
        await found.look(pool, Filter.of(**{"header" if kind == "header" else "text": text}))
        context["found"] = found
        here = {"q": text, "kind": kind, "queue": typed}
        context["ahead"] = (
            pages._query_string(here | found.ahead | {"size": sizes[found.ahead["at"]]}) if found.ahead else ""
        )
        context["is_first"] = not at
        context["instead"] = pages._query_string(here | {"kind": "text" if kind == "header" else "header"})
    return PageData("search.html", context)


async def _holders(pool: QueuePool, names: Sequence[str], job_id: str) -> list[str]:
    """The queues that have a job of this id."""
    try:
        checked_id(job_id)
    except UsageError:
        return []
    async with pool.open(NO_QUEUE) as queue:
        keys = {QueueKeys(name, queue.settings.tagged).job(job_id): name for name in names}
        if not queue.settings.tagged:
            there, _ = await queue._drive(existing([*keys]))
            return [name for key, name in keys.items() if key in there]
    found = []
    for key, name in keys.items():  # in a cluster, each queue is on one of several servers
        async with pool.open(name) as queue:
            if (await queue._drive(existing([key])))[0]:
                found.append(name)
    return found


@dataclass(slots=True)
class _Search:
    """A search through the jobs of queues, state by state.

    Attributes:
        names: the queues that are still to be searched, small ones first, so that no large one hides them.
        at: the one in which the search begins.
        state: the state in which it begins there.
        cursor: where in that state.
        depths: how many jobs of each state the queues have; those that are not there may have jobs of any state.
        jobs: what was found, with the names of the queues.
        looked: how many jobs were looked at.
        left: how many queues are not searched to the end.
        problems: which queues can't be searched, with the reasons.
        ahead: where to continue; {} at the end.
    """

    names: list[str]
    at: str
    state: str
    cursor: str | None
    depths: Mapping[str, Mapping[str, int]]
    jobs: list[tuple[str, JobRecord]] = field(default_factory=list)
    looked: int = 0
    left: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    ahead: dict[str, str] = field(default_factory=dict)

    async def look(self, pool: QueuePool, wanted: Filter) -> None:
        """Search until enough is found, enough jobs were looked at, or the time is over."""
        until = monotonic() + _MOST_S
        for nth, name in enumerate(self.names):
            first = _STATES.index(self.state) if name == self.at else 0
            cursor = self.cursor if name == self.at else None
            # On one server, one connection reaches all queues.
            through = NO_QUEUE if name in self.depths else name
            try:
                for state in _STATES[first:]:
                    is_over = not self.depths.get(name, _UNKNOWN)[f"{state}_depth"]
                    while not is_over:
                        if self.looked >= _MOST_LOOKED or len(self.jobs) >= _MOST_FOUND or monotonic() > until:
                            self.ahead = {"at": name, "state": state, "cursor": cursor or ""}
                            self.left = len(self.names) - nth
                            return
                        async with pool.open(through) as queue:
                            length = min(_LOOKED_AT_ONCE, _MOST_LOOKED - self.looked)
                            most = _MOST_FOUND - len(self.jobs)
                            here = queue.settings.of_queue(name)
                            page = await queue._drive(find(here, state, wanted, most, cursor, length))
                        self.looked += page.looked
                        self.jobs += [(name, job) for job in page.jobs]
                        cursor, is_over = page.cursor, page.cursor is None
            except Conflict as error:
                self.problems.append((name, str(error)))
