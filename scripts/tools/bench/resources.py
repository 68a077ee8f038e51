"""Rows about resources: memory per delayed job, and the cost of idle workers."""

from __future__ import annotations

from scripts.tools.bench import processes
from scripts.tools.bench.throughput import Figures, MakeArena

HOUR_S = 3600


def memory(make: MakeArena, *, jobs: int) -> Figures:
    """Bytes of Redis's memory per delayed job with the payload `{"to": "user@example.com", "n": 123}`."""
    with make() as arena:
        arena.produce("letters", 100, HOUR_S)
        before = arena.store.info("memory")["used_memory"]
        arena.produce("letters", jobs, HOUR_S)
        return {"bytes/job": (arena.store.info("memory")["used_memory"] - before) / jobs}


def idle(make: MakeArena, *, workers: int, seconds: float, rest_s: float) -> Figures:
    """The cost of workers with nothing to do, while one job is due in an hour."""
    with make() as arena:
        arena.produce("letters", 1, HOUR_S)
        for _ in range(workers):
            arena.start("idle")
        arena.wait_quiet(rest_s)
        before, pids = arena.used(), arena.pids()
        with arena.tap() as tap:
            arena.pause(seconds)
        used = arena.used().since(before)
        return {
            "requests/s": (tap.requests - 1) / used.at,  # the last request is the tap's own
            "commands/s": used.commands / used.at,
            "cpu %": 100 * used.cpu_s / used.at,
            "redis %": 100 * used.redis_cpu_s / used.at,
            "pss MB": processes.pss_mb(pids),
        }
