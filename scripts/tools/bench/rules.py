"""The targets for schedq, and whether it met them: relative to the peers in the run, else to their known figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scripts.tools.bench.entries import CONTESTANTS, SCHEDQ

Found = Mapping[str, Any]
"""The results of a run, as in its JSON."""

KNOWN: Final[Mapping[str, Mapping[str, float]]] = {
    "enqueue": {"huey": 9665, "dramatiq": 5162, "bullmq_node": 5062, "saq": 4030, "bullmq_py": 3638},
    "bulk": {"bullmq_py": 12_099, "bullmq_node": 11_551},
    "drain-async": {"dramatiq": 2277, "bullmq_py": 1912, "bullmq_node": 10_642},
    "drain-plain": {"huey": 3157, "dramatiq": 2980},
    "drain-two-async": {"bullmq_node": 9452, "taskiq": 3360},
    "drain-two-plain": {"dramatiq": 5879, "huey": 4671},
    "burst": {"bullmq_node": 988},
    "memory": {"bullmq_node": 394},
}
"""Peers' best figures from another day (2 cores, redis-server 7.0.15), for peers that are not in the run."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One target.

    Attributes:
        factor: multiple of the best of the peers; without peers, the figure itself.
        peers: names of the peers.
        who: the peers in words.
        reference: the peer that an absolute figure was taken from, and the figure as a share of that peer's. A slow or
            busy machine affects both.
    """

    factor: float
    peers: tuple[str, ...] = ()
    who: str = ""
    reference: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A figure of schedq and all its targets.

    Attributes:
        rows: where the figure is found; the best of several rows counts, for every contestant.
        figure: its name in those rows.
        less: less is better.
        aim: the goal, in words.
        bare: the same figure for the unavoidable minimum: its path in the results, and its name in words.
    """

    title: str
    rows: tuple[str, ...]
    figure: str
    bounds: tuple[Bound, ...]
    less: bool = False
    aim: str = ""
    bare: tuple[tuple[str, ...], str] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one target.

    Attributes:
        measured: schedq's figure.
        limit: what it had to reach.
        peer: the best of the peers, and its figure; '' and 0 without peers.
        is_known: the peer's figure is not from this run.
        bare: the rule's `bare` figure in this run; 0 if not measured.
    """

    rule: Rule
    bound: Bound
    measured: float
    limit: float
    peer: str = ""
    peers_figure: float = 0.0
    is_known: bool = False
    bare: float = 0.0

    @property
    def is_met(self) -> bool:
        """It is within the target."""
        return self.measured <= self.limit if self.rule.less else self.measured >= self.limit

    @property
    def is_met_as_ratio(self) -> bool:
        """It is within the same share of the reference peer's figure in this run."""
        return bool(
            self.bound.reference and self.peers_figure and self.measured <= self.bound.reference[1] * self.peers_figure
        )

    @property
    def ratio(self) -> float | None:
        """schedq's figure divided by the peer's."""
        return self.measured / self.peers_figure if self.peers_figure else None


_PEERS: Final = tuple(name for name in CONTESTANTS if name != SCHEDQ.name)
_PYTHON: Final = tuple(name for name in _PEERS if CONTESTANTS[name].is_python)
_NODE: Final = ("bullmq_node",)
_BULLMQ: Final = ("bullmq_node", "bullmq_py")
_OTHERS: Final = tuple(name for name in _PEERS if name != "huey")

