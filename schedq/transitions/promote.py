"""Promote due jobs, hold the promoter lease, and wake claimers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from schedq.model.records import score_ms
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation, RoundTrips, unwrap

_PROMOTE: Final = Binding("promote", "limit", "promoter_id", "lease_ms")
_WAKE: Final = Binding("wake")
PROMOTER_LEASE_MS: Final = 1500
"""How long a silent promoter is still the one; it looks every second at the least."""
MOST_PROMOTED: Final = 250
"""Jobs that one script promotes: it keeps everybody else waiting, for about 7 µs a job."""


class Part(IntEnum):
    """What a process is to a queue's promoter lease, the best first. `NONE`: there is nothing to be."""

    NONE = 0
    LEADER = 1
    FIRST = 2
    SECOND = 3
    RESERVE = 4


@dataclass(frozen=True, slots=True)
class Promotion:
    """What a promoter learned.

    Attributes:
        is_leader: it is the one that does the waking; else nothing was done.
        now_ms: Redis's clock.
        moved: jobs that came to `pending`.
        has_more: the limit was reached, more are due.
        next_due_ms: the earliest due instant left, or None.
        first_lease_end_ms: when the first lease ends, or None.
        unleased: entries of `processing` without a lease.
        workers: live workers.
        next_slot_ms: the earliest slot of a schedule, or None.
        woken_for: the next job in line, if the wake marker was gone though jobs waited, and was set again; else ''.
        part: what the caller is.
        wait_ms: until one that stands by looks again.
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


def promote(queue: Settings, limit: int, holder: str = "") -> Operation[Promotion]:
    """Move up to `limit` due jobs; `holder` is the id of a promoter that takes or keeps the lease."""
    sent = _PROMOTE(queue, limit=limit, promoter_id=holder, lease_ms=PROMOTER_LEASE_MS)
    return Operation("promote", *sent, _read_promotion)


def promote_due(queue: Settings, limit: int) -> RoundTrips[int]:
    """Move up to `limit` due jobs, for a queue without a promoter; returns how many came to `pending`."""
    moved = 0
    while limit > 0:
        count = min(limit, MOST_PROMOTED)
        (answer,) = yield [promote(queue, count)]
        found: Promotion = unwrap(answer)
        moved += found.moved
        limit = limit - count if found.has_more else 0
    return moved


def _read_promotion(reply: list[Any]) -> Promotion:
    answer, now, moved, more, due, end, unleased, workers, slot, woken, part, wait = reply
    return Promotion(
        answer == "HELD",
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
    )


def wake(queue: Settings) -> Operation[bool]:
    """Put the wake marker back if jobs wait; returns whether they do."""
    return Operation("wake", *_WAKE(queue), bool)
