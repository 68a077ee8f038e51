"""Measures the rows of `--limits` and prints the figures."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from scripts.tools.bench import report
from scripts.tools.bench.arena import Arena, TroubleError
from scripts.tools.bench.entries import SCHEDQ, Contestant
from scripts.tools.bench.environments import Environments
from scripts.tools.bench.limits.rows import ROWS, TARGETS, Row, Target
from scripts.tools.bench.rules import median
from scripts.tools.handbook import Block

FOUND: Final = Path(__file__).with_name("found.json")
BLOCK: Final = Block(report.RESULTS, "limits")
PAGE: Final = Block("speed.md", "limits")
QUIET: Final = 2.0
"""The load of a machine on which figures may be written to the handbook."""


class Session:
    """Takes the measurements; contestants take turns within each row, rows within each run."""

    def __init__(
        self,
        environments: Environments,
        binary: Path,
        found: dict[str, Any],
        say: Callable[[str], None],
        *,
        is_quick: bool,
    ) -> None:
        self._environments = environments
        self._binary = binary
        self._found = found
        self._say = say
        self._is_quick = is_quick

    def measure(self, rows: list[Row], contestants: list[Contestant], runs: int) -> None:
        """Measure rows; each line of progress has the load of the machine."""
        loads = self._found.setdefault("loads", [])
        for run in range(runs):
            for row in rows:
                if run and row.is_once:
                    continue
                for entry in contestants:
                    if entry.name not in (row.who or (SCHEDQ.name,)):
                        continue
                    loads.append(round(os.getloadavg()[0], 2))
                    self._one(row, limited(entry))

    def _one(self, row: Row, entry: Contestant) -> None:
        began, measure = time.monotonic(), row.quick if self._is_quick else row.full
        try:
            figures = measure(partial(Arena, entry, self._environments, self._binary) if row.who else self._binary)
        except (TroubleError, AssertionError) as error:
            self._found["troubles"].append(f"{row.name}, {entry.name}: {error}")
            self._say(self._found["troubles"][-1])
            return
        self._found["figures"].setdefault(row.name, {}).setdefault(entry.name, []).append(figures)
        shown = ", ".join(f"{name} {report.number(value)}" for name, value in figures.items())
        load = self._found["loads"][-1]
        self._say(f"{row.name}, {entry.name}: {shown}  [{time.monotonic() - began:.0f} s, load {load}]")


def limited(entry: Contestant) -> Contestant:
    """The contestant with its app for limits."""
    return dataclasses.replace(entry, app=entry.app.replace("with_", "limited_"))


def text(found: dict[str, Any]) -> str:
    """The targets with their verdicts, and all figures, in Markdown."""
    parts = [*_heading(found), report.table(("figure", "schedq", "must reach", "verdict"), _verdicts(found))]
    for row in ROWS.values():
        if rows := found["figures"].get(row.name):
            names = list(dict.fromkeys(name for runs in rows.values() for run in runs for name in run))
            cells = [(who, *(report.number(median(runs, name)) for name in names)) for who, runs in rows.items()]
            parts.append(f"**{row.title[0].upper()}{row.title[1:]}**\n\n" + report.table(("", *names), cells))
    missing = [*found["left_out"], *found["troubles"]]
    if missing:
        parts.append("Not measured:\n\n" + "\n".join(f"- {trouble.splitlines()[0]}" for trouble in missing))
    return "\n\n".join(parts) + "\n"


def for_handbook(found: dict[str, Any]) -> str:
    """The figures that have targets, in Markdown."""
    lines = [verdict[:2] for verdict in _verdicts(found)]
    return "\n\n".join([*_heading(found), report.table(("figure", "schedq"), lines)]) + "\n"


def _heading(found: dict[str, Any]) -> tuple[str, str]:
    loads = found["loads"] or [0.0]
    return (
        report.heading(found),
        f"Load of the machine: {min(loads):.1f} to {max(loads):.1f}. Milliseconds are processor time of Redis, with "
        "reading the request\nand writing the reply; ratios are medians of alternating pairs.",
    )


def _verdicts(found: dict[str, Any]) -> list[tuple[str, ...]]:
    return [line for target in TARGETS if (line := _verdict(found["figures"], target))]


def _verdict(figures: dict[str, Any], target: Target) -> tuple[str, ...] | None:
    value = median(figures.get(target.row, {}).get(SCHEDQ.name, ()), target.figure)
    if not isinstance(value, float):
        return None
    must = f"≤ {target.most:g}" if target.most is not None else f"≥ {target.least:g}"
    is_met = value <= target.most if target.most is not None else value >= (target.least or 0)
    yardstick = median(figures.get("yardstick", {}).get(SCHEDQ.name, ()), target.yardstick)
    known = f" (a plain {target.yardstick.removesuffix(', ms')} took {report.number(yardstick)})" if yardstick else ""
    return target.title, report.number(value), must, ("met" if is_met else "**not met**") + known * (not is_met)


def write(found: dict[str, Any]) -> None:
    """Write the results, and the tables made from them.

    Raises:
        ValueError: other work was running on the machine, or a page lacks the marks of the section.
    """
    if max(found["loads"], default=0) >= QUIET:
        raise ValueError(
            f"the load of the machine was {max(found['loads'])}: figures of a busy machine are not written"
        )
    BLOCK.write(text(found))
    PAGE.write(for_handbook(found))
    FOUND.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
