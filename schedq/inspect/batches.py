"""The batches and chains of a queue together, as monitoring needs them."""

from __future__ import annotations

from typing import Final, NamedTuple

from schedq.inspect import display
from schedq.model.groups import DAMAGED, OPEN, BatchProgress, ChildFailure
from schedq.model.settings import Settings
from schedq.model.tasks import task_call
from schedq.transitions import Binding, Operation

_OPEN_BATCHES: Final = Binding("open_batches")


class OpenBatches(NamedTuple):
    """The batches and chains that have not ended. Of more than 200, all but `total` are of 200 of them.

    Attributes:
        total: how many there are. Of more than 200, some may have ended in the last seconds of their ttl.
        seen: how many of them were looked at.
        waiting: children that are not jobs yet.
        running: children that are jobs now: waiting in the queue or running.
        stalled_ms: the longest time for which one has made no progress: no child ended, and none was added.
    """

    total: int
    seen: int
    waiting: int
    running: int
    stalled_ms: int


def batch_facts(batch: BatchProgress) -> dict[str, str | int]:
    """What tables show of a batch or a chain, by title."""
    state: str = f"{batch.status}, being filled" if batch.status in OPEN and not batch.is_closed else batch.status
    is_elsewhere = batch.stands_for and batch.status != DAMAGED
    return {
        "task": batch.task,
        "state": f"its jobs are in queue {batch.stands_for}" if is_elsewhere else state,
        "children": batch.total,
        "completed": batch.completed,
        "failed": batch.failed,
        "running": batch.running,
        "waiting": batch.waiting,
    }


def arguments(failure: ChildFailure) -> str:
    """The arguments of a child that failed, on one line; '' if it has none."""
    return display.brief(task_call("", failure.args, failure.kwargs)) if failure.args or failure.kwargs else ""


def open_batches(queue: Settings) -> Operation[OpenBatches]:
    """What the batches and chains that have not ended are doing."""
    return Operation("open_batches", *_OPEN_BATCHES(queue), lambda reply: OpenBatches(*map(int, reply)))
