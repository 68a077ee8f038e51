"""The life cycle of a job: its states and the moves between them, with the scripts that make each move.

`tests/laws/test_lifecycle.py` checks the scripts and the handbook's table against this one.
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
JOB_STATES: Final = (PENDING, DELAYED, PROCESSING, COMPLETED, FAILED, CANCELLED, BROKEN)
FINISHED: Final = frozenset({COMPLETED, FAILED, CANCELLED})
Cancellation = Literal["cancelled", "asked", "no"]
"""The result of cancelling: a waiting job is "cancelled", a running one "asked" to stop, any other is "no"."""
NOWHERE: Final = ""
"""The state of a job that has not been enqueued, or was trimmed, deleted or purged."""


@dataclass(frozen=True, slots=True)
class Move:
    """A transition between states.

    Attributes:
        name: the verb.
        source: the states it may start from; `NOWHERE` for a job that did not exist.
        target: the states it may end in.
        scripts: names of the Lua scripts that make the move.
    """

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    scripts: tuple[str, ...]


MOVES: Final = (
    Move("enqueue", (NOWHERE,), (PENDING, DELAYED), ("enqueue", "enqueue_unique")),
    Move("promote", (DELAYED,), (PENDING,), ("promote", "claim")),
    Move("fire", (NOWHERE,), (PENDING, DELAYED), ("fire",)),
    Move("make", (NOWHERE,), (PENDING,), ("fill_group", "settle", "advance")),
    Move("wake", (DELAYED,), (PENDING,), ("fill_group", "settle", "advance", "wake_runs", "drop_group")),
    Move("trigger", (NOWHERE,), (PENDING,), ("trigger",)),
    Move("claim", (PENDING,), (PROCESSING,), ("claim",)),
    Move("hold", (PENDING,), (PENDING,), ("claim",)),
    Move("put back", (PENDING,), (PENDING,), ("resume_task",)),
    Move("renew", (PROCESSING,), (PROCESSING,), ("renew",)),
    Move("recover", (PROCESSING,), (PROCESSING,), ("recover",)),
    Move("complete", (PROCESSING,), (COMPLETED,), ("settle",)),
    Move("retry", (PROCESSING,), (DELAYED,), ("settle",)),
    Move("fail", (PROCESSING,), (FAILED,), ("settle",)),
    Move("snooze", (PROCESSING,), (DELAYED,), ("settle",)),
    Move("release", (PROCESSING,), (PENDING,), ("settle",)),
    Move("suspend", (PROCESSING,), (DELAYED, PENDING), ("settle",)),
    Move("undo", (PROCESSING,), (PENDING,), ("settle", "reclaim")),
    Move("undo suspended", (DELAYED,), (PENDING,), ("cancel", "fire", "advance")),
    Move("stop", (PROCESSING,), (CANCELLED,), ("settle", "reclaim")),
    Move("adopt", (PROCESSING,), (PROCESSING,), ("reclaim",)),
    Move("reclaim", (PROCESSING,), (PENDING, DELAYED, FAILED), ("reclaim",)),
    Move("defer", (PENDING,), (DELAYED,), ("claim",)),
    Move("refuse", (PENDING,), (FAILED,), ("claim",)),
    Move("break", (PENDING, DELAYED, PROCESSING), (BROKEN,), ("claim", "promote", "reclaim", "fire")),
    Move("cancel", (DELAYED, PENDING), (CANCELLED,), ("cancel", "fire", "claim", "advance")),
    Move("reschedule", (DELAYED,), (DELAYED, PENDING), ("reschedule",)),
    Move("send", (DELAYED,), (PENDING,), ("send",)),
    Move("requeue", (FAILED, CANCELLED), (PENDING,), ("requeue",)),
    Move(
        "trim", (COMPLETED, FAILED, CANCELLED), (NOWHERE,), ("settle", "reclaim", "cancel", "claim", "fire", "advance")
    ),
    Move("purge", JOB_STATES, (NOWHERE,), ("purge",)),
    Move("delete", (DELAYED, PENDING, COMPLETED, FAILED, CANCELLED), (NOWHERE,), ("delete",)),
)
