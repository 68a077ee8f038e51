"""Clocks: this machine's against Redis's, whether either steps, and whether Redis's went back before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from schedq.clocks import monotonic, wall
from schedq.doctor.asking import known, plain
from schedq.doctor.finding import Finding, span
from schedq.errors import SchedqError
from schedq.operations import Flow

_LOOKS: Final = 5
_MOST_APART_MS: Final = 1000
_MOST_STEP_MS: Final = 500
_MOST_AHEAD_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Look:
    """One look at both clocks; all in ms.

    Attributes:
        server_ms: Redis's clock.
        wall_ms: this machine's clock, in the middle of the question.
        steady_ms: its monotonic clock then.
        trip_ms: how long the question took.
    """

    server_ms: float
    wall_ms: float
    steady_ms: float
    trip_ms: float

    @property
    def offset_ms(self) -> float:
        """How far Redis's clock is ahead of this machine's, give or take half the trip."""
        return self.server_ms - self.wall_ms


def look(wall: Callable[[], float] = wall, monotonic: Callable[[], float] = monotonic) -> Flow[list[Look]]:
    """Look at the clocks a few times."""
    found: list[Look] = []
    for _ in range(_LOOKS):
        began, before = monotonic(), wall()
        (time,) = yield [plain("TIME")]
        ended, after = monotonic(), wall()
        if not isinstance(time, SchedqError):
            server_ms = int(time[0]) * 1000 + int(time[1]) / 1000
            trip = 1000 * (ended - began)
            found.append(Look(server_ms, 500 * (before + after), 500 * (began + ended), trip))
    return found


def judge(looks: list[Look]) -> Iterator[Finding]:
    """The findings about the clocks, from looks in the order in which they were taken."""
    if not looks:
        return
    best = min(looks, key=lambda look: look.trip_ms)
    if abs(best.offset_ms) - best.trip_ms / 2 > _MOST_APART_MS:
        yield Finding(
            "clock-offset",
            "warning",
            f"Redis's clock is {span(abs(best.offset_ms))} {'ahead of' if best.offset_ms > 0 else 'behind'} this "
            "machine's",
            "a run_at that this machine computes is off by that; delays are not, as Redis adds them up. Programs of "
            "other make "
            "write claims by their own clock, and their reclaimers go by it",
            "let both keep time by NTP",
        )
    for first, second in pairwise(looks):
        step = (second.server_ms - first.server_ms) - (second.steady_ms - first.steady_ms)
        if abs(step) - (first.trip_ms + second.trip_ms) / 2 > _MOST_STEP_MS:
            yield Finding(
                "clock-jump",
                "warning",
                f"Redis's clock stepped {span(abs(step))} {'forward' if step > 0 else 'back'} during the examination",
                "leases and due times move by as much; renewals mend the leases, and jobs start early or late by the "
                "step",
                "let it slew, not step (chronyd, ntpd -x); do not suspend the machine",
            )


def ahead(log: str) -> Flow[tuple[int, int]]:
    """Redis's clock, and the instant of the last entry of a queue's audit stream, or 0: its ids can't go back."""
    last, time = yield [plain("XREVRANGE", log, "+", "-", "COUNT", 1), plain("TIME")]
    now = known(time, [0, 0])
    return int(now[0]) * 1000 + int(now[1]) // 1000, _instant(known(last, []))


def _instant(entries: list[Any]) -> int:
    return int(str(entries[0][0]).partition("-")[0]) if entries else 0


def judge_ahead(queue: str, now_ms: int, last_ms: int) -> Iterator[Finding]:
    """Whether the audit stream ends in the future: Redis's clock was there."""
    if now_ms and last_ms - now_ms > _MOST_AHEAD_MS:
        yield Finding(
            "clock-went-back",
            "warning",
            f"the last entry of the audit stream is {span(last_ms - now_ms)} in the future",
            "Redis's clock has gone back since, or a failover led to a server whose clock is behind: what is delayed "
            "starts "
            "late by that, leases are long",
            "let all servers keep time by NTP; it passes when the clock has caught up",
            queue=queue,
        )
