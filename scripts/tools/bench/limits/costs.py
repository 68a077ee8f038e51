"""What limits cost Redis: claims and settlements of gated jobs compared with plain ones, and the longest scripts."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from schedq import Rate
from schedq.transitions import gates, promote
from schedq.worker.fetcher import MOST_CLAIMED
from scripts.tools.bench.limits.queues import BATCH, Driven, Meter
from scripts.tools.bench.throughput import Figures
from tests.doors import Clock
from tests.servers import Server

Limits = Mapping[str, Any]
FAIR: Final[Limits] = {}
ALL: Final[Limits] = {
    "concurrency": 1000,
    "key_concurrency": 50,
    "rate": Rate(50_000, per=1),
    "key_rate": Rate(5000, per=1),
}
SERIAL: Final[Limits] = {"serial": True}
MOST_PROMOTED: Final = 1000
SLOW_MS: Final = 5
_GATES: Final = 60


def beside_plain(binary: Path | None, *, keys: int, rounds: int, limits: Limits = FAIR) -> Figures:
    """Claim and settle 50 gated jobs and 50 plain ones, in turns: the medians of the pairs' ratios."""
    with (
        _server(binary) as (server, meter),
        Driven(server, "plain", {}) as plain,
        Driven(server, "gated", {"gate": limits}) as gated,
    ):
        names = [f"k{number:06}" for number in range(keys)]
        jobs = max(keys, (rounds + 1) * BATCH)
        for side in (plain, gated):
            side.fill(list(itertools.islice(itertools.cycle(names), jobs)))
            side.work()
        pairs: dict[str, list[tuple[float, float]]] = {"claim": [], "settle": []}
        for number in range(rounds):
            found: dict[tuple[str, Driven], float] = {}
            for side in (plain, gated) if number % 2 else (gated, plain):
                claimed: list[Any] = []
                took = meter.ms("claim", lambda: claimed.extend(side.claim()))  # noqa: B023
                found["claim", side] = took / max(1, len(claimed))
                if claimed:
                    found["settle", side] = meter.ms("settle", lambda: side.settle(claimed)) / len(claimed)  # noqa: B023
            for move, taken in pairs.items():
                if (move, plain) in found and (move, gated) in found:
                    taken.append((found[move, plain], found[move, gated]))
        return _ratios(pairs)


def _ratios(pairs: Mapping[str, Sequence[tuple[float, float]]]) -> Figures:
    figures: Figures = {}
    for move, taken in pairs.items():
        figures[move] = statistics.median(gated / plain for plain, gated in taken)
        figures[f"plain {move}, us/job"] = 1000 * statistics.median(plain for plain, _ in taken)
        figures[f"gated {move}, us/job"] = 1000 * statistics.median(gated for _, gated in taken)
    return figures


def many_gates(binary: Path | None, *, rounds: int) -> Figures:
    """Claim 50 jobs of 60 open gates."""
    definitions = {f"gate{number}": {"concurrency": 100} for number in range(_GATES)}
    with _server(binary) as (server, meter), Driven(server, "gates", definitions) as driven:
        for number in range(rounds):
            for task in range(_GATES):
                driven.fill([f"k{number}", f"k{number}"], task)
            claimed: list[Any] = []
            meter.ms("claim", lambda: claimed.extend(driven.claim()))  # noqa: B023
            driven.settle(claimed)
        return {"ms": statistics.median(meter.taken_ms["claim"]), "max ms": max(meter.taken_ms["claim"])}


def rest_for_one_instant(binary: Path | None, *, keys: int) -> Figures:
    """Many keys rest until the same instant: claims before it, at it, and while the promoter looks at all of them."""
    clock = Clock()
    definition = {"gate": {"key_rate": Rate(1, per=3600)}}
    with _server(binary) as (server, meter), Driven(server, "instant", definition, clock) as driven:
        driven.fill([f"k{number % keys:06}" for number in range(2 * keys)])
        _work(driven, meter, keys)
        clock.pass_time(3601)
        _work(driven, meter, 20 * MOST_CLAIMED)
        _promote_all(driven, meter)
        _work(driven, meter, 20 * MOST_CLAIMED)
        return _longest(meter)


