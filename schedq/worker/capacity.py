"""The slots of a worker, and which of its queues may take the next job: in strict order or by weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from schedq.errors import UsageError
from schedq.model.checks import whole_number
from schedq.model.times import monotonic

ORDERS: Final = ("strict", "weighted")
MOST_WEIGHT: Final = 1000
_LOOK_S: Final = 0.05
_MOST_CLAIMING: Final = 10
"""If more idle queues than this may have jobs, their wake markers are looked for with one command."""
Turn = tuple[int, int] | None
"""The queue that may claim next, and the number of slots that it may hold."""


class Strict:
    """Of the queues that are ready, the first one claims. Queues are identified by their index in the arguments.

    Args:
        ranks: the rank of each queue; the lowest claims first.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = ranks

    def turn(self, ready: Sequence[int], held: Sequence[int], size: int) -> Turn:  # noqa: ARG002
        """Return which queue may claim now, and how many slots it may hold in all; None if there is none.

        Args:
            ready: the queues that may have waiting jobs.
            held: the number of slots that each queue holds.
            size: the number of slots of the worker.
        """
        return (min(ready, key=self._ranks.__getitem__), size) if ready else None

    def charge(self, queue: int, jobs: int) -> None:
        """Do nothing: a strict order does not depend on the number of jobs."""

    def to_check(self, ready: Sequence[int]) -> Sequence[int]:
        """Return the queues to check again when a slot becomes free.

        These are the idle queues before one that is ready: nothing waits for their wake markers meanwhile.
        """
        last = max((self._ranks[queue] for queue in ready), default=-1)
        return [queue for queue, rank in enumerate(self._ranks) if rank < last and queue not in ready]


class Weighted:
    """Queues with waiting jobs claim in proportion to their weights; no queue starves.

    This is start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queueing", 1997). Each job advances the
    virtual time of its queue by 1/weight, and the queue with the lowest time claims next. An idle queue resumes at the
    present, so it can't save up turns. In addition, no queue holds more than its share of the slots while others want
    some, so that the long jobs of one queue leave room for the short jobs of another.

    Args:
        weights: the weight of each queue, at least 1.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = weights
        self._times = [0.0] * len(weights)
        self._present = 0.0
        self._ready: set[int] = set()
        self._looked_at = -math.inf

    def turn(self, ready: Sequence[int], held: Sequence[int], size: int) -> Turn:
        """Return the queue with the lowest time of all that hold less than their share, and that share."""
        self._bring_to_the_present(ready)
        total = sum(self._weights[queue] for queue in ready)
        shares = {queue: math.ceil(size * self._weights[queue] / total) for queue in ready}
        turns = [(self._times[queue], queue) for queue in ready if held[queue] < shares[queue]]
        return (min(turns)[1], shares[min(turns)[1]]) if turns else None

    def charge(self, queue: int, jobs: int) -> None:
        """Advance the queue's virtual time."""
        self._times[queue] += jobs / self._weights[queue]

    def to_check(self, ready: Sequence[int]) -> Sequence[int]:
        """Return all idle queues, at most every 0.05 s."""
        # Checking a queue costs a request, which is too much for each of a thousand short jobs a second.
        if not ready or monotonic() - self._looked_at < _LOOK_S:
            return ()
        self._looked_at = monotonic()
        return [queue for queue in range(len(self._weights)) if queue not in ready]

    def _bring_to_the_present(self, ready: Sequence[int]) -> None:
        """Set the present to the lowest time of the queues with jobs, and let queues that become ready start there."""
        now_ready = set(ready)
        if stayed := now_ready & self._ready:
            self._present = max(self._present, min(self._times[queue] for queue in stayed))
        for queue in now_ready - self._ready:
            self._times[queue] = max(self._times[queue], self._present)
        self._ready = now_ready


Order = Strict | Weighted
"""Decides which queue may claim next."""


