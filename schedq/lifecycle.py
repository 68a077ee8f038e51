"""A job's life: every place it can be in and every move between them, with the script that makes the move.

This table is the one truth. `tests/test_lifecycle.py` holds the scripts and README's picture against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

PENDING: Final = "pending"
DELAYED: Final = "delayed"
PROCESSING: Final = "processing"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
BROKEN: Final = "broken"

PLACES: Final = (PENDING, DELAYED, PROCESSING, COMPLETED, FAILED, CANCELLED, BROKEN)
FINISHED: Final = frozenset({COMPLETED, FAILED, CANCELLED})
Cancellation = Literal["cancelled", "asked", "no"]
"""What cancelling came to: it waited and is cancelled; it runs and was asked to stop; it is finished or not there."""
NOWHERE: Final = ""
"""Where a job is before it is enqueued and after it is trimmed or purged."""


@dataclass(frozen=True, slots=True)
class Move:
    """One way from place to place.

    Attributes:
        name: the verb.
        source: places it may start from; `NOWHERE` for a job that did not exist.
        target: places it may end in.
        scripts: names of the Lua scripts that make it.
    """

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    scripts: tuple[str, ...]


MOVES: Final = (
    Move("enqueue", (NOWHERE,), (PENDING, DELAYED), ("enqueue",)),
    Move("promote", (DELAYED,), (PENDING,), ("promote", "claim")),
    Move("fire", (NOWHERE,), (PENDING, DELAYED), ("fire",)),
    Move("trigger", (NOWHERE,), (PENDING,), ("trigger",)),
    Move("claim", (PENDING,), (PROCESSING,), ("claim",)),
    Move("renew", (PROCESSING,), (PROCESSING,), ("renew",)),
    Move("recover", (PROCESSING,), (PROCESSING,), ("recover",)),
    Move("complete", (PROCESSING,), (COMPLETED,), ("settle",)),
    Move("retry", (PROCESSING,), (DELAYED,), ("settle",)),
    Move("fail", (PROCESSING,), (FAILED,), ("settle",)),
    Move("snooze", (PROCESSING,), (DELAYED,), ("settle",)),
    Move("release", (PROCESSING,), (PENDING,), ("settle",)),
    Move("stop", (PROCESSING,), (CANCELLED,), ("settle", "reclaim")),
    Move("adopt", (PROCESSING,), (PROCESSING,), ("reclaim",)),
    Move("reclaim", (PROCESSING,), (PENDING, DELAYED, FAILED), ("reclaim",)),
    Move("defer", (PENDING,), (DELAYED,), ("claim",)),
    Move("refuse", (PENDING,), (FAILED,), ("claim",)),
    Move("break", (PENDING, DELAYED, PROCESSING), (BROKEN,), ("claim", "promote", "reclaim", "fire")),
    Move("cancel", (DELAYED, PENDING), (CANCELLED,), ("cancel", "fire")),
    Move("reschedule", (DELAYED,), (DELAYED, PENDING), ("reschedule",)),
    Move("requeue", (FAILED, CANCELLED), (PENDING,), ("requeue",)),
    Move("trim", (COMPLETED, FAILED, CANCELLED), (NOWHERE,), ("settle", "reclaim", "cancel", "claim", "fire")),
    Move("purge", PLACES, (NOWHERE,), ("purge",)),
    Move("delete", (DELAYED, PENDING, COMPLETED, FAILED, CANCELLED), (NOWHERE,), ("delete",)),
)
