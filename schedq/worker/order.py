"""Which of a worker's queues may take the next jobs: in strict order, or by weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

from schedq.clocks import monotonic
from schedq.errors import UsageError

ORDERS: Final = ("strict", "weighted")
MOST_WEIGHT: Final = 1000
_LOOK_S: Final = 0.05


class Order(Protocol):
    """Decides between queues, which are numbers here: their places among the arguments."""

    def most(self, queue: int, hungry: Sequence[int], held: Sequence[int], size: int) -> int:
        """How many slots the queue may hold now; 0 when it is another's turn.

        Args:
            queue: one of `hungry`.
            hungry: the queues that may have jobs waiting.
            held: per queue, the slots that it has.
            size: slots of the worker.
        """
        ...

    def took(self, queue: int, jobs: int) -> None:
        """The queue has taken so many slots; negative: it gives back what it did not use."""
        ...

    def overlooked(self, hungry: Sequence[int]) -> Sequence[int]:
        """Queues to be asked again as a slot gets free: while others are hungry nobody listens for their markers."""
        ...


class Strict:
    """A queue may take when no queue before it is hungry.

    Args:
        ranks: per queue, the smaller the earlier.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = ranks

    def most(self, queue: int, hungry: Sequence[int], held: Sequence[int], size: int) -> int:  # noqa: ARG002
        """All slots, if no hungry queue is before it."""
        return size if all(self._ranks[queue] <= self._ranks[other] for other in hungry) else 0

    def took(self, queue: int, jobs: int) -> None:
        """What was is of no matter."""

    def overlooked(self, hungry: Sequence[int]) -> Sequence[int]:
        """Those before a hungry one."""
        last = max((self._ranks[queue] for queue in hungry), default=-1)
        return [queue for queue, rank in enumerate(self._ranks) if rank < last and queue not in hungry]


class Weighted:
    """Queues take jobs in proportion to their weights, for as long as they have some; none waits for ever.

    Start-time fair queueing: a job moves its queue's own time on by 1/weight, and the queue whose time is the least
    has its turn. One that had nothing to do begins at the present, so that it can't save up turns (Goyal, Vin, Cheng:
    "Start-time Fair Queueing", 1997). Beside that no queue holds more than its share of the slots while others want
    some, so that long jobs of one leave room for the short ones of another.

    Args:
        weights: per queue, at least 1.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = weights
        self._times = [0.0] * len(weights)
        self._present = 0.0
        self._hungry: set[int] = set()
        self._looked_at = -math.inf

    def most(self, queue: int, hungry: Sequence[int], held: Sequence[int], size: int) -> int:
        """The queue's share of the slots, if its time is the least of those that hold less than theirs."""
        self._bring_to_the_present(hungry)
        total = sum(self._weights[other] for other in hungry)

        def share(other: int) -> int:
            return math.ceil(size * self._weights[other] / total)

        turns = [(self._times[other], other) for other in hungry if held[other] < share(other)]
        return share(queue) if turns and min(turns)[1] == queue else 0

    def took(self, queue: int, jobs: int) -> None:
        """Move the queue's time on."""
        self._times[queue] += jobs / self._weights[queue]

    def overlooked(self, hungry: Sequence[int]) -> Sequence[int]:
        """All others, at times."""
        # A request for each, so not for every one of a thousand short jobs a second.
        if not hungry or monotonic() - self._looked_at < _LOOK_S:
            return ()
        self._looked_at = monotonic()
        return [queue for queue in range(len(self._weights)) if queue not in hungry]

    def _bring_to_the_present(self, hungry: Sequence[int]) -> None:
        """The present is the least time of those that have jobs; who comes anew is not behind it."""
        now_hungry = set(hungry)
        if stayed := now_hungry & self._hungry:
            self._present = max(self._present, min(self._times[queue] for queue in stayed))
        for queue in now_hungry - self._hungry:
            self._times[queue] = max(self._times[queue], self._present)
        self._hungry = now_hungry


def order_of(kind: str, weights: Sequence[int]) -> Order:
    """The order of queues that have these weights.

    Args:
        kind: "strict": the heavier first, those of one weight as they are given; or "weighted": in proportion.
        weights: per queue, 1 to 1000.

    Raises:
        UsageError: there is no such order, or a weight makes no sense.
    """
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MOST_WEIGHT:
            raise UsageError(f"the weight of a queue must be a whole number of 1 to {MOST_WEIGHT}, got {weight!r}")
    if kind == "strict":
        by_weight = sorted(range(len(weights)), key=lambda queue: -weights[queue])
        return Strict([by_weight.index(queue) for queue in range(len(weights))])
    if kind == "weighted":
        return Weighted(weights)
    raise UsageError(f"order must be one of {', '.join(ORDERS)}, got {kind!r}")
