"""How many jobs a worker may hold, and which of its queues may take the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


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

    Order is strict: a queue may take when no queue before it is hungry.

    Args:
        size: jobs that may be held at a time.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._takers: list[Taker] = []
        self._suspect_is_out = False
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

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever slots or hunger changed."""
        self._watchers.append(watcher)

    def reserve(self, taker: Taker) -> Reservation | None:
        """All free slots for a claim, if there are any and it is this queue's turn."""
        for other in self._takers:
            if other is taker:
                break
            if other.is_hungry:
                return None
        return self.take(self._free) if self._free > 0 else None

    def take(self, count: int) -> Reservation:
        """Up to `count` free slots, whoever's turn it is."""
        count = min(count, self._free)
        self._free -= count
        has_suspect, self._suspect_is_out = not self._suspect_is_out, True
        return Reservation(self, count, has_suspect=has_suspect)

    def freed(self, *, suspect: bool) -> None:
        """A job has ended.

        While all slots are taken, or a queue is hungry, nobody listens for the markers of the queues before it: those
        are looked at before it gets the slot.
        """
        is_hungry = False
        for taker in reversed(self._takers):
            if is_hungry:
                taker.want()
            is_hungry = is_hungry or taker.is_hungry
        self.give_back(1, suspect=suspect)

    def give_back(self, count: int, *, suspect: bool) -> None:
        """Slots are free again, and with `suspect` the right to hold one."""
        if suspect:
            self._suspect_is_out = False
        if count or suspect:
            self._free += count
            self.changed()

    def changed(self) -> None:
        """Tell everybody who may have waited for this."""
        for taker in self._takers:
            taker.stir()
        for watcher in self._watchers:
            watcher()


class Reservation:
    """Slots that a claim on its way may fill, and perhaps the worker's one right to hold a suspect.

    Attributes:
        free: slots that are not filled yet.
        has_suspect: a suspect may be among the jobs.
    """

    def __init__(self, slots: Slots, count: int, *, has_suspect: bool) -> None:
        self.free = count
        self.has_suspect = has_suspect
        self._slots = slots

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
        self._slots.give_back(count, suspect=suspect)
