"""`python -m scripts.tools.pairs`, or scripts/pairs. The exit code is 1 if a row is slower."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from scripts.tools.pairs import costs
from scripts.tools.pairs.intervals import Interval
from scripts.tools.pairs.runs import run
from tests.releases import BEFORE, ROOT, unpack
from tests.servers import Server

ROWS: Final = ("one", "task", "delay", "many", "many_task", "aio", "hand", "promote", "plain", "async")


def measure(row: str, package: Path, server: Server, jobs: int | None) -> float:
    """CPU microseconds per job of one run with the package in this folder."""
    found = run("rows.py", row, package, server, jobs)
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
@click.option("--parts", is_flag=True, help="Measure what each part of schedq costs a job that uses it, instead.")
@click.option("--handbook", "for_handbook", is_flag=True, help="With --parts: write the handbook's table.")
def main(*, revision: str, pairs: int, rows: list[str], jobs: int | None, parts: bool, for_handbook: bool) -> None:
    """Compare the CPU time of plain jobs in this checkout with that at REVISION."""
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        if parts:
            _show_parts(server, pairs, jobs or 3000, for_handbook=for_handbook)
            return
        if not unpack(revision, Path(folder)):
            raise click.ClickException(f"git has no commit {revision} here")
        print(f"ratios of CPU time, this checkout to {revision}; {pairs} pairs", flush=True)
        slower = [row for row in rows if _is_slower(row, Path(folder), server, pairs, jobs)]
    if slower:
        print(f"slower: {', '.join(slower)}", file=sys.stderr)
    sys.exit(bool(slower))


def _is_slower(row: str, old: Path, server: Server, pairs: int, jobs: int | None) -> bool:
    found = compare(row, (ROOT, old), server, pairs, jobs)
    load = os.getloadavg()[0]
    print(f"{row:10} {found.median:5.3f} [{found.low:5.3f}, {found.high:5.3f}]   load {load:.1f}", flush=True)
    return found.is_slower


def _show_parts(server: Server, pairs: int, jobs: int, *, for_handbook: bool) -> None:
    found = []
    for cost in costs.measure(server, pairs, jobs):
        found.append(cost)
        print(f"{cost.part:16} {cost.more_us:+6.1f} us  {cost.ratio:5.2f}   {cost.commands:+.2f} commands", flush=True)
    text = costs.table(found, pairs, jobs)
    print(f"\n{text}")
    if for_handbook:
        costs.BLOCK.write(text)


if __name__ == "__main__":
    main()
