"""How long Redis takes: to answer, and to run a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from statistics import median
from typing import Final

from schedq.clocks import monotonic
from schedq.doctor.asking import plain
from schedq.doctor.finding import Finding
from schedq.errors import SchedqError
from schedq.operations import Flow, views
from schedq.settings import Settings

_PINGS: Final = 21
_SCRIPTS: Final = 11
_SLOW_MS: Final = 20.0
_STALL_MS: Final = 500.0
_SLOW_SCRIPT_MS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Round trips in ms; of the script without those that failed, and 0 if all did."""

    ping_median_ms: float
    ping_max_ms: float
    script_median_ms: float
    script_max_ms: float


def look(queue: Settings, monotonic: Callable[[], float] = monotonic) -> Flow[Latency]:
    """Time some PINGs, and a script that reads."""
    pings: list[float] = []
    for _ in range(_PINGS):
        began = monotonic()
        yield [plain("PING")]
        pings.append(1000 * (monotonic() - began))
    scripts: list[float] = []
    for _ in range(_SCRIPTS):
        began = monotonic()
        (answer,) = yield [views.stats(queue)]
        if not isinstance(answer, SchedqError):
            scripts.append(1000 * (monotonic() - began))
    scripts = scripts[1:] or [0.0]  # the first one may have had to be taught
    return Latency(median(pings), max(pings), median(scripts), max(scripts))


def summary(found: Latency) -> dict[str, float]:
    """The figures for programs, in ms."""
    return {field.name: round(getattr(found, field.name), 3) for field in fields(found)}


def judge(found: Latency) -> Iterator[Finding]:
    """The findings about a server's speed."""
    figures = f"a PING takes {found.ping_median_ms:.1f} ms (median of {_PINGS}; the longest {found.ping_max_ms:.1f} ms)"
    if found.ping_median_ms > _SLOW_MS:
        yield Finding(
            "latency-high",
            "warning",
            figures,
            "every claim and every settlement waits for that: it bounds what a worker gets done, and a busy server "
            "is one reason",
            "run workers near Redis; look at SLOWLOG GET, at INFO commandstats, and at the machine's load",
        )
    elif found.ping_max_ms > _STALL_MS:
        yield Finding(
            "latency-stalls",
            "warning",
            figures,
            "the server or the network stands still at times; leases of a second or two may end meanwhile",
            "look for slow commands (SLOWLOG GET), for forks (INFO: latest_fork_usec), for swap; keep visibility_ms "
            "at 5 s "
            "or more",
        )
    if found.script_median_ms - found.ping_median_ms > _SLOW_SCRIPT_MS:
        yield Finding(
            "scripts-slow",
            "warning",
            f"a script takes {found.script_median_ms - found.ping_median_ms:.1f} ms more than a PING (median)",
            "all moves of jobs are scripts, and everybody waits while one runs",
            "look at the machine's load, and for debuggers or monitors: MONITOR and latency tracking slow scripts",
        )
