"""What prevented a process from renewing its leases, and for how long: injected faults, and the machine itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from scripts.tools.chaos.faults import SERVER, Fault

STILL: Final = "stood_still"
_RECOVERY_S: Final = 0.5
"""Seconds after the end of a fault within which connections are restored."""
HARMLESS: Final = ("clock_step", "memory_squeeze", "script_flush", "loop_block")
"""Faults that don't prevent renewals."""
Interval = tuple[float, float, str]


class Stalls:
    """Intervals in which processes could not reach the server.

    Args:
        faults: the injected faults.
        gaps: process → intervals in which it was frozen.
        everyone: processes whose gaps stop all others: the director, which carries the network.
        stills: intervals in which the server did not respond.
    """

    def __init__(
        self,
        faults: Iterable[Fault],
        gaps: Mapping[str, Sequence[tuple[float, float]]],
        everyone: Iterable[str] = (),
        stills: Sequence[tuple[float, float]] = (),
    ) -> None:
        self._own: dict[str, list[Interval]] = defaultdict(list)
        for fault in faults:
            if fault.kind not in HARMLESS:
                self._own[fault.target].append((fault.since, fault.until + _RECOVERY_S, fault.kind))
        for process, stretches in gaps.items():
            self._own[process] += [(since, until, STILL) for since, until in stretches]
        for process in everyone:
            self._own[SERVER] += self._own.pop(process, [])
        self._own[SERVER] += [(since, until, STILL) for since, until in stills]

    def within(self, process: str, since: float, until: float) -> float:
        """Seconds between the two instants in which the process could not reach it."""
        return sum(end - begin for begin, end in _merged(self._overlapping(process, since, until)))

    def longest(self, process: str, since: float, until: float) -> str:
        """The main cause; an injected fault precedes the gap that a frozen process records about itself. '' if none."""
        shares: dict[str, float] = defaultdict(float)
        for begin, end, kind in self._overlapping(process, since, until):
            shares[kind] += end - begin
        return max(shares, key=lambda kind: (kind != STILL, shares[kind]), default="")

    def of_anyone(self, since: float, until: float) -> float:
        """Seconds in which any process was frozen without an injected fault."""
        found = [
            (max(begin, since), min(end, until))
            for stretches in self._own.values()
            for begin, end, kind in stretches
            if kind == STILL and begin < until and end > since
        ]
        return sum(end - begin for begin, end in _merged((begin, end, STILL) for begin, end in found))

    def _overlapping(self, process: str, since: float, until: float) -> list[Interval]:
        return [
            (max(begin, since), min(end, until), kind)
            for stretches in (self._own.get(process, ()), self._own[SERVER])
            for begin, end, kind in stretches
            if begin < until and end > since
        ]


def _merged(stretches: Iterable[Interval]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    last = -math.inf
    for begin, end, _ in sorted(stretches):
        if begin > last:
            merged.append((begin, end))
        elif end > last:
            merged[-1] = (merged[-1][0], end)
        last = max(last, end)
    return merged