RULES: Final = (
    Rule(
        "enqueue one by one, jobs/s",
        ("enqueue",),
        "jobs/s",
        (Bound(0.9, ("huey",), "huey"), Bound(1.6, _OTHERS, "every other")),
        aim="≥ huey",
    ),
    Rule("`enqueue_many`, jobs/s", ("bulk",), "jobs/s", (Bound(4, _PEERS, "best peer"),), aim="80,000"),
    Rule(
        "drain, one process, async no-op, jobs/s",
        ("drain-async",),
        "jobs/s",
        (Bound(4, _PYTHON, "best Python peer"), Bound(1.1, _NODE, "BullMQ on Node")),
        aim="15,000",
    ),
    Rule(
        "drain, one process, plain no-op, jobs/s",
        ("drain-plain",),
        "jobs/s",
        (Bound(2, _PYTHON, "best Python peer"),),
        aim="9,000",
    ),
    Rule(
        "drain, two processes, jobs/s",
        ("drain-two-async", "drain-two-plain"),
        "jobs/s",
        (Bound(2.5, _PYTHON, "best Python peer"), Bound(1.5, _NODE, "BullMQ on Node")),
        aim="20,000",
    ),
    Rule(
        "immediate job, idle system, p50 ms",
        ("latency",),
        "p50 ms",
        (Bound(0.9, reference=("huey", 1.0)),),
        less=True,
        aim="0.5",
    ),
    Rule(
        "immediate job, idle system, p99 ms",
        ("latency",),
        "p99 ms",
        (Bound(1.6, reference=("huey", 1.0)),),
        less=True,
        bare=(("hop", "latency", "p99 ms"), "a bare hop takes"),
    ),
    Rule(
        "the same, 125–375 ms apart, p99 ms",
        ("latency-sparse",),
        "p99 ms",
        (Bound(1.9, reference=("taskiq", 1.0)),),
        less=True,
        aim="1.2",
        bare=(("hop", "latency-sparse", "p99 ms"), "a bare hop takes"),
    ),
    Rule(
        "5,000 delayed over 10 s, p50 ms",
        ("delayed",),
        "p50 ms",
        (Bound(2, reference=("arq", 0.25)),),
        less=True,
        aim="1.1",
    ),
    Rule(
        "5,000 delayed over 10 s, p99 ms",
        ("delayed",),
        "p99 ms",
        (Bound(8, reference=("arq", 0.7)),),
        less=True,
        aim="4",
    ),
    Rule("the same: the earliest, ms late", ("delayed",), "earliest ms", (Bound(0),), aim="none early"),
    Rule(
        "5,000 due at one instant, last start, ms",
        ("burst",),
        "max ms",
        (Bound(0.5, _NODE, "BullMQ on Node"),),
        less=True,
        aim="350",
    ),
    Rule(
        "memory per delayed job, bytes",
        ("memory",),
        "bytes/job",
        (Bound(1.1, _BULLMQ, "BullMQ"),),
        less=True,
        aim="360",
    ),
    Rule("idle worker, requests/s", ("idle-1",), "requests/s", (Bound(1.5),), less=True),
    Rule("idle worker, % CPU", ("idle-1",), "cpu %", (Bound(0.3),), less=True),
    Rule("20 idle workers, requests/s in all", ("idle-20",), "requests/s", (Bound(9),), less=True, aim="5"),
    Rule("killed worker's job again, defaults, s", ("crash",), "s", (Bound(11.5),), less=True),
    Rule("killed worker's job again, visibility 5 s, s", ("crash-short",), "s", (Bound(6.5),), less=True),
    Rule(
        "cost per job at 1 M / at 1 k, the worst",
        ("scale",),
        "worst",
        (Bound(1.3),),
        less=True,
        aim="flat",
        bare=(("scale", "bare"), "a bare HSET + ZADD:"),
    ),
)


def judge(found: Found) -> list[Verdict]:
    """Every target for which the run has schedq's figure."""
    verdicts = []
    for rule in RULES:
        measured = best(found, rule, [SCHEDQ.name])
        for bound in rule.bounds if measured else ():
            verdict = _judge(found, rule, bound, measured[0][1])
            if verdict:
                verdicts.append(verdict)
    return verdicts


def _judge(found: Found, rule: Rule, bound: Bound, measured: float) -> Verdict | None:
    if not bound.peers:
        reference = best(found, rule, [bound.reference[0]] if bound.reference else [])
        bare = float(_at(found, rule.bare[0])) if rule.bare else 0.0
        peer, figure = reference[0] if reference else ("", 0.0)
        return Verdict(rule, bound, measured, bound.factor, peer, figure, bare=bare)
    here = best(found, rule, bound.peers)
    names = {name for name, _ in here}
    known = [pair for row in rule.rows for pair in KNOWN.get(row, {}).items() if pair[0] in set(bound.peers) - names]
    ranked = _ranked([*here, *known], less=rule.less)
    if not ranked:
        return None
    peer, figure = ranked[0]
    return Verdict(rule, bound, measured, figure * bound.factor, peer, figure, is_known=peer not in names)


def _at(found: Any, path: Sequence[str]) -> Any:
    """The value at a path, or 0."""
    for name in path:
        found = found.get(name, {})
    return found or 0


def best(found: Found, rule: Rule, names: Iterable[str]) -> list[tuple[str, float]]:
    """The contestants in `names` that have the figure, with its value, best first."""
    pairs = []
    for row in rule.rows:
        for name in names:
            value = median(found["figures"].get(row, {}).get(name, ()), rule.figure)
            if isinstance(value, str):  # it timed out
                value = math.inf
            if value is not None:
                pairs.append((name, value))
    return _ranked(pairs, less=rule.less)


def _ranked(pairs: Sequence[tuple[str, float]], *, less: bool) -> list[tuple[str, float]]:
    key: Callable[[tuple[str, float]], float] = lambda pair: pair[1]  # noqa: E731
    return sorted(pairs, key=key, reverse=not less)


def median(runs: Sequence[Mapping[str, float | str]], figure: str) -> float | str | None:
    """The median of a figure over several runs; text is taken from the last run; None if there is no value."""
    values = [run[figure] for run in runs if figure in run]
    numbers = [value for value in values if isinstance(value, int | float)]
    if numbers and len(numbers) == len(values):
        return float(statistics.median(numbers))
    return values[-1] if values else None
