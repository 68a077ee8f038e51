"""`python -m scripts.tools.takeover`, or scripts/takeover. The exit code is 1 if a limit is exceeded."""

from __future__ import annotations

import os
import sys

import click

from scripts.tools.takeover import processes, virtual
from scripts.tools.takeover.figures import HEAD, P99_S, REQUESTS_PER_S, WORST_S, Figures
from tests.servers import Server


@click.command()
@click.option("--seed", default=1, show_default=True, help="Seed of the start and kill times.")
@click.option(
    "--kills", type=click.IntRange(1), default=30, show_default=True, help="Kills per scenario with real processes."
)
@click.option(
    "--losses", type=click.IntRange(1), default=300, show_default=True, help="Losses per scenario on virtual time."
)
@click.option("--only", type=click.Choice(["processes", "virtual"]), help="Run only one half.")
def main(*, seed: int, kills: int, losses: int, only: str | None) -> None:
    """Kill the holder of a queue's promoter lease and measure how soon another process takes over.

    Real processes get a SIGKILL; up to 1,000 candidates run the same code and scripts on virtual time.
    """
    print(f"seed {seed}; at most p99 {P99_S:g} s, worst {WORST_S:g} s, {REQUESTS_PER_S:g} standby requests/s\n{HEAD}")
    misses: list[str] = []

    def tell(found: Figures) -> None:
        print(f"{found.line()}   load {os.getloadavg()[0]:.1f}", flush=True)
        misses.extend(found.misses)

    with Server() as server:
        if only != "processes":
            for count in (2, 20, 80, 1000):
                for spread_s in (0.0, 60.0):
                    tell(virtual.run(server, count, losses, seed, spread_s=spread_s))
            for count in (80, 1000):
                tell(virtual.run(server, count, losses, seed, beats=True))
            for count in (2, 80):
                tell(virtual.run(server, count, losses, seed, pause_s=(0.0, 1.0)))
            tell(virtual.run(server, 80, 40, seed, beats=True, pause_s=(0.0, 1.0), replaces=False))
        if only != "virtual":
            for scenario in processes.SCENARIOS:
                tell(processes.run(server, scenario, kills, seed))
    for miss in misses:
        print(miss, file=sys.stderr)
    sys.exit(bool(misses))


if __name__ == "__main__":
    main()
