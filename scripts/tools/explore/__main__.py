"""`scripts/explore`: all scenarios, the engine with each bug in turn, and the model; prints a JSON line at the end."""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import SimpleQueue
from typing import Final

from scripts.tools.explore.bug import broken
from scripts.tools.explore.bugs import BUGS
from scripts.tools.explore.scenarios import SCENARIOS
from scripts.tools.explore.search import Report, Scenario, Search
from scripts.tools.explore.world import World
from tests.doors import Loop
from tests.servers import Server, announced
from tests.transitions import gates_walk
from tests.transitions.test_any_order import go

CI_SCHEDULES: Final = 500
CI_RUNS: Final = 450
RUNS_FOR_A_WALK: Final = 20
"""How many runs of the model there are for one walk through a queue with gates, which takes as long."""
BUG_SCHEDULES: Final = 3_000
_WORLDS: Final[list[World]] = []


def main(argv: Sequence[str]) -> int:
    """Search; returns 0 if the engine kept every law and every bug was detected."""
    options = _options(argv)
    scenarios = [scenario for scenario in SCENARIOS if options.scenario in scenario.name]
    if not scenarios:
        sys.exit(
            f"no scenario's name contains {options.scenario!r}; available: " + ", ".join(s.name for s in SCENARIOS)
        )
    bugs = [bug for bug in BUGS if not options.scenario]
    announced("scripts/explore")
    print(f"seed {options.seed}, {len(scenarios)} scenarios, at most {options.schedules:,} schedules each", flush=True)
    began = time.perf_counter()
    with ExitStack() as stack:
        places: SimpleQueue[str] = SimpleQueue()
        for _ in range(options.processes):
            places.put(stack.enter_context(Server()).socket_path)
        pool = stack.enter_context(ProcessPoolExecutor(options.processes, initializer=_begin, initargs=(places,)))
        searches = [pool.submit(_search, scenario.name, options.seed, options.schedules) for scenario in scenarios]
        walk = pool.submit(_walk, options.runs, options.seed) if options.runs else None
        walks = [pool.submit(_walk_gates, options.seed + number) for number in range(options.runs // RUNS_FOR_A_WALK)]
        hunts = [pool.submit(_hunt, number, options.seed) for number in range(len(bugs))]
        reports = []
        for search in searches:
            report, seconds = search.result()
            reports.append(report)
            _tell(report, seconds)
        caught = [hunt.result() for hunt in hunts]
        steps = walk.result() if walk is not None else 0
        gate_steps = sum(each.result() for each in walks)
    for bug, said in zip(bugs, caught, strict=True):
        print(f"{'detected' if said else 'MISSED  '}  {bug.script}: {bug.name}  {said}")
    facts = _summary(reports) | {
        "model_steps": steps,
        "gate_steps": gate_steps,
        "bugs": len(bugs),
        "bugs_caught": sum(map(bool, caught)),
    }
    print(json.dumps(facts | {"seconds": round(time.perf_counter() - began, 1), "seed": options.seed}))
    return int(facts["violations"] > 0 or not all(caught))


def _summary(reports: Sequence[Report]) -> dict[str, int]:
    return {
        "schedules": sum(report.schedules for report in reports),
        "scenarios": len(reports),
        "whole": sum(report.is_whole for report in reports),
        "requests": sum((report.moves for report in reports), Counter()).total(),
        "violations": sum(len(report.violations) for report in reports),
    }


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/explore", description=__doc__)
    parser.add_argument("--ci", action="store_true", help="at least 100,000 schedules in a few minutes")
    parser.add_argument(
        "--schedules", type=int, default=50_000, help="maximum number of schedules per scenario [50000]"
    )
    parser.add_argument("--runs", type=int, default=1000, help="runs of the model, 50 steps each [1000]")
    parser.add_argument("--scenario", default="", help="only scenarios whose name contains this, without bugs")
    parser.add_argument(
        "--seed", type=int, default=None, help="seed for choosing schedules where a scenario has more than that"
    )
    parser.add_argument("--processes", type=int, default=2, help="parallel searches, each with its own server [2]")
    options = parser.parse_args(argv)
    if options.ci:
        options.schedules, options.runs = CI_SCHEDULES, CI_RUNS
    if options.scenario:
        options.runs = 0
    if options.seed is None:
        options.seed = random.randrange(10**6)
    return options


def _begin(places: SimpleQueue[str]) -> None:
    """Initialize a process of the pool: take a server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops this process
    _WORLDS.append(World(places.get()))


def _search(name: str, seed: int, most: int) -> tuple[Report, float]:
    began = time.perf_counter()
    scenario = _named(name)
    most = sys.maxsize if scenario.must_be_whole else most
    return Search(_WORLDS[0], scenario, seed=seed, most=most).run(), time.perf_counter() - began


def _hunt(number: int, seed: int) -> str:
    """The violation that reveals the bug; '' if there is none."""
    bug = BUGS[number]
    with broken(bug):
        report = Search(_WORLDS[0], _named(bug.scenario), seed=seed, most=BUG_SCHEDULES).run()
    return f"after {report.schedules} schedules: {report.violations[0][0]}" if report.violations else ""


def _walk(runs: int, seed: int) -> int:
    """Number of steps for which the queue and the model agreed."""
    loop = Loop()
    try:
        with Server() as server:
            return go(server, loop, runs=runs, seed=seed)
    finally:
        loop.close()


def _walk_gates(seed: int) -> int:
    """Number of steps of a walk through a queue with gates."""
    with Server() as server:
        return gates_walk.go(server, seed)


def _named(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


def _tell(report: Report, seconds: float) -> None:
    how_many = f"{report.schedules:,}" + (" (all)" if report.is_whole else "")
    print(f"{report.scenario:50} {how_many:>14} schedules  {seconds:5.1f} s", flush=True)
    for complaint, path in report.violations:
        print(f"  VIOLATION: {complaint}")
        for step in path:
            print(f"    {step}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
