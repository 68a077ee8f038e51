"""The batches and chains of a queue together, as monitoring needs them."""

from __future__ import annotations

from typing import Final, NamedTuple

from schedq.model.settings import Settings
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


def open_batches(queue: Settings) -> Operation[OpenBatches]:
    """What the batches and chains that have not ended are doing."""
    return Operation("open_batches", *_OPEN_BATCHES(queue), lambda reply: OpenBatches(*map(int, reply)))
