"""The rows of `--limits`: what is measured, for whom, and the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from scripts.tools.bench.limits import costs, running
from scripts.tools.bench.throughput import Figures

WITH_RATE: Final = ("schedq", "bullmq_node", "docket")
WITH_KEYS: Final = ("schedq", "docket")
ALONE: Final = ("schedq",)


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement.

    Attributes:
        full: measures; it gets the server's path if `who` is empty, else what makes an arena.
        quick: a shorter version.
        who: the contestants that have this; empty if no worker takes part.
        is_once: measured once whatever `--runs` says.
    """

    name: str
    title: str
    full: Callable[[Any], Figures]
    quick: Callable[[Any], Figures]
    who: tuple[str, ...] = ()
    is_once: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of schedq in a row, and what it must reach.

    Attributes:
        most: the largest value that meets the target, or None.
        least: the smallest one, or None.
        yardstick: a figure in the row "yardstick" that tells how fast the machine was.
    """

    title: str
    row: str
    figure: str
    most: float | None = None
    least: float | None = None
    yardstick: str = ""


def _beside(keys: int, limits: costs.Limits = costs.FAIR, name: str = "", words: str = "fair turns") -> Row:
    run = partial(costs.beside_plain, keys=keys, limits=limits)
    title = f"claim and settle 50 jobs, {words}, {keys:,} keys, and plain ones"
    return Row(f"{name or 'fair'}-{keys}", title, partial(run, rounds=200), partial(run, rounds=40))


def _worst(name: str, title: str, measure: Callable[..., Figures]) -> Row:
    return Row(name, title, partial(measure, keys=100_000), partial(measure, keys=5000), is_once=True)


ROWS: Final = {
    row.name: row
    for row in (
        Row(
            "yardstick",
            "plain jobs, for comparison",
            partial(costs.yardstick, rounds=50),
            partial(costs.yardstick, rounds=10),
        ),
        _beside(10),
        _beside(10_000),
        _beside(100_000),
        _beside(10_000, costs.ALL, "all", "limits of all kinds"),
        _beside(10_000, costs.SERIAL, "serial", "in order"),
        Row(
            "gates",
            "claim 50 jobs of 60 gates",
            partial(costs.many_gates, rounds=40),
            partial(costs.many_gates, rounds=10),
        ),
        _worst("instant", "100,000 keys rest for one instant", costs.rest_for_one_instant),
        _worst("raised", "limits raised, 100,000 keys full", costs.limits_raised),
        _worst("full", "a gate full, 100,000 keys ready", costs.full_gate),
        Row(
            "flood",
            "99 light keys behind 20,000 jobs of one key",
            partial(costs.flood, jobs=20_000),
            partial(costs.flood, jobs=2500),
            is_once=True,
        ),
        Row(
            "rated",
            "a rate of 200 a second, two processes",
            partial(running.rated, seconds=20),
            partial(running.rated, seconds=5),
            WITH_RATE,
        ),
        Row(
            "free-place",
            "a free place until the key's next job starts",
            partial(running.free_place, jobs=500),
            partial(running.free_place, jobs=100),
            ALONE,
        ),
        Row(
            "idle-key",
            "a job of an idle key, behind a backlog of 20,000 of another",
            partial(running.idle_key, backlog=20_000, jobs=300),
            partial(running.idle_key, backlog=5000, jobs=50),
            WITH_KEYS,
        ),
        Row(
            "drain-together",
            "drain under a limit of 100 at a time, two processes",
            partial(running.drained, kind="together", share=0.6),
            partial(running.drained, kind="together", share=0.1),
            WITH_RATE,
        ),
        Row(
            "drain-keyed",
            "drain 100 keys, one job of each at a time, two processes",
            partial(running.drained, kind="keyed", share=0.6),
            partial(running.drained, kind="keyed", share=0.1),
            WITH_KEYS,
        ),
        Row(
            "unique",
            "8 processes enqueue 10,000 times with one unique key",
            partial(running.unique, processes=8, calls=10_000),
            partial(running.unique, processes=8, calls=500),
            WITH_RATE,
            is_once=True,
        ),
    )
}

TARGETS: Final = (
    Target("fair claim of 50, 10 keys, × plain", "fair-10", "claim", most=1.6),
    Target("the same, 10,000 keys", "fair-10000", "claim", most=2.2),
    Target("the same, 100,000 keys", "fair-100000", "claim", most=2.7),
    Target("settle 50 gated jobs, 10 keys, × plain", "fair-10", "settle", most=1.25),
    Target("the same, 10,000 keys", "fair-10000", "settle", most=1.25),
    Target("the same, 100,000 keys", "fair-100000", "settle", most=1.25),
    Target("claim of 50 with 60 open gates, ms", "gates", "ms", most=5, yardstick="claim of 50, ms"),
    Target(
        "100,000 keys rest for one instant: longest script, ms", "instant", "max ms", 5, yardstick="settle of 100, ms"
    ),
    Target("limits raised on 100,000 full keys: the same", "raised", "max ms", 5, yardstick="settle of 100, ms"),
    Target("a full gate, 100,000 ready keys: the same", "full", "max ms", 5, yardstick="settle of 100, ms"),
    Target("99 light keys behind a flood of 20,000: starts until done", "flood", "starts", most=2200),
    Target("rate of 200 a second: most claims in any second", "rated", "claims, most in a second", most=200),
    Target("the same: claims a second", "rated", "claims, a second", least=195),
    Target("80,000 enqueues of one unique key: jobs", "unique", "jobs", most=1),
)
