"""The rows of the table: what is measured, for whom, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from scripts.tools.bench.entries import ASYNC, PLAIN, Contestant
from scripts.tools.bench.resources import idle, memory
from scripts.tools.bench.throughput import Figures, drain, enqueue, requests
from scripts.tools.bench.timing import crash, delayed, latency

Measure = Callable[..., Figures]


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement.

    Attributes:
        title: as shown in the tables.
        shows: the figures shown, out of those measured.
        full: runs the measurement; `quick` is a shorter, less precise version.
        kind: the kind of handlers that a contestant must have, if relevant.
        needs: another requirement: the name of an attribute.
        is_once: without peers, measured once whatever `--runs` says, because it varies little or takes long.
        at_a_time: number of contestants measured concurrently, if the row mostly waits.
    """

    name: str
    title: str
    shows: tuple[str, ...]
    full: Measure
    quick: Measure
    kind: str = ""
    needs: str = ""
    is_drain: bool = False
    is_once: bool = False
    at_a_time: int = 1

    def suits(self, contestant: Contestant) -> bool:
        """Whether the contestant takes part."""
        return (
            (self.is_drain or not contestant.drain_only)
            and (not self.kind or self.kind in contestant.kinds)
            and (not self.needs or bool(getattr(contestant, self.needs)))
        )


def _drain(kind: str, count: int) -> Row:
    return Row(
        f"drain-{'two-' if count > 1 else ''}{kind}",
        f"drain, {'two processes' if count > 1 else 'one process'}, {kind} handlers",
        ("jobs/s", "redis %", "workers %", "others %", "commands/job", "redis us/job", "limit"),
        partial(drain, kind=kind, count=count, share=1.0),
        partial(drain, kind=kind, count=count, share=0.6),
        kind=kind,
        is_drain=True,
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between immediate jobs, and the number of jobs, full and quick."""

    low_s: float
    high_s: float
    full: int
    quick: int


PACES: Final = {"latency": Pace(0.005, 0.005, 1000, 600), "latency-sparse": Pace(0.125, 0.375, 120, 40)}


def _latency(name: str, title: str, *, is_once: bool = False) -> Row:
    pace = PACES[name]
    run = partial(latency, low_s=pace.low_s, high_s=pace.high_s)
    shows = ("p50 ms", "p99 ms", "max ms")
    return Row(name, title, shows, partial(run, jobs=pace.full), partial(run, jobs=pace.quick), is_once=is_once)


def _delayed(name: str, title: str, seconds: float) -> Row:
    run = partial(delayed, jobs=5000, seconds=seconds)
    return Row(name, title, ("p50 ms", "p99 ms", "max ms", "earliest ms", "ran", "starts"), run, run)


def _idle(workers: int) -> Row:
    run = partial(idle, workers=workers, seconds=10)
    return Row(
        f"idle-{workers}",
        f"{workers} idle worker{'s' * (workers > 1)}",
        ("requests/s", "commands/s", "cpu %", "redis %", "pss MB"),
        partial(run, rest_s=5),
        partial(run, rest_s=3),
        is_once=True,
        at_a_time=1 if workers > 1 else 4,
    )


_ENQUEUE: Final = ("jobs/s", "commands/job", "redis us/job")

ROWS: Final = {
    row.name: row
    for row in (
        Row(
            "enqueue",
            "enqueue one by one",
            _ENQUEUE,
            partial(enqueue, verb="one", jobs=10_000),
            partial(enqueue, verb="one", jobs=6_000),
        ),
        Row(
            "bulk",
            "enqueue by the bulk call",
            _ENQUEUE,
            partial(enqueue, verb="many", jobs=10_000),
            partial(enqueue, verb="many", jobs=10_000),
            needs="bulk",
        ),
        _drain(ASYNC, 1),
        _drain(PLAIN, 1),
        _drain(ASYNC, 2),
        _drain(PLAIN, 2),
        Row(
            "requests",
            "requests per job, a script being one",
            ("enqueue", "bulk", "drain"),
            partial(requests, jobs=2000),
            partial(requests, jobs=2000),
            is_once=True,
        ),
        _latency("latency", "immediate job, idle system, 5 ms apart"),
        _latency("latency-sparse", "the same, 125 to 375 ms apart", is_once=True),
        _delayed("delayed", "5,000 delayed jobs over 10 s: lateness", 10),
        _delayed("burst", "5,000 jobs due at one instant: lateness", 0),
        Row(
            "memory",
            "Redis memory per delayed job",
            ("bytes/job",),
            partial(memory, jobs=50_000),
            partial(memory, jobs=10_000),
            is_once=True,
        ),
        _idle(1),
        _idle(20),
        Row(
            "crash",
            "job of a killed worker runs again, defaults",
            ("s",),
            partial(crash, setting="", patience_s=100),
            partial(crash, setting="", patience_s=30),
            is_once=True,
            at_a_time=12,
        ),
        Row(
            "crash-short",
            "the same, short lease",
            ("s",),
            partial(crash, setting="short", patience_s=100),
            partial(crash, setting="short", patience_s=30),
            needs="short",
            is_once=True,
            at_a_time=12,
        ),
    )
}
