"""`python -m scripts.tools.pairs`, or scripts/pairs. The exit code is 1 if a row is slower."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from scripts.tools.pairs.intervals import Interval
from tests.releases import BEFORE, ROOT, unpack
from tests.servers import Server

RUN: Final = Path(__file__).with_name("rows.py")
ROWS: Final = ("one", "task", "delay", "many", "many_task", "aio", "hand", "promote", "plain", "async")
_PATIENCE_S: Final = 300


def measure(row: str, package: Path, server: Server, jobs: int | None) -> float:
    """CPU seconds per job of one run with the package in this folder, in microseconds."""
    environment = {**os.environ, "PYTHONPATH": str(package), "PAIRS_REDIS": server.url, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-P", str(RUN), row, *([] if jobs is None else [str(jobs)])],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
    )
    if done.returncode:
        raise click.ClickException(f"row {row} failed with {package}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return float(found["cpu_s"]) / int(found["jobs"]) * 1e6


def compare(row: str, packages: tuple[Path, Path], server: Server, pairs: int, jobs: int | None) -> Interval:
    """The paired ratios of one row; which version goes first alternates, after one run of each to warm up."""
    new, old = packages
    for package in packages:
        measure(row, package, server, jobs)
    ratios = []
    for number in range(pairs):
        taken = {}
        for package in (new, old) if number % 2 else (old, new):
            taken[package] = measure(row, package, server, jobs)
        ratios.append(taken[new] / taken[old])
    return Interval.of(ratios)


def _rows(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
    names = [name for name in value.split(",") if name]
    for name in names:
        if name not in ROWS:
            raise click.BadParameter(f"no row {name!r}; available: {', '.join(ROWS)}")
    return names


@click.command()
@click.argument("revision", default=BEFORE)
@click.option("--pairs", type=click.IntRange(3, 99), default=9, show_default=True, help="Pairs of runs per row.")
@click.option("--rows", callback=_rows, default=",".join(ROWS), help=f"Any of {', '.join(ROWS)}.")
@click.option("--jobs", type=click.IntRange(1), help="Jobs per run; each row has its own default.")
def main(*, revision: str, pairs: int, rows: list[str], jobs: int | None) -> None:
    """Compare the CPU time of plain jobs in this checkout with that at REVISION."""
    slower = []
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        if not unpack(revision, Path(folder)):
            raise click.ClickException(f"git has no commit {revision} here")
        print(f"ratios of CPU time, this checkout to {revision}; {pairs} pairs", flush=True)
        for row in rows:
            found = compare(row, (ROOT, Path(folder)), server, pairs, jobs)
            load = os.getloadavg()[0]
            print(f"{row:10} {found.median:5.3f} [{found.low:5.3f}, {found.high:5.3f}]   load {load:.1f}", flush=True)
            slower += [row] * found.is_slower
    if slower:
        print(f"slower: {', '.join(slower)}", file=sys.stderr)
    sys.exit(bool(slower))


if __name__ == "__main__":
    main()
