"""The results of a run as tables, for the terminal and for RESULTS.md; page.py has those for the handbook."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.tools.bench.entries import ASYNC, CONTESTANTS, PLAIN, SCHEDQ
from scripts.tools.bench.limit import STEPS
from scripts.tools.bench.rows import ROWS, Row
from scripts.tools.bench.rules import Found, Verdict, judge, median
from scripts.tools.handbook import Block

FOUND: Final = Path(__file__).with_name("found.json")
RESULTS: Final = Path(__file__).with_name("RESULTS.md")
"""Has all figures; the handbook has those that users need."""
_NOISY: Final = 30
"""Per cent of a core used by other processes; the benchmark itself uses a few."""
BLOCK: Final = Block(RESULTS, "bench")


def text(found: Found) -> str:
    """All tables, in Markdown."""
    parts = [heading(found), verdicts(found), limits(found)]
    parts += [_row(row, found["figures"][row.name]) for row in ROWS.values() if row.name in found["figures"]]
    if found.get("limit"):
        parts.append(_limit(found["limit"]))
    if found.get("hop"):
        parts.append(_hops(found["hop"]))
    if found.get("scale"):
        parts.append(scale(found["scale"]))
    if missing := [*found.get("left_out", ()), *found.get("troubles", ())]:
        parts.append("Not measured:\n\n" + "\n".join(f"- {trouble.splitlines()[0]}" for trouble in missing))
    parts.append(set_up(found))
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(found: Found) -> str:
    """Date, machine, and versions."""
    machine = found["machine"]
    where = f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, {machine['system']}"
    often = f"Medians of {_runs(found)}{' (quick)' * found['quick']}.{_quiet(found)}{_disturbed(found)}"
    installed = f"schedq on {_versions(found, SCHEDQ.name)}."
    return textwrap.fill(
        f"{found['date']}, {where}, CPython {machine['python']}, {found['server']}. {often} {installed}",
        118,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _versions(found: Found, name: str) -> str:
    return ", ".join(f"{package} {version}" for package, version in found["versions"].get(name, {}).items())


def _runs(found: Found) -> str:
    """How often everything was measured."""
    counts = {len(runs) for row in found["figures"].values() for runs in row.values()} or {0}
    least, most = min(counts), max(counts)
    return f"{f'{least} to ' * (least != most)}{most} run{'s' * (most != 1)}"


def _quiet(found: Found) -> str:
    """How quiet the machine was, if the runs waited for that."""
    runs = found.get("quiet", ())
    loads = ", ".join(f"{run['load']:.2f}" for run in runs)
    stolen = max((run["steal %"] for run in runs), default=0.0)
    return f" Load before each run: {loads}; at most {stolen:.1f} % of a run's time was stolen." if runs else ""


def _disturbed(found: Found) -> str:
    """A warning if other processes were using the machine."""
    drains = [found["figures"].get(row.name, {}).get(SCHEDQ.name, ()) for row in ROWS.values() if row.is_drain]
    others = [float(run["others %"]) for runs in drains for run in runs if "others %" in run]
    if max(others, default=0) < _NOISY:
        return ""
    return f" Other work on the machine took up to {max(others):.0f} % of a core; an idle machine gives better figures."


def verdicts(found: Found) -> str:
    """The targets, and whether they were met."""
    judged = judge(found)
    if not judged:
        return ""
    lines = [_verdict(verdict) for verdict in judged]
    targets = table(("figure", "schedq", "must reach", "peer", "ratio", "verdict", "aim"), lines)
    known = any(verdict.is_known for verdict in judged)
    return targets + (
        "\n\n† a peer's figure from another day, when the machine may have been slower; `--peers` measures it again."
        * known
    )


def _verdict(verdict: Verdict) -> Sequence[str]:
    rule, bound, sign = verdict.rule, verdict.bound, "≤" if verdict.rule.less else "≥"
    must = f"{sign} {bound.factor:g} × {bound.who}" if bound.peers else f"{sign} {bound.factor:g}"
    peer = f"{verdict.peer} {number(verdict.peers_figure)}{'†' * verdict.is_known}" if verdict.peer else ""
    ratio = f"{verdict.ratio:.2f}" if verdict.ratio is not None else ""
    return (
        rule.title,
        number(verdict.measured),
        must,
        peer,
        ratio,
        "met" if verdict.is_met else _missed(verdict),
        rule.aim,
    )


def _missed(verdict: Verdict) -> str:
    """Not met, in words. On a slow machine the peer that the target was taken from, or a bare hop, misses it too."""
    said = []
    if verdict.is_met_as_ratio and verdict.bound.reference:
        said.append(f"yet within {verdict.bound.reference[1]:g} × {verdict.peer} of this run")
    if verdict.rule.bare and verdict.bare > verdict.limit:
        said.append(f"{verdict.rule.bare[1]} {number(verdict.bare)}")
    return f"**not met** ({'; '.join(said)})" if said else "**not met**"


def limits(found: Found) -> str:
    """What a second process adds, what limited it, and how close one process comes to a bare loop."""
    said = []
    for kind in (ASYNC, PLAIN):
        one, two = (found["figures"].get(f"drain-{count}{kind}", {}).get(SCHEDQ.name, ()) for count in ("", "two-"))
        if one and two:
            gain = _figure(two, "jobs/s") / _figure(one, "jobs/s")
            said.append(f"Two processes drain {gain:.2f} times as much as one ({kind} handlers); ")
            said[-1] += f"the limit was {median(two, 'limit')}."
    loop = found.get("limit", {}).get("redis-py-50")
    drained = found["figures"].get("drain-async", {}).get(SCHEDQ.name, ())
    if loop and drained:
        share = _figure(drained, "jobs/s") / loop["cycle/s"]
        said.append(f"One process drains {share:.0%} of what a bare loop over redis-py does with 50 jobs per script.")
    return "\n".join(said)


def _figure(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    found = median(runs, name)
    assert isinstance(found, float)
    return found


def _row(row: Row, measured: Mapping[str, Any]) -> str:
    """A table for one row of the benchmark: a line per contestant, best first and in bold."""
    first = row.shows[0]
    order = sorted(measured, key=lambda name: rank(median(measured[name], first), first))
    lines = []
    for name in order:
        cells = [number(median(measured[name], figure)) for figure in row.shows]
        if name == order[0] and len(order) > 1:
            cells[0] = f"**{cells[0]}**"
        if len(measured[name]) > 1 and isinstance(median(measured[name], first), float):
            values = [float(run[first]) for run in measured[name]]
            cells[0] += f" ({number(min(values))}–{number(max(values))})"
        lines.append((name, *cells))
    return f"**{row.title[0].upper()}{row.title[1:]}**\n\n" + table(("", *row.shows), lines)


def rank(value: float | str | None, figure: str) -> tuple[int, float]:
    """For sorting: the best first, and what is no number last."""
    if not isinstance(value, float):
        return (1, 0)
    return (0, -value if figure == "jobs/s" else value)


def _limit(limit: Mapping[str, Mapping[str, float]]) -> str:
    ways = [way for way in limit if not way.startswith("redis-py")]
    lines = [
        (step, *(f"{limit[way][f'{step} us']:.1f}" for way in ways), *(number(limit[way][f"{step}/s"]) for way in ways))
        for step in STEPS
    ]
    empty = ("",) * len(ways)
    lines += [("enqueue + claim + complete", *(f"{limit[way]['cycle us']:.1f}" for way in ways), *empty)]
    lines += [("jobs/s of one core", *(number(limit[way]["cycles/s of one core"]) for way in ways), *empty)]
    heads = ("", *(f"{way}: us of Redis's CPU / job" for way in ways), *(f"{way}: jobs/s" for way in ways))
    loops = [
        (way.removeprefix("redis-py-"), number(figures["enqueue/s"]), number(figures["cycle/s"]))
        for way, figures in limit.items()
        if way.startswith("redis-py")
    ]
    return (
        "**What the server can do**, smallest state changes\n\n"
        + table(heads, lines)
        + "\n\n**A bare loop over redis-py**, the same scripts\n\n"
        + table(("jobs per script", "enqueue, jobs/s", "claim + decode + call + complete, jobs/s"), loops)
    )


def _hops(hops: Mapping[str, Mapping[str, float]]) -> str:
    lines = [
        (ROWS[name].title, *(number(figures[figure]) for figure in ROWS[name].shows)) for name, figures in hops.items()
    ]
    heads = ("", *ROWS[next(iter(hops))].shows)
    return "**A bare hop**: LPUSH by one process to BLPOP by another, over raw sockets\n\n" + table(heads, lines)


def scale(found: Mapping[str, Any]) -> str:
    """Microseconds of Redis per job, by what else the queue holds."""
    parts = []
    for place, curves in found["curves"].items():
        sizes = list(next(iter(curves.values())))
        lines = []
        for move, costs in curves.items():
            ratio = costs[sizes[-1]] / costs[sizes[0]]
            lines.append((move, *(f"{costs[size]:.1f}" for size in sizes), f"{ratio:.2f}"))
        heads = ("", *(f"{int(size):,}" for size in sizes), "last / first")
        parts.append(f"**Redis us per job, by number of jobs {place}**\n\n" + table(heads, lines))
    parts.append(f"Largest ratio of a million to a thousand jobs: {found['worst_is']}, {found['worst']:.2f} times.")
    return "\n\n".join(parts)


def set_up(found: Found, *, versions: bool = True) -> str:
    """The settings of each contestant, and its installed `versions`."""
    names = {name for row in found["figures"].values() for name in row}
    lines = [
        f"- {name}{f' ({_versions(found, name)})' * versions}: {entry.set_up}"
        f"{f'; short lease: {entry.short}' * bool(entry.short)}."
        for name, entry in CONTESTANTS.items()
        if name in names
    ]
    return "**Set up**\n\n" + "\n".join(lines) if lines else ""


def number(value: float | str | None) -> str:
    """At least three significant digits; never rounds before the decimal point."""
    if value is None:
        return "n/a"
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return "never"
    if value == int(value) and abs(value) < 10:
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    ruler = ["---"] + ["---:"] * (len(heads) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ruler, *lines))


def known() -> Found:
    """The results that the tables of RESULTS.md and of the handbook are generated from."""
    found: Found = json.loads(FOUND.read_text())
    return found
