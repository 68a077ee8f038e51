"""Rows about time: latency, lateness, and recovery after a worker was killed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from scripts.tools.bench import processes
from scripts.tools.bench.arena import Arena, Mark, TroubleError
from scripts.tools.bench.throughput import Figures, MakeArena

SEED = 5
LEAD_S = 4.0
"""Seconds between the first enqueue and the first due instant; doubled for engines that need longer."""


def latency(make: MakeArena, *, jobs: int, low_s: float, high_s: float) -> Figures:
    """Time from before the producer's call to the start of the handler; at most one job is in the system."""
    with make() as arena:
        kind = arena.contestant.kinds[0]
        arena.start(kind)
        arena.warm_up(kind)
        arena.produce("pace", kind, jobs, low_s, high_s, SEED)
        # Jobs of the warm-up have no reference; some engines run one of them a second time.
        return spread([(mark.at - mark.reference) * 1000 for mark in arena.marks() if mark.reference])


def spread(values_ms: Sequence[float]) -> Figures:
    """Quantiles, in ms."""
    ordered = sorted(values_ms)
    return {
        "p50 ms": statistics.median(ordered),
        "p99 ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        "max ms": ordered[-1],
    }


def delayed(make: MakeArena, *, jobs: int, seconds: float, lead_s: float = LEAD_S) -> Figures:
    """Lateness of jobs due evenly over `seconds`, or all at one instant if that is 0."""
    with make() as arena:
        kind = arena.contestant.kinds[0]
        arena.start(kind)
        arena.warm_up(kind)
        said = arena.produce("spread", kind, jobs, seconds, lead_s, SEED)
        if not said["was_too_slow"]:
            arena.wait_for(jobs, lead_s + 60)
            return _lateness(arena.marks(), jobs)
    return delayed(make, jobs=jobs, seconds=seconds, lead_s=lead_s * 2)


def _lateness(marks: Sequence[Mark], jobs: int) -> Figures:
    late_ms = [(mark.at - mark.reference) * 1000 for mark in marks]
    return spread(late_ms) | {
        "earliest ms": min(late_ms),
        "ran": float(len({mark.number for mark in marks})),
        "of": float(jobs),
        "starts": float(len(marks)),
    }


def crash(make: MakeArena, *, setting: str, patience_s: float) -> Figures:
    """SIGKILL the worker 5 s into its job while another is idle; seconds until the job starts again."""
    with make(setting=setting) as arena:
        victim = arena.start("nap")
        arena.warm_up(arena.contestant.kinds[0])
        arena.produce("nap")
        arena.wait_for(1, 90)
        arena.start("nap")
        arena.pause(5)
        arena.wait_quiet(1)
        processes.kill([victim])
        return {"s": _again(arena, time.time(), patience_s)}


def _again(arena: Arena, killed_at: float, patience_s: float) -> float | str:
    """Seconds until the job starts again; a second start before the kill does not count."""
    while True:
        before = arena.marked()
        again = [mark.at for mark in arena.marks() if mark.at > killed_at]
        if again:
            return again[0] - killed_at
        try:
            arena.wait_for(before + 1, killed_at + patience_s - time.time())
        except TroubleError:
            arena.pause(0)
            return f"no (waited {patience_s:.0f} s)"
