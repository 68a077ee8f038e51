"""Measure workflows and batches, and print a table.

    python -m scripts.tools.bench.workflows [--quick] [--only ROW[,ROW]] [--handbook]
    python -m scripts.tools.bench.workflows --peers [NAME[,NAME]] [--runs N] [--quick] [--only ROW[,ROW]] [--handbook]

Each row has the server to itself and one worker process. The load of the machine is printed. `--quick` takes a minute,
the whole about six. `--handbook` writes the table to the page about speed, unless other work was running. `--peers`
compares with other engines, each in an environment of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from scripts.tools.bench import arena, processes, report
from scripts.tools.bench.beginning import begin, ready, say
from scripts.tools.bench.machine import machine
from scripts.tools.bench.workflows import comparison
from scripts.tools.bench.workflows.flows import FLOWS, OURS, PEERS
from scripts.tools.bench.workflows.measurements import ROWS as PEER_ROWS
from scripts.tools.bench.workflows.place import APP, Place
from scripts.tools.bench.workflows.rows import FULL, QUICK, ROWS
from scripts.tools.handbook import Block
from tests.servers import Server

FOUND: Final = Path(__file__).with_name("found.json")
BLOCK: Final = Block("speed.md", "workflows")
ENVIRONMENTS: Final = arena.ROOT / ".venv" / "bench"
QUIET: Final = 2.0
"""The load of a machine on which figures may be written to the handbook: a worker and Redis cause 1.5 of it."""


@click.command()
@click.option(
    "--peers",
    is_flag=False,
    flag_value=",".join(PEERS),
    metavar="[NAME[,NAME]]",
    help=f"Measure other rows: schedq and these engines, or all of {', '.join(PEERS)}.",
)
@click.option("--quick", is_flag=True, help="Measure less of everything.")
@click.option("--only", metavar="ROW[,ROW]", help=f"Any of {', '.join(ROWS)}; with --peers, of {', '.join(PEER_ROWS)}.")
@click.option(
    "--runs", type=click.IntRange(1, 99), help="Runs with --peers; medians are shown.  [default: 3; 1 with --quick]"
)
@click.option("--handbook", "for_handbook", is_flag=True, help="Write the table to the handbook.")
def main(*, peers: str | None, quick: bool, only: str | None, runs: int | None, for_handbook: bool) -> None:
    """Measure, and print a table."""
    if peers is not None:
        names = _names(peers, PEERS, "engine")
        rows = _names(only, PEER_ROWS, "row")
        _with_peers(names, rows, runs or (1 if quick else 3), quick=quick, for_handbook=for_handbook)
        return
    if runs:
        raise click.UsageError("--runs is for --peers")
    _alone(_names(only, ROWS, "row"), quick=quick, for_handbook=for_handbook)


def _names(given: str | None, known: Iterable[str], what: str) -> list[str]:
    """The names in an option, all if it is not given.

    Raises:
        BadParameter: a name is unknown.
    """
    names = given.split(",") if given else list(known)
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"no {what} {unknown[0]!r}; available: {', '.join(known)}")
    return names


def _alone(rows: list[str], *, quick: bool, for_handbook: bool) -> None:
    found: dict[str, Any] = {"machine": machine(), "at": time.strftime("%Y-%m-%d"), "loads": [], "figures": {}}
    with Server(topology="single") as server:
        os.environ["BENCH_REDIS"] = server.url
        app = importlib.import_module(APP)
        for name in rows:
            load = round(os.getloadavg()[0], 2)
            found["loads"].append(load)
            with Place(server, app) as place:
                figures = ROWS[name](place, QUICK if quick else FULL)
            found["figures"] |= figures
            shown = ", ".join(f"{title} {report.number(value)}" for title, value in figures.items())
            say(f"{name}: {shown}  [load {load}]")
        app.queue.close()
    print(text(found))
    if for_handbook:
        if max(found["loads"]) >= QUIET or quick or rows != list(ROWS):
            raise click.ClickException("only all figures of a quiet machine go to the handbook")
        BLOCK.write(text(found))
        FOUND.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _with_peers(names: list[str], rows: list[str], runs: int, *, quick: bool, for_handbook: bool) -> None:
    environments, binary, found = begin(None, ENVIRONMENTS, quick=quick)
    try:
        made = ready(environments, (FLOWS[name] for name in (*OURS, *names)), found)
        session = comparison.Session(environments, binary, found, say)
        session.measure([row for name, row in PEER_ROWS.items() if name in rows], made, runs)
    finally:
        arena.closing.set()
        processes.end_all()
    print(comparison.text(found))
    if for_handbook:
        if why := comparison.refusal(found):
            raise click.ClickException(why)
        comparison.write(found)
    sys.exit(bool(found["troubles"]))


def text(found: dict[str, Any]) -> str:
    """The table, in Markdown."""
    here, loads = found["machine"], found["loads"]
    words = f"{found['at']}, {here['cores']} cores ({here['cpu']}), {here['system']}, CPython {here['python']}."
    rows = [(title, report.number(value)) for title, value in found["figures"].items()]
    return f"{words} Load: {min(loads):.1f} to {max(loads):.1f}.\n\n{report.table(('figure', 'schedq'), rows)}\n"


if __name__ == "__main__":
    main()
