"""Measures the rows of `--peers`, and makes the table."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from scripts.tools.bench import processes, report
from scripts.tools.bench.arena import Arena, TroubleError
from scripts.tools.bench.entries import Contestant
from scripts.tools.bench.environments import Environments
from scripts.tools.bench.rules import median
from scripts.tools.bench.workflows.flows import FLOWS, TITLES
from scripts.tools.bench.workflows.measurements import FIGURE, FULL, QUICK, ROWS, Row
from scripts.tools.handbook import Block

FOUND: Final = Path(__file__).with_name("found_peers.json")
BLOCK: Final = Block(report.RESULTS, "workflow-peers")
PAGE: Final = Block("speed.md", "workflow-peers")
QUIET: Final = 1.5
"""The load of a machine at the start of a run whose figures may be written to the handbook."""
QUIET_OTHERS: Final = 30
"""Per cent of a core that other processes may take, on average, in such a run."""


class Session:
    """Takes the measurements; contestants take turns within each row, rows within each run."""

    def __init__(
        self,
        environments: Environments,
        binary: Path,
        found: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self._environments = environments
        self._binary = binary
        self._found = found
        self._say = say
        self._amount = QUICK if found["quick"] else FULL

    def measure(self, rows: Sequence[Row], contestants: Sequence[Contestant], runs: int) -> None:
        """Measure rows; each line of progress says what other processes took."""
        self._found |= {"load": round(os.getloadavg()[0], 2), "others": []}
        for run in range(runs):
            turn = run % len(contestants)
            order = [*contestants[turn:], *contestants[:turn]]  # so that no contestant is always first
            for row in rows:
                for entry in order:
                    if entry.name in row.who and not (run and row.is_once):
                        self._one(row, entry)

    def _one(self, row: Row, entry: Contestant) -> None:
        began, busy = time.monotonic(), _others_s()
        try:
            figures = row.figures(partial(Arena, entry, self._environments, self._binary), self._amount)
        except TroubleError as error:
            self._found["troubles"].append(f"{row.name}: {error}")
            self._say(self._found["troubles"][-1])
            return
        took = time.monotonic() - began
        others = round(100 * max(0.0, _others_s() - busy) / took)
        self._found["others"].append(others)
        self._found["figures"].setdefault(row.name, {}).setdefault(entry.name, []).append(figures)
        self._say(f"{row.name}, {entry.name}: {report.number(figures[FIGURE])}  [{took:.0f} s, others {others} %]")


def _others_s() -> float:
    """Processor seconds that processes have used that are none of this benchmark."""
    return processes.machine_cpu_s() - processes.cpu_s(processes.tree(os.getpid()))


def text(found: dict[str, Any]) -> str:
    """Machine, table and settings, in Markdown."""
    parts = [report.heading(found), _quiet(found), _table(found)]
    if missing := [*found["left_out"], *found["troubles"]]:
        parts.append("Not measured:\n\n" + "\n".join(f"- {trouble.splitlines()[0]}" for trouble in missing))
    return "\n\n".join([*parts, _settings(found)]) + "\n"


def for_handbook(found: dict[str, Any]) -> str:
    """Machine and table, in Markdown."""
    return "\n\n".join([report.heading(found), _quiet(found), _table(found)]) + "\n"


def _quiet(found: dict[str, Any]) -> str:
    others = found["others"] or [0]
    mean = sum(others) / len(others)
    return (
        f"Load at the start: {found['load']:.1f}. Other processes took {mean:.0f} % of a core, at most {max(others)} %."
    )


def _who(found: dict[str, Any]) -> list[str]:
    measured = {name for row in found["figures"].values() for name in row}
    return [name for name in FLOWS if name in measured]


def _table(found: dict[str, Any]) -> str:
    who = _who(found)
    lines = [
        (row.title, *(_cell(row, name, found["figures"][row.name]) for name in who))
        for row in ROWS.values()
        if row.name in found["figures"]
    ]
    return report.table(("figure", *(TITLES[name] for name in who)), lines)


def _cell(row: Row, name: str, measured: dict[str, Any]) -> str:
    return report.number(median(measured[name], FIGURE)) if name in measured else "n/a" if name in row.who else "–"


def _settings(found: dict[str, Any]) -> str:
    lines = []
    for name in _who(found):
        versions = ", ".join(f"{package} {version}" for package, version in found["versions"][name].items())
        entry = FLOWS[name]
        lines.append(f"- {TITLES[name]} ({versions}): {entry.set_up}. Killed: {entry.short}.")
    return "**Settings**\n\n" + "\n".join(lines)


def refusal(found: dict[str, Any]) -> str:
    """Why these figures may not go to the handbook; '' if they may."""
    missing = [f"{name} of {who}" for name, row in ROWS.items() for who in row.who if who not in _row(found, name)]
    if missing or found["quick"]:
        return f"only all figures of a full run go to the handbook; missing: {', '.join(missing) or 'a full run'}"
    others = sum(found["others"]) / len(found["others"])
    if found["load"] >= QUIET or others >= QUIET_OTHERS:
        return f"the machine was busy: load {found['load']}, others {others:.0f} % of a core"
    return ""


def _row(found: dict[str, Any], name: str) -> dict[str, Any]:
    measured: dict[str, Any] = found["figures"].get(name, {})
    return measured


def write(found: dict[str, Any]) -> None:
    """Write the results, and the tables made from them."""
    BLOCK.write(text(found))
    PAGE.write(for_handbook(found))
    FOUND.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def known() -> dict[str, Any]:
    """The results that the tables are made from."""
    found: dict[str, Any] = json.loads(FOUND.read_text())
    return found
