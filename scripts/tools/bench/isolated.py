"""Child processes of schedq, Celery's prefork pool and RQ's work horse, in one run.

    python -m scripts.tools.bench.isolated [RUNS]

The engines take turns, three times by default, each with two processes at work and the environments of `scripts/bench`.
Figures are medians: no-op jobs a second; jobs of 0.1 s of pure computation a second, of which two cores can do 20;
milliseconds from the end of a timeout of 2 s to the start of the next job in the same slot; and the memory, as PSS, of
a process that runs a job. The load of the machine is printed.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from scripts.tools.bench import arena, processes
from scripts.tools.bench.arena import Arena
from scripts.tools.bench.entries import CONTESTANTS, Contestant
from scripts.tools.bench.environments import Environments
from scripts.tools.bench.machine import find_server
from scripts.tools.bench.throughput import rate

NAMES: Final = ("schedq", "celery", "rq_fork")
CHILDREN: Final = 2
NO_OPS: Final = {"schedq": 8000, "celery": 8000, "rq_fork": 150}
BURNS: Final = 80
TIMEOUT_S: Final = 2.0
ROWS: Final = ("no-op jobs/s", "0.1 s jobs/s", "timeout to next job, ms", "PSS of a child, MB")
Make = Callable[[], Arena]


def main(arguments: list[str]) -> int:
    """Measure, and print a table."""
    runs = int(arguments[0]) if arguments else 3
    processes.adopt_orphans()
    environments = Environments(arena.ROOT / ".venv" / "bench", _say)
    binary, server = find_server(None, _say)
    contestants = [CONTESTANTS[name] for name in NAMES]
    for each in contestants:
        environments.make(each)
    found: dict[tuple[str, str], list[float]] = {}
    print(f"load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, {server}", flush=True)
    try:
        for _ in range(runs):
            for each in contestants:
                figures = dict(zip(ROWS, measured(each, environments, binary), strict=True))
                _say(f"{each.name}: {', '.join(f'{row} {figure:,.1f}' for row, figure in figures.items())}")
                for row, figure in figures.items():
                    found.setdefault((row, each.name), []).append(figure)
    finally:
        arena.closing.set()
        processes.end_all()
    print(f"load {os.getloadavg()[0]:.2f} at the end")
    print("| " + " | ".join(("", *NAMES)) + " |\n|---|" + "---|" * len(NAMES))
    for row in ROWS:
        print("| " + " | ".join((row, *(f"{statistics.median(found[row, name]):,.1f}" for name in NAMES))) + " |")
    return 0


def measured(contestant: Contestant, environments: Environments, binary: Path | None) -> tuple[float, ...]:
    """The figures of one contestant, in the order of `ROWS`."""
    make = partial(Arena, contestant, environments, binary)
    kind = "isolated" if contestant.name == "schedq" else "plain"
    return (_drained(make, kind, NO_OPS[contestant.name]), _drained(make, "burn", BURNS), *_timed_out(make, kind))


def _drained(make: Make, kind: str, jobs: int) -> float:
    """Jobs per second while both processes work."""
    with make() as place:
        place.produce("fill", kind, jobs)
        _start(place, CHILDREN)
        place.wait_for(jobs, 60)
        return rate(place.marks(), 1)


def _timed_out(make: Make, kind: str) -> tuple[float, float]:
    """Milliseconds from the timeout of one job to the start of the next, and MB of the process of the first."""
    with make() as place:
        _start(place, 1)
        place.warm_up(kind, 3)
        place.produce("fill", "hang", 1)
        place.wait_for(1, 60)
        hang = place.marks()[0]
        size = processes.pss_mb([hang.pid])
        place.produce("fill", kind, 1)
        place.wait_for(2, 60)
        return (place.marks()[-1].at - hang.at - TIMEOUT_S) * 1000, size


def _start(place: Arena, count: int) -> None:
    """Start what runs `count` jobs at a time: RQ needs a worker for each."""
    if place.contestant.name == "rq_fork":
        for _ in range(count):
            place.start("isolated")
    else:
        place.start_one("isolated", count)


def _say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
