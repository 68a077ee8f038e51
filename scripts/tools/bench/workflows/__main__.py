"""Measure workflows and batches, and print a table.

    python -m scripts.tools.bench.workflows [--quick] [--only ROW[,ROW]] [--handbook]

Each row has the server to itself and one worker process. The load of the machine is printed. `--quick` takes a minute,
the whole about six. `--handbook` writes the table to the page about speed, unless other work was running.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from scripts.tools.bench import report
from scripts.tools.bench.machine import machine
from scripts.tools.bench.workflows.place import APP, Place
from scripts.tools.bench.workflows.rows import FULL, QUICK, ROWS
from scripts.tools.handbook import Block
from tests.servers import Server

FOUND: Final = Path(__file__).with_name("found.json")
BLOCK: Final = Block("speed.md", "workflows")
QUIET: Final = 2.0
"""The load of a machine on which figures may be written to the handbook: a worker and Redis cause 1.5 of it."""


@click.command()
@click.option("--quick", is_flag=True, help="Measure less of everything.")
@click.option("--only", default=",".join(ROWS), help=f"Any of {', '.join(ROWS)}.")
@click.option("--handbook", "for_handbook", is_flag=True, help="Write the table to the handbook.")
def main(*, quick: bool, only: str, for_handbook: bool) -> None:
    """Measure, and print a table."""
    if unknown := [name for name in only.split(",") if name not in ROWS]:
        raise click.BadParameter(f"no row {unknown[0]!r}; available: {', '.join(ROWS)}")
    found: dict[str, Any] = {"machine": machine(), "at": time.strftime("%Y-%m-%d"), "loads": [], "figures": {}}
    with Server(topology="single") as server:
        os.environ["BENCH_REDIS"] = server.url
        app = importlib.import_module(APP)
        for name in only.split(","):
            load = round(os.getloadavg()[0], 2)
            found["loads"].append(load)
            with Place(server, app) as place:
                figures = ROWS[name](place, QUICK if quick else FULL)
            found["figures"] |= figures
            shown = ", ".join(f"{title} {report.number(value)}" for title, value in figures.items())
            print(f"{time.strftime('%H:%M:%S')} {name}: {shown}  [load {load}]", file=sys.stderr, flush=True)
        app.queue.close()
    print(text(found))
    if for_handbook:
        if max(found["loads"]) >= QUIET or quick or only != ",".join(ROWS):
            raise click.ClickException("only all figures of a quiet machine go to the handbook")
        BLOCK.write(text(found))
        FOUND.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def text(found: dict[str, Any]) -> str:
    """The table, in Markdown."""
    here, loads = found["machine"], found["loads"]
    words = f"{found['at']}, {here['cores']} cores ({here['cpu']}), {here['system']}, CPython {here['python']}."
    rows = [(title, report.number(value)) for title, value in found["figures"].items()]
    return f"{words} Load: {min(loads):.1f} to {max(loads):.1f}.\n\n{report.table(('figure', 'schedq'), rows)}\n"


if __name__ == "__main__":
    main()
