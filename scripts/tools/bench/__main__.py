"""Benchmark schedq, the server's own limits and, with --peers, other job engines: `scripts/bench`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from scripts.tools.bench import arena, page, processes, report
from scripts.tools.bench.beginning import begin, ready, say
from scripts.tools.bench.entries import CONTESTANTS, PEERS, SCHEDQ
from scripts.tools.bench.limits import rows as limit_rows
from scripts.tools.bench.limits import session as limits
from scripts.tools.bench.rows import ROWS, Row
from scripts.tools.bench.session import Session

OTHERS = ("limit", "scale")
"""Rows that do not belong to a contestant."""


def _names(known: list[str], what: str) -> Any:
    def read(_context: click.Context, _option: click.Parameter, value: str | None) -> list[str]:
        names = [name for name in (value or "").split(",") if name]
        for name in names:
            if name not in known:
                raise click.BadParameter(f"no {what} {name!r}; available: {', '.join(known)}")
        return names

    return read


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--peers", "with_peers", is_flag=True, help="Include other engines, alternating, each with its fastest settings."
)
@click.option("--quick", is_flag=True, help="Takes 3 minutes: schedq and the server's limit, one run each.")
@click.option(
    "--scale",
    "with_scale",
    is_flag=True,
    help="Draw cost curves up to a million jobs; other rows only with --peers.",
)
@click.option(
    "--limits",
    "with_limits",
    is_flag=True,
    help="Measure gates and unique jobs instead; --peers includes BullMQ and docket.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 99),
    help="Number of runs; medians are reported. With --peers each waits for a quiet machine.  [3; 1 with --quick]",
)
@click.option(
    "--only",
    callback=_names([*ROWS, *OTHERS, *limit_rows.ROWS], "row"),
    metavar="ROW[,ROW]",
    help=f"Any of {', '.join((*ROWS, *OTHERS))}; with --limits, of {', '.join(limit_rows.ROWS)}.",
)
@click.option(
    "--contestants",
    callback=_names(list(CONTESTANTS), "contestant"),
    metavar="A[,B]",
    help=f"Any of {', '.join(CONTESTANTS)}.",
)
@click.option(
    "--server", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="[default: redis-server 7.0]"
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all figures to this file, after each run.",
)
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), help="Picture that --scale writes.  [bench.png]"
)
@click.option(
    "--add",
    "first",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Add runs to this JSON file (same machine and versions only).",
)
@click.option(
    "--from",
    "earlier",
    type=click.Path(exists=True, path_type=Path),
    help="Measure nothing; print the tables of this JSON file.",
)
@click.option("--handbook", "for_handbook", is_flag=True, help="Write the tables to RESULTS.md and to the handbook.")
@click.option(
    "--environments",
    type=click.Path(file_okay=False, path_type=Path),
    default=arena.ROOT / ".venv" / "bench",
    help="Folder for the contestants' environments.  [.venv/bench]",
)
def main(
    *,
    with_peers: bool,
    quick: bool,
    with_scale: bool,
    with_limits: bool,
    runs: int | None,
    only: list[str],
    contestants: list[str],
    server: Path | None,
    json_path: Path | None,
    picture: Path | None,
    first: Path | None,
    earlier: Path | None,
    for_handbook: bool,
    environments: Path,
) -> None:
    """Measure and print the tables. Exit code 1: something could not be measured; figures never cause an error."""
    if earlier:
        found = json.loads(earlier.read_text())
    else:
        if not sys.platform.startswith("linux"):
            raise click.ClickException("the benchmark reads /proc and runs on Linux only")
        if quick and with_peers:
            raise click.UsageError("--quick measures schedq alone; leave out --peers or --quick")
        wanted = only or (["scale"] if with_scale and not with_peers else [*ROWS, "limit"])
        rows = [ROWS[name] for name in ROWS if name in wanted]
        peers = limit_rows.WITH_RATE if with_limits else [peer.name for peer in PEERS]
        names = contestants or [SCHEDQ.name, *(name for name in peers if with_peers and name != SCHEDQ.name)]
        others = {name for name in OTHERS if name in wanted} | ({"scale"} if with_scale else set())
        runs = runs or (1 if quick else 3)
        before = json.loads(first.read_text()) if first else None
        if with_limits:
            found = _measure_limits(only or list(limit_rows.ROWS), names, runs, server, environments, quick=quick)
        else:
            saved = partial(_save, json_path)
            found = _measure(rows, names, others, runs, server, environments, picture, before, saved, quick=quick)
    _save(json_path, found)
    _show(found, for_handbook=for_handbook)
    sys.exit(bool(found.get("troubles")))


def _save(path: Path | None, found: dict[str, Any]) -> None:
    if path:
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _show(found: dict[str, Any], *, for_handbook: bool) -> None:
    is_of_limits = "loads" in found
    if for_handbook:
        (limits if is_of_limits else page).write(found)
    print((limits if is_of_limits else report).text(found))


def _measure(
    rows: list[Row],
    names: list[str],
    others: set[str],
    runs: int,
    server: Path | None,
    folder: Path,
    picture: Path | None,
    before: dict[str, Any] | None,
    saved: Callable[[dict[str, Any]], object],
    *,
    quick: bool,
) -> dict[str, Any]:
    began = time.monotonic()
    environments, binary, found = begin(server, folder, quick=quick)
    try:
        made = ready(environments, (CONTESTANTS[name] for name in names) if rows else (), found)
        if before:
            found = continued(before, found)
        session = Session(environments, binary, found, say, is_quick=quick)
        session.measure(rows, made, runs, partial(saved, found))
        if "limit" in others:
            session.measure_limit()
        if "scale" in others:
            session.measure_scale(picture or Path("bench.png"))
    finally:
        arena.closing.set()
        processes.end_all()
    found["seconds"] = round(time.monotonic() - began) + found.get("seconds", 0)
    return found


def _measure_limits(
    rows: list[str], names: list[str], runs: int, server: Path | None, folder: Path, *, quick: bool
) -> dict[str, Any]:
    environments, binary, found = begin(server, folder, quick=quick)
    try:
        made = ready(environments, (CONTESTANTS[name] for name in names), found)
        session = limits.Session(environments, binary, found, say, is_quick=quick)
        session.measure([row for name, row in limit_rows.ROWS.items() if name in rows], made, runs)
    finally:
        arena.closing.set()
        processes.end_all()
    return found


def continued(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Earlier results, to be extended.

    Raises:
        ClickException: they come from another machine, other versions or another kind of run.
    """
    was = {"versions": {name: before["versions"].get(name, found) for name, found in now["versions"].items()}}
    for name, value in (before | was).items():
        if name in ("machine", "server", "quick", "versions") and value != now[name]:
            raise click.ClickException(f"--add: the earlier run had {name} {value!r}, this one has {now[name]!r}")
    left_out = list(dict.fromkeys([*before.get("left_out", ()), *now["left_out"]]))
    return before | {"versions": before["versions"] | now["versions"], "left_out": left_out}


if __name__ == "__main__":
    main()
