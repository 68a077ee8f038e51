"""A clock for tests that only the test moves."""

from __future__ import annotations

import time
from typing import Final

from schedq.model.times import monotonic, wall

_REPLACED_S: Final = 1.0
"""A clock that differs by more than this from the time that has really passed was replaced."""


class VirtualTime:
    """A clock that only the test moves: Unix seconds.

    If freezegun or time-machine has replaced Python's clock, it follows that clock.
    """

    def __init__(self) -> None:
        self._start, self._started = wall(), monotonic()
        self._moved = 0.0

    def __call__(self) -> float:
        """The time now."""
        shown = time.time()
        is_real = abs(shown - self._start - (monotonic() - self._started)) < _REPLACED_S
        return (self._start if is_real else shown) + self._moved

    def move(self, seconds: float) -> None:
        """Move the clock forward."""
        self._moved += seconds
