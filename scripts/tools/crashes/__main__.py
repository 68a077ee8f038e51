"""All crash points: `python -m scripts.tools.crashes`, or scripts/crashes. The exit code is 1 if a law is broken."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from scripts.tools.crashes import matrix
from scripts.tools.crashes.inside import Stage
from scripts.tools.crashes.lines import ROLES, Killer, sample
from scripts.tools.crashes.scenes import SCENES
from scripts.tools.crashes.wire import VERBS, Bench
from tests.doors import Loop
from tests.servers import Server, announced


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Kill at every line instead of a sample.")
@click.option("--lines", default=12, show_default=True, help="Number of lines to sample per role.")
@click.option("--seed", default=1, show_default=True, help="Seed for the choice of lines and of their runs.")
@click.option("--handbook", "for_handbook", is_flag=True, help="Measure again and update the handbook's table.")
def main(*, is_all: bool, lines: int, seed: int, for_handbook: bool) -> None:
    """Interrupt requests, scripts and processes at every possible point, and report the consequences."""
    began = time.monotonic()
    announced("scripts/crashes")
    print(f"seed {seed}", flush=True)
    wrong: list[Any] = []
    with Server() as server:
        found, counts = _moves(server, wrong)
        if for_handbook:
            matrix.write(found)
        else:
            counts |= _deaths(server, wrong, None if is_all else lines, seed)
    for each in wrong:
        print(each)
    counts |= {"violations": len(wrong), "seed": seed, "seconds": round(time.monotonic() - began)}
    print(json.dumps(counts))
    sys.exit(bool(wrong))


def _moves(server: Server, wrong: list[Any]) -> tuple[matrix.Found, dict[str, int]]:
    """Cut every verb on the wire and every script at each of its calls."""
    found: matrix.Found = {"between": {}, "inside": {}, "types": {}, "memory": {}}
    counts = {"wire": 0, "script_calls": 0, "wrong_types": 0, "lines": 0}
    loop = Loop()
    bench, stage = Bench(server, loop), Stage(server, "crash-inside")
    try:
        for name in VERBS:
            cuts = list(bench.cuts(name))
            wrong += [cut for cut in cuts if cut.wrong]
            found["between"][name] = matrix.of_cuts(cuts)
            counts["wire"] += len(cuts)
        print(f"{counts['wire']} requests cut on the wire", flush=True)
        for scene in SCENES:
            points = list(stage.points(scene))
            wrong += [point for point in points if point.wrong]
            found["inside"][scene.name] = matrix.of_points(points)
            answers = stage.wrong_types(scene)
            found["types"][scene.name] = matrix.of_types(answers)
            found["memory"][scene.name] = matrix.of_memory(stage.full_memory(scene))
            counts["script_calls"] += len(points)
            counts["wrong_types"] += len(answers)
        print(f"{counts['script_calls']} scripts interrupted, {counts['wrong_types']} keys of a wrong type", flush=True)
    finally:
        bench.close()
        stage.close()
        loop.close()
    return found, counts


def _deaths(server: Server, wrong: list[Any], lines: int | None, seed: int) -> dict[str, int]:
    """Kill workers and promoters, two at a time."""
    killer = Killer(server)
    targets = [(role, target) for role in ROLES for target in sample(killer.lines(role), lines, seed)]
    with ThreadPoolExecutor(2) as pool:
        deaths = list(pool.map(lambda case: killer.kill(*case), targets))
    wrong += [death for death in deaths if death.wrong]
    killed = sum(death.is_dead for death in deaths)
    print(f"{killed} processes killed, {len(deaths) - killed} ended before they reached their line", flush=True)
    return {"lines": killed}


if __name__ == "__main__":
    main()