def limits_raised(binary: Path | None, *, keys: int) -> Figures:
    """The limit is raised while all keys are full: claims and settlements while the promoter looks at all of them."""
    with _server(binary) as (server, meter), Driven(server, "raised", {"gate": {"key_concurrency": 1}}) as driven:
        driven.fill([f"k{number % keys:06}" for number in range(2 * keys)])
        running: list[Any] = []
        while len(running) < keys:
            meter.ms("claim", lambda: running.extend(driven.claim(MOST_CLAIMED)))
        settings = driven.queue.settings
        meter.ms(
            "set limits",
            lambda: driven.queue._ask(gates.set_limits(settings, "gate", json.dumps({"key_concurrency": 2}))),
        )
        _work(driven, meter, 10 * MOST_CLAIMED)
        _promote_all(driven, meter)
        _work(driven, meter, 10 * MOST_CLAIMED)
        return _longest(meter)


def full_gate(binary: Path | None, *, keys: int) -> Figures:
    """A gate is full and all its other keys are ready: claims without success, and one job at a time ends."""
    with _server(binary) as (server, meter), Driven(server, "full", {"gate": {"concurrency": 100}}) as driven:
        driven.fill([f"k{number:06}" for number in range(keys)])
        running = list(driven.claim(MOST_CLAIMED))
        for _ in range(100):
            meter.ms("claim", lambda: running.extend(driven.claim(MOST_CLAIMED)))
            meter.ms("settle", lambda: driven.settle([running.pop()]))
            meter.ms("claim", lambda: running.extend(driven.claim(MOST_CLAIMED)))
        meter.ms("settle", lambda: driven.settle(running))
        meter.ms("claim", lambda: driven.claim(MOST_CLAIMED))
        return _longest(meter)


def flood(binary: Path | None, *, jobs: int, light_keys: int = 99, each: int = 20) -> Figures:
    """How many jobs start until those of light keys are done, which were enqueued after all jobs of one key."""
    with _server(binary) as (server, _), Driven(server, "flood", {"gate": {"concurrency": 100}}) as driven:
        driven.fill(["flood"] * jobs)
        driven.fill([f"k{number // each}" for number in range(light_keys * each)])
        left, starts = light_keys * each, 0
        while left:
            started = driven.work(10)
            starts += len(started)
            left -= sum(job.key != "flood" for job in started)
            assert started, f"{left} jobs wait, and none starts"
        return {"starts": starts}


def _work(driven: Driven, meter: Meter, jobs: int) -> None:
    """Claim and complete `jobs` jobs, or as many as may start."""
    done = 0
    while done < jobs:
        claimed: list[Any] = []
        meter.ms("claim", lambda: claimed.extend(driven.claim(MOST_CLAIMED)))  # noqa: B023
        if not claimed:
            return
        meter.ms("settle", lambda: driven.settle(claimed))  # noqa: B023
        done += len(claimed)


def _promote_all(driven: Driven, meter: Meter) -> None:
    """What a promoter does until there is nothing more to look at."""
    found: list[promote.Promotion] = []
    while not found or found[-1].has_more:
        meter.ms(
            "promote", lambda: found.append(driven.queue._ask(promote.promote(driven.queue.settings, MOST_PROMOTED)))
        )


def _longest(meter: Meter) -> Figures:
    """The longest script, how many took too long, and the median and the longest of each kind."""
    taken = [ms for kind in meter.taken_ms.values() for ms in kind]
    figures: Figures = {"max ms": max(taken), "over": sum(ms > SLOW_MS for ms in taken), "of": len(taken)}
    for kind, each in meter.taken_ms.items():
        figures |= {f"{kind}, p50 ms": statistics.median(each), f"{kind}, max ms": max(each)}
    return figures


@contextmanager
def _server(binary: Path | None) -> Iterator[tuple[Server, Meter]]:
    with Server(binary, topology="single") as server:
        yield server, Meter(server)


def yardstick(binary: Path | None, *, rounds: int) -> Figures:
    """Scripts of plain jobs, which tell how fast the machine is at the moment."""
    with _server(binary) as (server, meter), Driven(server, "plain", {}) as driven:
        figures: Figures = {}
        for count in (BATCH, MOST_CLAIMED):
            driven.fill(["key"] * count * rounds)
            claims, settlements = [], []
            for _ in range(rounds):
                claimed: list[Any] = []
                claims.append(meter.ms("claim", lambda: claimed.extend(driven.claim(count))))  # noqa: B023
                settlements.append(meter.ms("settle", lambda: driven.settle(claimed)))  # noqa: B023
            figures[f"claim of {count}, ms"] = statistics.median(claims)
            figures[f"settle of {count}, ms"] = statistics.median(settlements)
        return figures
