"""How many jobs a worker may hold, and which of its queues may take the next one: in strict order, or by weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from schedq.errors import UsageError
from schedq.model.checks import whole_number
from schedq.model.times import monotonic

ORDERS: Final = ("strict", "weighted")
MOST_WEIGHT: Final = 1000
_LOOK_S: Final = 0.05


class Strict:
    """A queue may take when no queue before it is ready. Queues are numbers: their positions among the arguments.

    Args:
        ranks: per queue, the smaller the earlier.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = ranks

    def allowance(self, queue: int, ready: Sequence[int], held: Sequence[int], size: int) -> int:  # noqa: ARG002
        """How many slots the queue may hold now: all, or 0 if a queue before it is ready.

        Args:
            queue: one of `ready`.
            ready: the queues that may have jobs waiting.
            held: per queue, the slots that it has.
            size: slots of the worker.
        """
        return size if all(self._ranks[queue] <= self._ranks[other] for other in ready) else 0

    def charge(self, queue: int, jobs: int) -> None:
        """The queue has taken this many slots, or gives some back: that is of no matter here."""

    def to_check(self, ready: Sequence[int]) -> Sequence[int]:
        """Queues to ask again when a slot is freed: those before one that is ready, whose markers nobody waits for."""
        last = max((self._ranks[queue] for queue in ready), default=-1)
        return [queue for queue, rank in enumerate(self._ranks) if rank < last and queue not in ready]


class Weighted:
    """Queues take jobs in proportion to their weights, for as long as they have some; none waits forever.

    Start-time fair queueing: a job moves its queue's own time on by 1/weight, and the queue whose time is the least
    has its turn. One that had nothing to do begins at the present, so that it can't save up turns (Goyal, Vin, Cheng:
    "Start-time Fair Queueing", 1997). In addition no queue holds more than its share of the slots while others want
    some, so that long jobs of one leave room for the short ones of another.

    Args:
        weights: per queue, at least 1.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = weights
        self._times = [0.0] * len(weights)
        self._present = 0.0
        self._ready: set[int] = set()
        self._looked_at = -math.inf

    def allowance(self, queue: int, ready: Sequence[int], held: Sequence[int], size: int) -> int:
        """The queue's share of the slots, if its time is the least of those that hold less than theirs."""
        self._bring_to_the_present(ready)
        total = sum(self._weights[other] for other in ready)

        def share(other: int) -> int:
            return math.ceil(size * self._weights[other] / total)

        turns = [(self._times[other], other) for other in ready if held[other] < share(other)]
        return share(queue) if turns and min(turns)[1] == queue else 0

    def charge(self, queue: int, jobs: int) -> None:
        """Move the queue's time on."""
        self._times[queue] += jobs / self._weights[queue]

    def to_check(self, ready: Sequence[int]) -> Sequence[int]:
        """All others, at times."""
        # Each costs a request: too much for every one of a thousand short jobs a second.
        if not ready or monotonic() - self._looked_at < _LOOK_S:
            return ()
        self._looked_at = monotonic()
        return [queue for queue in range(len(self._weights)) if queue not in ready]

    def _bring_to_the_present(self, ready: Sequence[int]) -> None:
        """The present is the least time of those that have jobs; a queue that joins them is not behind it."""
        now_ready = set(ready)
        if stayed := now_ready & self._ready:
            self._present = max(self._present, min(self._times[queue] for queue in stayed))
        for queue in now_ready - self._ready:
            self._times[queue] = max(self._times[queue], self._present)
        self._ready = now_ready


Order = Strict | Weighted
"""Decides which queue may take the next jobs."""


def make_order(kind: str, weights: Sequence[int]) -> Order:
    """The order of queues that have these weights.

    Args:
        kind: "strict": the heavier first, those of one weight as they are given; or "weighted": in proportion.
        weights: per queue, 1 to 1000.

    Raises:
        UsageError: there is no such order, or a weight makes no sense.
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
    """A queue's fetcher, as the capacity sees it."""

    @property
    def is_ready(self) -> bool:
        """Its queue may hold jobs, and it can claim them now."""
        ...

    def mark_ready(self) -> None:
        """Its queue may hold jobs; `notify` follows."""
        ...

    def notify(self) -> None:
        """Something changed: look whether there is something to do."""
        ...


