"""Looking through the jobs of a state for those that match a filter, stretch by stretch.

A walk never skips a job that was in its place all the while, whatever comes and goes around it. It may meet one twice
where much has gone at once: callers who mind remember what they met.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from schedq import lua
from schedq.errors import UsageError
from schedq.job import JobRecord
from schedq.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING, PROCESSING
from schedq.operations import Flow, Operation, firm
from schedq.operations.filters import Filter, Spot, checked_state
from schedq.operations.views import checked_limit, listed
from schedq.settings import Settings

MOST_FOUND: Final = 150
"""Jobs that one script answers."""
STRETCH: Final = 200
"""Entries that one script looks at; of most it reads a field or two."""
MOST_LOOKED: Final = 100_000
USUALLY_LOOKED: Final = 50_000
"""Jobs that one call looks at: whoever asks is to be answered within a second."""
_WINDOW: Final = 2000
_MOST_RESTARTS: Final = 20
_AGES: Final = {
    PENDING: "enqueued_at_ms",
    DELAYED: "enqueued_at_ms",
    PROCESSING: "started_at_ms",
    COMPLETED: "completed_at_ms",
    FAILED: "last_error_at_ms",
    CANCELLED: "cancelled_at_ms",
}
"""Since when a job of a state is as old as it is."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some of the jobs that match a filter.

    Attributes:
        jobs: the jobs.
        cursor: where the next page begins; None at the end. It may be there though `jobs` is short or empty: then
            there is more to look through.
        looked: jobs that were looked at for this page.
        total: jobs that are in this state, whether they match or not.
        now_ms: when this was, ms on Redis's clock.
    """

    jobs: tuple[JobRecord, ...]
    cursor: str | None
    looked: int
    total: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one look came to.

    Attributes:
        is_moved: the entries that should stand there do not; nothing was looked at.
        began: entries of a list that come before the first one looked at; 0 of `delayed`.
        ahead: where to go on; None at the end.
    """

    is_moved: bool
    began: int
    now_ms: int
    size: int
    looked: int
    ahead: Spot | None
    found: tuple[tuple[str, str, tuple[str, ...]], ...]


def look(
    queue: Settings, spot: Spot, wanted: Filter, *, is_newest_first: bool, length: int, most: int, carry: str
) -> Operation[Stretch]:
    """Look at up to `length` entries from a spot on, until `most` match.

    Args:
        queue: where.
        spot: from where.
        wanted: what matches.
        is_newest_first: which end of a list the walk began at.
        length: most entries to look at.
        most: most matches to answer.
        carry: of each match its "id", its "payload" or "all" its fields.
    """
    order = "due" if spot.state == DELAYED else "newest" if is_newest_first else "oldest"
    older = "" if wanted.older_ms is None else wanted.older_ms
    newer = "" if wanted.newer_ms is None else wanted.newer_ms

    def read(reply: list[Any]) -> Stretch:
        word, now, size, looked, position, there = reply[:6]
        ahead = Spot(spot.state, str(position), tuple(there)) if there else None
        found = tuple((job_id, due, tuple(fields)) for job_id, due, fields in reply[6:])
        began = 0 if order == "due" else int(position) - int(looked)
        return Stretch(word == "MOVED", began, int(now), int(size), int(looked), ahead, found)

    return Operation(
        "find",
        lua.load("find"),
        (getattr(queue.keys, spot.state),),
        (
            *(queue.keys.jobs, queue.now_argument(), order, spot.state, spot.position, length, most),
            *("payload" if wanted.task and carry == "id" else carry, _AGES[spot.state], older, newer),
            *(wanted.word, wanted.text, wanted.error, *spot.there),
        ),
        read,
    )


