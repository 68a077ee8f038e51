"""How many jobs a worker may hold, and which of its queues may take the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Taker(Protocol):
    """A queue's pump, as the slots see it."""

    @property
    def is_hungry(self) -> bool:
        """Its queue may hold jobs."""
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
        self._size = size
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

    def reserve(self, taker: Taker) -> int:
        """Take all free slots for a claim, if it is this queue's turn; answers how many."""
        for other in self._takers:
            if other is taker:
                break
            if other.is_hungry:
                return 0
        taken, self._free = self._free, 0
        return taken

    def give_back(self, count: int) -> None:
        """Slots are free again."""
        if count:
            self._free += count
            self.changed()

    def take_suspect(self) -> bool:
        """The right to hold one suspect; False if it is out."""
        if self._suspect_is_out:
            return False
        self._suspect_is_out = True
        return True

    def give_back_suspect(self) -> None:
        """The right is free again."""
        self._suspect_is_out = False

    def changed(self) -> None:
        """Tell everybody who may have waited for this."""
        for taker in self._takers:
            taker.stir()
        for watcher in self._watchers:
            watcher()
