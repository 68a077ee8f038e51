"""What is to be done when."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from scripts.tools.chaos.record import now


class Agenda:
    """Acts in the order of their instants, done when `turn` is called.

    Attributes:
        under_way: things that last, and are not over.
    """

    def __init__(self) -> None:
        self.under_way = 0
        self._numbers = itertools.count()
        self._acts: list[tuple[float, int, Callable[[], None]]] = []

    def turn(self) -> None:
        """Do what is due."""
        while self._acts and self._acts[0][0] <= now():
            heapq.heappop(self._acts)[2]()

    def add(self, instant: float, act: Callable[[], None]) -> None:
        """Do it then."""
        heapq.heappush(self._acts, (instant, next(self._numbers), act))

    def last(self, seconds: float, end: Callable[[], None]) -> None:
        """Something has begun that is to end in so many seconds."""
        self.under_way += 1

        def over() -> None:
            self.under_way -= 1
            end()

        self.add(now() + seconds, over)
