"""Scheduled actions of a run."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from scripts.tools.chaos.record import now


class Agenda:
    """Actions in the order of their due instants, executed when `turn` is called.

    Attributes:
        under_way: temporary conditions that have not ended yet.
    """

    def __init__(self) -> None:
        self.under_way = 0
        self._numbers = itertools.count()
        self._acts: list[tuple[float, int, Callable[[], None]]] = []

    def turn(self) -> None:
        """Execute what is due."""
        while self._acts and self._acts[0][0] <= now():
            heapq.heappop(self._acts)[2]()

    def add(self, instant: float, act: Callable[[], None]) -> None:
        """Schedule an action."""
        heapq.heappush(self._acts, (instant, next(self._numbers), act))

    def last(self, seconds: float, end: Callable[[], None]) -> None:
        """Register a condition that has begun and ends in `seconds`."""
        self.under_way += 1

        def over() -> None:
            self.under_way -= 1
            end()

        self.add(now() + seconds, over)
