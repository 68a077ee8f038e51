"""Rows about throughput: enqueue, drain, requests per job, and the limiting factor."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence

from scripts.tools.bench.arena import Arena, Mark, Used

Figures = dict[str, float | str]
MakeArena = Callable[..., Arena]
_BUSY = 0.85
"""Share of a core's time above which the core is the limiting factor."""


def enqueue(make: MakeArena, *, verb: str, jobs: int) -> Figures:
    """Enqueue from one process: one at a time, or in bulk."""
    with make() as arena:
        before = arena.used()
        said = arena.produce(verb, arena.contestant.kinds[0], jobs)
        used = arena.used().since(before)
        return {
            "jobs/s": jobs / said["seconds"],
            "commands/job": used.commands / said["jobs"],
            "redis us/job": used.redis_cpu_s / said["jobs"] * 1e6,
        }


def drain(make: MakeArena, *, kind: str, count: int, share: float) -> Figures:
    """Fill the queue, then start a worker of `count` processes and measure how fast it drains."""
    with make() as arena:
        jobs = int(arena.contestant.jobs * count * share)
        arena.produce("fill", kind, jobs)
        at_all = arena.used()
        arena.start(kind, count)
        arena.wait_for_all(count, jobs // 4, 60)
        before = arena.used()
        arena.wait_for(jobs, 30)
        window = arena.used().since(before)
        arena.pause(0.3)  # the last jobs are being settled
        total = arena.used().since(at_all)
        return {
            "jobs/s": rate(arena.marks(), count),
            "redis %": 100 * window.redis_cpu_s / window.at,
            "workers %": 100 * window.cpu_s / window.at,
            "others %": 100 * max(0.0, window.machine_cpu_s - window.redis_cpu_s - window.cpu_s) / window.at,
            "limit": limit(window, count, os.cpu_count() or 1),
            "commands/job": total.commands / jobs,
            "redis us/job": total.redis_cpu_s / jobs * 1e6,
        }


def rate(marks: Sequence[Mark], count: int) -> float:
    """Jobs per second; with several processes, during the window in which all of them were working."""
    by_pid = Counter(mark.pid for mark in marks)
    first, last = marks[0].at, marks[-1].at
    if count > 1 and len(by_pid) == count:
        first = max(next(mark.at for mark in marks if mark.pid == pid) for pid in by_pid)
        last = min(next(mark.at for mark in reversed(marks) if mark.pid == pid) for pid in by_pid)
    within = [mark for mark in marks if first <= mark.at <= last]
    if len(within) < 2:  # one process started after the other had done everything
        within, first, last = list(marks), marks[0].at, marks[-1].at
    return (len(within) - 1) / (last - first)


def limit(window: Used, count: int, cores: int) -> str:
    """The limiting factor: Redis's core, the workers' cores, or the machine, if it has too few cores for both."""
    redis, workers, machine = (part / window.at for part in (window.redis_cpu_s, window.cpu_s, window.machine_cpu_s))
    if redis >= _BUSY:
        return "Redis's core"
    if workers >= _BUSY * count:
        return "the workers' core" + "s" * (count > 1)
    if machine >= _BUSY * cores:
        others = max(0.0, machine - redis - workers)
        return f"the machine's {cores} cores: Redis {redis:.0%}, workers {workers:.0%}, others {others:.0%}"
    return f"neither: the machine's {cores} cores are {machine / cores:.0%} busy, and they wait for each other"


def requests(make: MakeArena, *, jobs: int) -> Figures:
    """Requests per job (a script counts as one), counted in a separate run because counting costs time."""
    figures: Figures = {}
    with make() as arena:
        kind = arena.contestant.kinds[0]
        jobs = min(jobs, arena.contestant.jobs)
        verbs = ("one", "many") if arena.contestant.bulk else ("one",)
        for verb in verbs:
            with arena.tap() as tap:
                said = arena.produce(verb, kind, jobs)
            figures[{"one": "enqueue", "many": "bulk"}[verb]] = tap.requests / said["jobs"]
        waiting = len(verbs) * said["jobs"]
        with arena.tap() as tap:
            arena.start(kind)
            arena.wait_for(waiting, 60)
            arena.pause(0.3)
        figures["drain"] = tap.requests / waiting
    return figures