def make_order(kind: str, weights: Sequence[int]) -> Order:
    """Return the order for queues with these weights.

    Args:
        kind: "strict": heavier queues first, and queues of equal weight as listed; or "weighted": in proportion.
        weights: the weight of each queue, 1 to 1000.

    Raises:
        UsageError: the kind or a weight is invalid.
    """
    for weight in weights:
        whole_number("the weight of a queue", weight, 1, MOST_WEIGHT)
    if kind == "strict":
        by_weight = sorted(range(len(weights)), key=lambda queue: -weights[queue])
        return Strict([by_weight.index(queue) for queue in range(len(weights))])
    if kind == "weighted":
        return Weighted(weights)
    raise UsageError(f"order must be one of {', '.join(ORDERS)}, got {kind!r}")


class Consumer(Protocol):
    """The part of a queue's fetcher that the capacity uses."""

    @property
    def is_ready(self) -> bool:
        """Its queue may contain jobs, and it can claim them now."""
        ...

    def mark_ready(self) -> None:
        """Note that the queue may contain jobs; `notify` is called afterwards."""
        ...

    def notify(self) -> None:
        """Check, after a change, whether there is something to do."""
        ...


class Capacity:
    """The slots of one worker, shared by the fetchers of its queues.

    Args:
        size: the number of slots.
        order: decides which queue may claim; its queues are the fetchers in the order in which they join.
        max_jobs: the total number of jobs that may be started; None for no limit.

    Attributes:
        size: the number of slots.
        lent: more slots, in place of those that stuck threads hold.
        on_used_up: called when no more jobs may be started and the last one has ended.
        on_check: called with queues of which those with wake markers should be marked as ready, and with what to call
            then.
    """

    def __init__(self, size: int, order: Order, max_jobs: int | None = None) -> None:
        self.size = size
        self.lent = 0
        self.on_used_up: Callable[[], object] = lambda: None
        self.on_check: Callable[[Sequence[Consumer], Callable[[], None]], object] = lambda _, then: then()
        self._unheld = size
        self._startable = math.inf if max_jobs is None else max_jobs
        self._order = order
        self._consumers: list[Consumer] = []
        self._numbers: dict[Consumer, int] = {}
        self._held: list[int] = []
        self._suspect_is_out = False
        self._left_suspects: set[Consumer] = set()
        self._listeners: list[Callable[[], None]] = []

    @property
    def free(self) -> int:
        """The number of slots for which jobs may be claimed: the free ones, limited by the jobs that may be started."""
        return self._unheld if self._unheld <= self._startable else max(0, int(self._startable))

    @property
    def is_unused(self) -> bool:
        """No slot is in use or reserved."""
        return self._unheld >= self.size

    @property
    def is_used_up(self) -> bool:
        """No more jobs may be started, and none is running."""
        return self._startable <= 0 and self._unheld >= self.size

    def lend(self, count: int) -> None:
        """Have this many slots more than `size`."""
        more, self.lent = count - self.lent, count
        self._unheld += more
        if more > 0:
            self.notify()

    def retire(self) -> None:
        """Allow no more jobs to be started."""
        self._startable = -self.size  # claims in progress may return as many
        self._look_whether_used_up()
        self.notify()

    @property
    def is_retired(self) -> bool:
        """Whether `retire` was called."""
        return self._startable < 0

    @property
    def is_any_ready(self) -> bool:
        """Whether some queue may contain jobs and was not checked since."""
        return any(consumer.is_ready for consumer in self._consumers)

    def join(self, consumer: Consumer) -> None:
        """Add a queue's fetcher. Fetchers must join in the order of their queues."""
        self._numbers[consumer] = len(self._consumers)
        self._consumers.append(consumer)
        self._held.append(0)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the free slots or the ready queues change."""
        self._listeners.append(listener)

    def reserve(self, consumer: Consumer, share: float = 1.0) -> Reservation | None:
        """Reserve free slots for a claim of this queue; None if there are none or another queue claims first.

        Args:
            consumer: the queue's fetcher.
            share: the share of all slots that it may take at most.
        """
        queue = self._numbers[consumer]
        turn = self._turn()
        count = turn[1] - self._held[queue] if turn and turn[0] == queue else 0
        if min(count, self.free) <= 0:
            return None
        reservation = self.take(consumer, min(count, math.ceil(self.size * share)))
        if self.free:
            self.notify()  # another queue may take the rest
        return reservation

    def take(self, consumer: Consumer, count: int, *, suspect: bool = True) -> Reservation:
        """Reserve up to `count` free slots, whichever queue may claim next; without `suspect`, not for suspects."""
        queue = self._numbers[consumer]
        count = min(count, self.free)
        self._unheld -= count
        self._startable -= count
        self._held[queue] += count
        self._order.charge(queue, count)
        has_suspect = suspect and not self._suspect_is_out
        self._suspect_is_out = self._suspect_is_out or has_suspect
        return Reservation(self, queue, count, has_suspect=has_suspect)

    def release(self, consumer: Consumer, *, suspect: bool) -> None:
        """Free the slot of a job that has ended.

        While all slots are taken, or a queue is ready, nothing waits for the wake markers of the other queues. The
        queues that may claim first are therefore checked before another queue gets the slot.
        """
        if suspect:  # claims of any queue may have left suspects behind
            for each in self._consumers:
                each.mark_ready()
        number = self._numbers[consumer]
        idle = self._order.to_check(self._ready()) if len(self._consumers) > 1 else ()
        if len(idle) > _MOST_CLAIMING:
            then = partial(self._give_back, number, 1, suspect=suspect)
            self.on_check([self._consumers[queue] for queue in idle], then)
            return
        for queue in idle:
            self._consumers[queue].mark_ready()
        self._give_back(number, 1, suspect=suspect)

    def pass_turn(self) -> None:
        """Let another queue claim, because the one whose turn it was has no more jobs."""
        if self.free and len(self._consumers) > 1:
            self.notify()

    def passed_over(self, consumer: Consumer) -> None:
        """Note that a claim left suspects behind, because the worker may hold only one. Check again once it is free."""
        if self._suspect_is_out:
            self._left_suspects.add(consumer)
        else:
            consumer.mark_ready()
            self.notify()

    def return_unused(self, queue: int, count: int, *, suspect: bool) -> None:
        """Free the slots that a claim did not fill and, with `suspect`, the right to hold a suspect."""
        if count:
            self._order.charge(queue, -count)
        self._startable += count
        self._give_back(queue, count, suspect=suspect)

    def notify(self) -> None:
        """Notify the fetcher that may claim next, and all listeners, of a change."""
        if turn := self._turn():
            self._consumers[turn[0]].notify()
        for listener in self._listeners:
            listener()

    def _turn(self) -> Turn:
        """Return which queue may claim next, and how many slots it may hold. One that is alone always may."""
        size = self.size + self.lent
        return (0, size) if len(self._consumers) == 1 else self._order.turn(self._ready(), self._held, size)

    def _ready(self) -> list[int]:
        return [queue for queue, consumer in enumerate(self._consumers) if consumer.is_ready]

    def _give_back(self, queue: int, count: int, *, suspect: bool) -> None:
        if suspect:
            self._suspect_is_out = False
            for consumer in self._left_suspects:
                consumer.mark_ready()
            self._left_suspects.clear()
        self._unheld += count
        self._held[queue] -= count
        if count or (suspect and self.free):
            self.notify()
        if self._startable <= 0:
            self._look_whether_used_up()

    def _look_whether_used_up(self) -> None:
        if self.is_used_up:
            self.on_used_up()


class Reservation:
    """Slots reserved for a claim in progress, perhaps with the worker's single right to hold a suspect.

    Attributes:
        free: the number of slots that are not filled yet.
        has_suspect: one of the jobs may be a suspect.
    """

    def __init__(self, capacity: Capacity, queue: int, count: int, *, has_suspect: bool) -> None:
        self.free = count
        self.has_suspect = has_suspect
        self._capacity = capacity
        self._queue = queue

    def fill(self, *, suspect: bool) -> bool:
        """Put a job into a slot; return False if there is none for it. The caller must release the slot later."""
        if self.free == 0 or (suspect and not self.has_suspect):
            return False
        self.free -= 1
        if suspect:
            self.has_suspect = False
        return True

    def let_go(self) -> None:
        """Release the unfilled slots. Calling it again has no effect."""
        count, self.free = self.free, 0
        suspect, self.has_suspect = self.has_suspect, False
        self._capacity.return_unused(self._queue, count, suspect=suspect)
