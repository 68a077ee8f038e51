"""How many jobs a worker may hold, and which of its queues may take the next one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from schedq.worker.order import Order


class Taker(Protocol):
    """A queue's pump, as the slots see it."""

    @property
    def is_hungry(self) -> bool:
        """Its queue may hold jobs, and it can claim them now."""
        ...

    def want(self) -> None:
        """Its queue may hold jobs; `stir` follows."""
        ...

    def stir(self) -> None:
        """Something changed: look whether there is something to do."""
        ...


class Slots:
    """The slots of one worker, shared by the pumps of its queues.

    Args:
        size: jobs that may be held at a time.
        order: whose turn it is; its queues are the pumps as they join.
    """

    def __init__(self, size: int, order: Order) -> None:
        self._size = size
        self._free = size
        self._order = order
        self._takers: list[Taker] = []
        self._held: list[int] = []
        self._suspect_is_out = False
        self._left_suspects: set[Taker] = set()
        self._watchers: list[Callable[[], None]] = []

    @property
    def free(self) -> int:
        """Slots that nobody has."""
        return self._free

    @property
    def is_any_hungry(self) -> bool:
        """Whether some queue may hold jobs that were not looked for yet."""
        return any(taker.is_hungry for taker in self._takers)

    def join(self, taker: Taker) -> None:
        """A queue's pump, after those before it in order."""
        self._takers.append(taker)
        self._held.append(0)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever slots or hunger changed."""
        self._watchers.append(watcher)

    def reserve(self, taker: Taker, share: float = 1.0) -> Reservation | None:
        """Free slots for a claim of this hungry queue, if there are any and it is its turn.

        Args:
            taker: the queue's pump.
            share: of all slots, that it takes at most.
        """
        queue = self._takers.index(taker)
        count = self._order.most(queue, self._hungry(), self._held, self._size) - self._held[queue]
        if min(count, self._free) <= 0:
            return None
        reservation = self.take(taker, min(count, math.ceil(self._size * share)))
        if self._free:
            self.changed()  # the rest is another's
        return reservation

    def take(self, taker: Taker, count: int) -> Reservation:
        """Up to `count` free slots, whoever's turn it is."""
        queue = self._takers.index(taker)
        count = min(count, self._free)
        self._free -= count
        self._held[queue] += count
        self._order.took(queue, count)
        has_suspect, self._suspect_is_out = not self._suspect_is_out, True
        return Reservation(self, queue, count, has_suspect=has_suspect)

    def freed(self, taker: Taker, *, suspect: bool) -> None:
        """A job has ended.

        While all slots are taken, or a queue is hungry, nobody listens for the markers of the others: those whose turn
        it might be are looked at before another gets the slot.
        """
        if suspect:  # others may have been passed over, of any queue
            for each in self._takers:
                each.want()
        if len(self._takers) > 1:
            for queue in self._order.overlooked(self._hungry()):
                self._takers[queue].want()
        self._give_back(self._takers.index(taker), 1, suspect=suspect)

    def passed_over(self, taker: Taker) -> None:
        """A claim had to leave suspects, as another had the right to one: look again when nobody uses it."""
        if self._suspect_is_out:
            self._left_suspects.add(taker)
        else:
            taker.want()
            self.changed()

    def unused(self, queue: int, count: int, *, suspect: bool) -> None:
        """Slots that a claim did not fill are free again, and with `suspect` the right to hold one."""
        if count:
            self._order.took(queue, -count)
        self._give_back(queue, count, suspect=suspect)

    def changed(self) -> None:
        """Tell everybody who may have waited for this."""
        for taker in self._takers:
            taker.stir()
        for watcher in self._watchers:
            watcher()

    def _hungry(self) -> list[int]:
        return [queue for queue, taker in enumerate(self._takers) if taker.is_hungry]

    def _give_back(self, queue: int, count: int, *, suspect: bool) -> None:
        if suspect:
            self._suspect_is_out = False
            for taker in self._left_suspects:
                taker.want()
            self._left_suspects.clear()
        if count or suspect:
            self._free += count
            self._held[queue] -= count
            self.changed()


class Reservation:
    """Slots that a claim on its way may fill, and perhaps the worker's one right to hold a suspect.

    Attributes:
        free: slots that are not filled yet.
        has_suspect: a suspect may be among the jobs.
    """

    def __init__(self, slots: Slots, queue: int, count: int, *, has_suspect: bool) -> None:
        self.free = count
        self.has_suspect = has_suspect
        self._slots = slots
        self._queue = queue

    def fill(self, *, suspect: bool) -> bool:
        """Put a job into a slot; False if there is none for it. Who fills it gives the slot back later."""
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
        self._slots.unused(self._queue, count, suspect=suspect)