class Walk:
    """A way through the jobs of a state.

    Attributes:
        spot: where it goes on; None at the end.
        began: entries of a list that came before the last stretch.
        restarts: how often it began anew, because where it stood was not to be found.
        size: jobs in the state when it last looked.
        now_ms: when that was, ms on Redis's clock.
    """

    def __init__(self, queue: Settings, wanted: Filter, spot: Spot, *, is_newest_first: bool, carry: str) -> None:
        self.spot: Spot | None = spot
        self.began = self.size = self.now_ms = 0
        self._queue = queue
        self._wanted = wanted
        self._is_newest_first = is_newest_first
        self._carry = carry
        self.restarts = 0

    def step(self, length: int, most: int) -> Flow[tuple[int, list[tuple[str, str, tuple[str, ...]]]]]:
        """Go on; answers how many entries were looked at, and the matches: id, due instant or '', fields."""
        while self.spot is not None:
            spot = self.spot
            (answer,) = yield [
                look(
                    self._queue,
                    spot,
                    self._wanted,
                    is_newest_first=self._is_newest_first,
                    length=length,
                    most=most,
                    carry=self._carry,
                )
            ]
            stretch: Stretch = firm(answer)
            self.size, self.now_ms = stretch.size, stretch.now_ms
            if stretch.is_moved:  # `spot` stays until its entries are found
                self.spot = yield from self._again(spot, stretch.size)
                continue
            self.spot, self.began = stretch.ahead, stretch.began
            found = [match for match in stretch.found if self._wanted.is_call(_payload(match[2]))]
            return stretch.looked, found
        return 0, []

    def shift(self, gone: int) -> None:
        """So many of the jobs behind have left their list."""
        if self.spot is not None and self.spot.state != DELAYED and gone:
            self.spot = replace(self.spot, position=str(max(0, int(self.spot.position) - gone)))

    def _again(self, spot: Spot, size: int) -> Flow[Spot]:
        """Where the entries of a spot stand now; the beginning, if they are gone: so may be what was before them."""
        expected = int(float(spot.position))
        position = yield from self.position_of(spot.there, size, expected)
        if position is not None:
            return replace(spot, position=str(position))
        self.restarts += 1
        if self.restarts > _MOST_RESTARTS:
            return Spot(spot.state, str(min(expected, size)))  # this list is not to be held on to
        return Spot(spot.state)

    def position_of(self, job_ids: Sequence[str], size: int, expected: int = 0) -> Flow[int | None]:
        """How many entries of a list come before the first of these jobs that is met; None if none of them is there."""
        assert self.spot is not None
        key = getattr(self._queue.keys, self.spot.state)
        for first in _windows(expected, size):
            (answer,) = yield [Operation("find", None, (), ("LRANGE", key, *self._span(first)), list)]
            ids = firm(answer) if self._is_newest_first else firm(answer)[::-1]
            places: dict[str, int] = {job_id: first + number for number, job_id in reversed([*enumerate(ids)])}
            for job_id in job_ids:
                if job_id in places:
                    return places[job_id]
        return None

    def _span(self, first: int) -> tuple[int, int]:
        return (first, first + _WINDOW - 1) if self._is_newest_first else (-first - _WINDOW, -first - 1)


def _windows(expected: int, size: int) -> Iterator[int]:
    """Beginnings of windows over a list: first where an entry is likely, then towards the old end, then away."""
    first = max(0, expected - _WINDOW // 2)
    yield first
    yield from (max(0, before) for before in range(first - _WINDOW, -_WINDOW, -_WINDOW))
    yield from range(first + _WINDOW, size, _WINDOW)


def _payload(fields: Sequence[str]) -> str:
    for name, value in zip(fields[::2], fields[1::2], strict=False):
        if name == "payload":
            return value
    return ""


def find(
    queue: Settings, state: str, wanted: Filter, limit: int, cursor: str | None, look: int = USUALLY_LOOKED
) -> Flow[JobPage]:
    """Jobs of a state that match: next one first of those that wait, the newest first of all others.

    Raises:
        UsageError: no such state, limit not within 1 and 1000, look not within 1 and 100,000, or a cursor of something
            else.
    """
    checked_limit(limit)
    if isinstance(look, bool) or not isinstance(look, int) or not 1 <= look <= MOST_LOOKED:
        raise UsageError(f"look must be a whole number of 1 to {MOST_LOOKED:,}, got {look!r}")
    spot = Spot(checked_state(state)) if cursor is None else Spot.of(cursor, state)
    walk = Walk(queue, wanted, spot, is_newest_first=state != PENDING, carry="all")
    jobs: dict[str, JobRecord] = {}
    looked = 0
    while walk.spot is not None and len(jobs) < limit and looked < look:
        some, found = yield from walk.step(min(STRETCH, look - looked), min(MOST_FOUND, limit - len(jobs)))
        looked += some
        jobs |= {job_id: listed(job_id, due, fields) for job_id, due, fields in found}
    ahead = None if walk.spot is None else walk.spot.text()
    return JobPage(tuple(jobs.values()), ahead, looked, walk.size, walk.now_ms)
