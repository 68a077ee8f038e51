"""What the server's clock showed at any instant of a run: the machine's time plus our offset."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

TOLERANCE_MS: Final = 20.0
"""Precision of a reading: the machine's clock is compared twice a second, and it may be slewed."""


@dataclass(frozen=True, slots=True)
class Step:
    """The server's clock got a total offset of `offset_ms`: possibly from `asked` on, certainly from `seen` on."""

    asked: float
    seen: float
    offset_ms: float


class ServerTime:
    """Bounds of what the server's clock showed.

    Args:
        samples: instants of the monotonic clock, each with the machine's Unix time in ms.
        steps: steps in chronological order.
    """

    def __init__(self, samples: Sequence[tuple[float, float]], steps: Sequence[Step] = ()) -> None:
        self._instants = [instant for instant, _ in samples]
        self._bases = [unix_ms - instant * 1000 for instant, unix_ms in samples]
        begins = [float("-inf"), *(step.asked for step in steps)]
        ends = [*(step.seen for step in steps), float("inf")]
        offsets = [0.0, *(step.offset_ms for step in steps)]
        self._spans = list(zip(begins, ends, offsets, strict=True))

    def latest(self, since: float, until: float) -> float:
        """The latest time that it can have shown between the two instants, ms since the epoch."""
        return max(self._at(min(until, end)) + offset for _, end, offset in self._within(since, until))

    def earliest(self, since: float, until: float) -> float:
        """The earliest time that it can have shown."""
        return min(self._at(max(since, begin)) + offset for begin, _, offset in self._within(since, until))

    def went_ahead(self, since: float, until: float) -> float:
        """Maximum number of ms by which it was set forward between two instants; steps back are not counted."""
        spans = self._within(since, until)
        return sum(max(0.0, after[2] - before[2]) for before, after in pairwise(spans))

    def instants(self, shown_ms: float, since: float, until: float) -> list[float]:
        """When it can have shown that time between two instants; empty if a step skipped it."""
        found = []
        for begin, end, offset in self._within(since, until):
            at = (shown_ms - offset - self._bases[0]) / 1000
            at = (shown_ms - offset - self._base(at)) / 1000
            if max(begin, since) - TOLERANCE_MS / 1000 <= at <= min(end, until) + TOLERANCE_MS / 1000:
                found.append(at)
        return sorted(found)

    def reached(self, shown_ms: float, since: float, until: float) -> float:
        """The first instant at which it can have shown that time or a later one, else `until`."""
        found = [until]
        for begin, end, offset in self._within(since, until):
            at = max(begin, since, (shown_ms - offset - self._bases[0]) / 1000)
            if at <= min(end, until):
                found.append(max(begin, since, (shown_ms - offset - self._base(at)) / 1000))
        return min(found) - TOLERANCE_MS / 1000

    def stepped(self, since: float, until: float) -> bool:
        """Whether it was set between two instants."""
        return len(self._within(since, until)) > 1

    def _within(self, since: float, until: float) -> list[tuple[float, float, float]]:
        return [span for span in self._spans if span[0] <= until and span[1] >= since]

    def _at(self, instant: float) -> float:
        return instant * 1000 + self._base(instant)

    def _base(self, instant: float) -> float:
        return self._bases[min(bisect_left(self._instants, instant), len(self._instants) - 1)]
