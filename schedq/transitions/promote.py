"""Promote due jobs, hold the promoter lease, and wake claimers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from schedq.model.records import score_ms
from schedq.model.settings import Settings
from schedq.transitions import Argument, Binding, Operation, RoundTrips, unwrap

_PROMOTE: Final = Binding("promote", "limit", "promoter_id", "lease_ms", "rest_ms")
_WAKE: Final = Binding("wake")
PROMOTER_LEASE_MS: Final = 1500
"""How long a silent promoter keeps the lease; it looks at least every second."""
MOST_PROMOTED: Final = 250
"""The most jobs that one script promotes; it blocks all other clients for about 7 µs a job."""

VACANT: Final = "vacant"
"""On the channel `due`: the leader has left; see deregister.lua."""


class Part(IntEnum):
    """A process's part in promoting a queue, the best first. `NONE`: there is no vacant part."""

    NONE = 0
    LEADER = 1
    FIRST = 2
    SECOND = 3
    RESERVE = 4


@dataclass(frozen=True, slots=True)
class Promotion:
    """The result of one look of a promoter.

    Attributes:
        is_leader: whether it holds the promoter lease; if not, nothing was done.
        now_ms: Redis's clock.
        moved: how many jobs moved to `pending`.
        has_more: whether the limit was reached and more jobs are due.
        next_due_ms: the earliest due instant left, or None.
        first_lease_end_ms: when the first lease ends, or None.
        unleased: how many entries of `processing` have no lease.
        workers: how many workers are alive.
        next_slot_ms: the earliest slot of a schedule, or None.
        woken_for: the next job in line, if jobs were waiting without a wake marker and it was set again; else ''.
        part: the caller's part.
        wait_ms: the time until a standby looks again; for the leader, for how long it may rest.
        next_group_ms: when a group needs attention next, or None.
        micros: the microseconds since `now_ms`, for the leader.
    """

    is_leader: bool
    now_ms: int
    moved: int
    has_more: bool
    next_due_ms: int | None
    first_lease_end_ms: int | None
    unleased: int
    workers: int
    next_slot_ms: int | None
    woken_for: str = ""
    part: Part = Part.LEADER
    wait_ms: int = 0
    next_group_ms: int | None = None
    micros: int = 0


def promote(queue: Settings, limit: int, holder: str = "", *, rest_ms: int | None = None) -> Operation[Promotion]:
    """Move up to `limit` due jobs; `holder` is the id of a promoter that takes or keeps the lease.

    If nothing needs the promoter, it may rest for `rest_ms`. It is called on the `due` channel if something does.
    """
    rest: Argument = "" if rest_ms is None else rest_ms
    sent = _PROMOTE(queue, limit=limit, promoter_id=holder, lease_ms=PROMOTER_LEASE_MS, rest_ms=rest)
    return Operation("promote", *sent, _read_promotion)


def promote_due(queue: Settings, limit: int) -> RoundTrips[int]:
    """Move up to `limit` due jobs to `pending`, for a queue without a promoter; returns how many."""
    moved = 0
    while limit > 0:
        count = min(limit, MOST_PROMOTED)
        (reply,) = yield [promote(queue, count)]
        found: Promotion = unwrap(reply)
        moved += found.moved
        limit = limit - max(1, found.moved) if found.has_more else 0
        if found.next_group_ms is not None and found.next_group_ms <= found.now_ms:
            from schedq.transitions import groups, stand_ins

            yield from stand_ins.look_at_all(queue)
            yield from groups.advance_all(queue)
    return moved


def _read_promotion(reply: list[Any]) -> Promotion:
    role, now, moved, more, due, end, unleased, workers, slot, woken, part, wait, group, micros = reply
    return Promotion(
        role == "HELD",
        int(now),
        int(moved),
        more == 1,
        score_ms(due) if due else None,
        score_ms(end) if end else None,
        int(unleased),
        int(workers),
        score_ms(slot) if slot else None,
        woken,
        Part(part),
        int(wait),
        score_ms(group) if group else None,
        int(micros),
    )


def wake(queue: Settings) -> Operation[bool]:
    """Set the wake marker again if jobs wait; returns whether they do."""
    return Operation("wake", *_WAKE(queue), bool)
