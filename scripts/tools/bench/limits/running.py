"""Limits with real workers: how exact a rate is, how soon a free place is used, and what a limit costs a drain."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from scripts.tools.bench.throughput import Figures, MakeArena, rate
from scripts.tools.bench.timing import SEED, spread

_PROCESSES: Final = 2


def rated(make: MakeArena, *, seconds: int) -> Figures:
    """A rate of 200 a second, with two workers and always enough jobs: the most starts in any second, and the pace."""
    with make() as arena:
        jobs = 200 * seconds
        arena.produce("fill", "rated", jobs)
        arena.start("rated", _PROCESSES)
        arena.wait_for(jobs, 60)
        marks = arena.marks()
        figures: Figures = _pace([mark.at for mark in marks], "handlers")
        claims = sorted(mark.reference for mark in marks)
        return figures | (_pace(claims, "claims") if claims[0] else {})


def _pace(instants: Sequence[float], of: str) -> Figures:
    return {
        f"{of}, most in a second": float(most_in(instants, 1.0)),
        f"{of}, a second": (len(instants) - 1) / (instants[-1] - instants[0]),
    }


def most_in(instants: Sequence[float], seconds: float) -> int:
    """The most of these ascending instants in any half-open period of this length; within a tenth of a ms."""
    most = first = 0
    for number, instant in enumerate(instants):
        while instants[first] <= instant - seconds + 1e-4:
            first += 1
        most = max(most, number - first + 1)
    return most


def drained(make: MakeArena, *, kind: str, share: float) -> Figures:
    """Drain jobs under a limit by two processes."""
    with make() as arena:
        jobs = int(arena.contestant.jobs * share)
        arena.produce("fill", kind, jobs)
        arena.start(kind, _PROCESSES)
        arena.wait_for(jobs, 60)
        return {"jobs/s": rate(arena.marks(), _PROCESSES)}


def idle_key(make: MakeArena, *, backlog: int, jobs: int) -> Figures:
    """One key has a backlog and runs one job at a time: from the enqueue of another key's job to its start."""
    with make() as arena:
        arena.produce("fill", "flood", backlog)
        arena.start("idle")
        arena.produce("pace", "idle", jobs, 0.005, 0.005, SEED)
        return spread([(mark.at - mark.reference) * 1000 for mark in arena.marks() if mark.reference])


def free_place(make: MakeArena, *, jobs: int) -> Figures:
    """A key runs one job at a time, and nothing else runs: from the end of a job to the start of the next one."""
    with make() as arena:
        arena.produce("fill", "line", jobs)
        arena.start("line")
        arena.wait_for(jobs, 60)
        return spread([(mark.at - mark.reference) * 1000 for mark in arena.marks()[1:]])


def unique(make: MakeArena, *, processes: int, calls: int) -> Figures:
    """Processes enqueue a job with the same key over and over; how many jobs there are, and calls a second."""
    with make() as arena, ThreadPoolExecutor(processes) as pool:
        produce = partial(arena.produce, "one", "unique", calls)
        said = [each.result() for each in [pool.submit(produce) for _ in range(processes)]]
        arena.start("unique")
        arena.wait_for(1, 60)
        arena.pause(1)
        return {
            "jobs": float(arena.marked()),
            "calls/s": processes * calls / max(each["seconds"] for each in said),
        }