class Capacity:
    """The slots of one worker, shared by the fetchers of its queues.

    Args:
        size: jobs that may be held at a time.
        order: whose turn it is; its queues are the fetchers as they join.
        max_jobs: jobs that may be started in all; None for any number.

    Attributes:
        size: jobs that may be held at a time.
        on_used_up: called when no more jobs may be started and the last one has ended.
    """

    def __init__(self, size: int, order: Order, max_jobs: int | None = None) -> None:
        self.size = size
        self.on_used_up: Callable[[], object] = lambda: None
        self._unheld = size
        self._startable = math.inf if max_jobs is None else max_jobs
        self._order = order
        self._consumers: list[Consumer] = []
        self._held: list[int] = []
        self._suspect_is_out = False
        self._left_suspects: set[Consumer] = set()
        self._listeners: list[Callable[[], None]] = []

    @property
    def free(self) -> int:
        """Slots that jobs may be claimed for: those that nobody has, as long as more jobs may be started."""
        return self._unheld if self._unheld <= self._startable else max(0, int(self._startable))

    @property
    def is_used_up(self) -> bool:
        """No more jobs may be started, and none is running."""
        return self._startable <= 0 and self._unheld == self.size

    def retire(self) -> None:
        """Let no more jobs be started."""
        self._startable = -self.size  # claims that are on their way may give back as many
        self._look_whether_used_up()

    @property
    def is_any_ready(self) -> bool:
        """Whether some queue may hold jobs that were not looked for yet."""
        return any(consumer.is_ready for consumer in self._consumers)

    def join(self, consumer: Consumer) -> None:
        """Add a queue's fetcher, after those of the queues before it."""
        self._consumers.append(consumer)
        self._held.append(0)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever free slots or queues that are ready changed."""
        self._listeners.append(listener)

    def reserve(self, consumer: Consumer, share: float = 1.0) -> Reservation | None:
        """Free slots for a claim of this queue, if there are any and it is its turn.

        Args:
            consumer: the queue's fetcher.
            share: of all slots, that it takes at most.
        """
        queue = self._consumers.index(consumer)
        is_alone = len(self._consumers) == 1
        most = self.size if is_alone else self._order.allowance(queue, self._ready(), self._held, self.size)
        count = most - self._held[queue]
        if min(count, self.free) <= 0:
            return None
        reservation = self.take(consumer, min(count, math.ceil(self.size * share)))
        if self.free:
            self.notify_all()  # the rest is another's
        return reservation

    def take(self, consumer: Consumer, count: int) -> Reservation:
        """Up to `count` free slots, whoever's turn it is."""
        queue = self._consumers.index(consumer)
        count = min(count, self.free)
        self._unheld -= count
        self._startable -= count
        self._held[queue] += count
        self._order.charge(queue, count)
        has_suspect, self._suspect_is_out = not self._suspect_is_out, True
        return Reservation(self, queue, count, has_suspect=has_suspect)

    def release(self, consumer: Consumer, *, suspect: bool) -> None:
        """A job has ended.

        While all slots are taken, or a queue is ready, nobody listens for the markers of the others: those whose turn
        it might be are looked at before another gets the slot.
        """
        if suspect:  # others may have been passed over, of any queue
            for each in self._consumers:
                each.mark_ready()
        if len(self._consumers) > 1:
            for queue in self._order.to_check(self._ready()):
                self._consumers[queue].mark_ready()
        self._give_back(self._consumers.index(consumer), 1, suspect=suspect)

    def passed_over(self, consumer: Consumer) -> None:
        """A claim had to leave suspects, as another had the right to one: look again when nobody uses it."""
        if self._suspect_is_out:
            self._left_suspects.add(consumer)
        else:
            consumer.mark_ready()
            self.notify_all()

    def return_unused(self, queue: int, count: int, *, suspect: bool) -> None:
        """Slots that a claim did not fill are free again, and with `suspect` the right to hold one."""
        if count:
            self._order.charge(queue, -count)
        self._startable += count
        self._give_back(queue, count, suspect=suspect)

    def notify_all(self) -> None:
        """Tell everybody who may have waited for this."""
        for consumer in self._consumers:
            consumer.notify()
        for listener in self._listeners:
            listener()

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
            self.notify_all()
        self._look_whether_used_up()

    def _look_whether_used_up(self) -> None:
        if self.is_used_up:
            self.on_used_up()


class Reservation:
    """Slots that a claim on its way may fill, and perhaps the worker's one right to hold a suspect.

    Attributes:
        free: slots that are not filled yet.
        has_suspect: a suspect may be among the jobs.
    """

    def __init__(self, capacity: Capacity, queue: int, count: int, *, has_suspect: bool) -> None:
        self.free = count
        self.has_suspect = has_suspect
        self._capacity = capacity
        self._queue = queue

    def fill(self, *, suspect: bool) -> bool:
        """Put a job into a slot; False if there is none for it. Whoever fills it gives the slot back later."""
        if self.free == 0 or (suspect and not self.has_suspect):
            return False
        self.free -= 1
        if suspect:
            self.has_suspect = False
        return True

    def let_go(self) -> None:
        """Give back what was not filled; more than once does no harm."""
        count, self.free = self.free, 0
        suspect, self.has_suspect = self.has_suspect, False
        self._capacity.return_unused(self._queue, count, suspect=suspect)
