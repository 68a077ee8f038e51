"""Whether the limits held, from what handlers, workers and the changer of limits have recorded.

A lease is judged only while it certainly exists: from its claim until the handler's end, the first settlement, or the
end of the lease that the last confirmed renewal gave it. So a handler that continues after a freeze counts no longer.
All instants are ms of Redis's clock, which is the machine's.

`limits.py` starts the processes of a normal run and its faults, except those of clocks and event loops. It also kills
`limits_changer.py`, which sets limits and pauses and holds gates and keys, several in a row. Handlers (`limits_app.py`)
record when they begin and end, and when Redis claimed their jobs; `limits_records.py` reads that. These must be 0:

    concurrency  claims at which more leases certainly existed than any limit that may have been in force
    rate         windows of `per` with more than `n` starts while the rate was certainly in force
    order        jobs of a serial key that started before an earlier job had started for the last time
    unique       jobs of one unique key that had leases at the same time
    hold         pauses, holds and `RateLimited` with a start between the reply and their end
    lost         accepted jobs that are not completed, or are without a handler that finished
    waiting      states other than `completed` that have jobs at the end
    unlawful     violations of the laws of `tests/state.py` at the end
    tracebacks   exceptions of schedq in the logs

`beyond_leases` counts claims at which more handlers ran than the limit allows, because some had lost their leases; the
handbook announces that. `judged` counts how often each law was applied.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SLACK_MS: Final = 50.0
"""How much the monotonic clock of some records may drift from Redis's clock in the life of a process."""
FAULTS: Final = ("concurrency", "rate", "order", "unique", "hold", "lost", "waiting", "unlawful", "tracebacks")


@dataclass(slots=True)
class Attempt:
    """One attempt that a handler has begun.

    Attributes:
        number: the position of its job among those of its key, in the order of acceptance.
        unique: what makes its job unique, or ''.
        claimed: when it was claimed.
        held_until: until when it certainly had its lease.
        left: when its handler ended; infinity if it was killed.
        token: of its claim.
        leased_until: until when it certainly had its lease, if it had not given it back.
        how: how its handler ended, in its own words; '' if it was killed.
        moves: how the worker asked to end it, as often as it did.
        move: the one that is confirmed; '' if none is.
    """

    job_id: str
    gate: str
    key: str
    number: int
    claimed: float
    held_until: float
    unique: str = ""
    left: float = math.inf
    token: str = ""
    leased_until: float = 0.0
    how: str = ""
    moves: tuple[str, ...] = ()
    move: str = ""


@dataclass(slots=True)
class Change:
    """One step of the changer: limits that it has set, or a pause, a hold or a resumption.

    Attributes:
        kind: limits, pause, hold or resume.
        name: a gate, or "GATE KEY".
        what: all limits that differ from those in the code; how long to hold.
        sent: when it was sent.
        done: when it was certainly done; infinity if it was killed before.
    """

    kind: str
    name: str
    what: Any
    sent: float
    done: float = math.inf


@dataclass(slots=True)
class Hold:
    """A certain interval in which nothing of a gate or key may be claimed."""

    name: str
    since: float
    until: float


@dataclass
class Findings:
    """What a run has shown; all of `FAULTS` must be zero.

    Attributes:
        beyond_leases: claims at which more handlers ran than the limit allows, because some had lost their leases.
        judged: how often each law was applied.
    """

    concurrency: int = 0
    rate: int = 0
    order: int = 0
    unique: int = 0
    hold: int = 0
    lost: int = 0
    waiting: int = 0
    unlawful: int = 0
    tracebacks: int = 0
    beyond_leases: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def say(self, kind: str, text: str) -> None:
        """Record a fault."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.complaints.append(f"{kind}: {text}")


class Limits:
    """The limits of a gate over time: those in the code, and those set since."""

    def __init__(self, code: Mapping[str, Any], changes: Iterable[Change]) -> None:
        self._code = dict(code)
        self._changes = sorted((it for it in changes if it.kind == "limits"), key=lambda it: it.sent)

    def possible(self, name: str, since: float, until: float) -> list[Any]:
        """The values of a limit that may have been in force at some time in an interval; None for no limit."""
        at = max((n for n, it in enumerate(self._changes) if it.done <= since), default=-1)
        found = [it for it in self._changes[max(at, 0) :] if it.sent <= until]
        values = [it.what.get(name, self._code.get(name)) for it in found]
        return [*([self._code.get(name)] if at < 0 else []), *values]

    def most(self, name: str, at: float) -> float:
        """The highest number that may have been in force in the ms of a claim."""
        return max(value or math.inf for value in self.possible(name, at, at + 1))

    def steady(self, name: str) -> Iterator[tuple[float, float, Any]]:
        """The intervals in which one value was certainly in force, each with the value."""
        marks = sorted({0.0, *(it.sent for it in self._changes), *(it.done for it in self._changes), math.inf})
        since, known = 0.0, ""
        for begin, end in itertools.pairwise(marks):
            texts = {json.dumps(value) for value in self.possible(name, begin, begin)}
            text = texts.pop() if len(texts) == 1 else ""
            if text != known:
                if known:
                    yield since, begin, json.loads(known)
                since, known = begin, text
            if end == math.inf and known:
                yield since, end, json.loads(known)


def most_at_once(attempts: Sequence[Attempt]) -> Iterator[tuple[float, int, int]]:
    """For each instant of a claim: how many leases certainly existed in its ms, and how many handlers at most ran."""
    leases: list[float] = []
    runs: list[float] = []
    ordered = sorted(attempts, key=lambda it: it.claimed)
    for n, attempt in enumerate(ordered):
        heapq.heappush(leases, attempt.held_until)
        heapq.heappush(runs, attempt.left if attempt.left < math.inf else attempt.held_until)
        if n + 1 < len(ordered) and ordered[n + 1].claimed == attempt.claimed:
            continue
        for heap in (leases, runs):
            while heap and heap[0] < attempt.claimed + 1:
                heapq.heappop(heap)
        yield attempt.claimed, len(leases), len(runs)


def judge_limits(
    attempts: Sequence[Attempt], code: Mapping[str, Mapping[str, Any]], changes: Sequence[Change], found: Findings
) -> None:
    """Judge the concurrency and the rates of the queue, of gates and of keys, and the order of serial keys."""
    for gate, limits in code.items():
        own = [it for it in attempts if not gate or it.gate == gate]
        keys: dict[str, list[Attempt]] = {}
        for attempt in own:
            keys.setdefault(attempt.key, []).append(attempt)
        known = Limits(limits, [it for it in changes if it.name == gate])
        _look_at_concurrency(own, known, "concurrency", f"gate {gate}", found)
        _look_at_rates(own, known, "rate", f"gate {gate}", found)
        for key, some in keys.items() if gate else ():
            what = f"key {key} of gate {gate}"
            _look_at_concurrency(some, known, "key_concurrency", what, found)
            _look_at_rates(some, known, "key_rate", what, found)
            if limits.get("serial"):
                _look_at_concurrency(some, Limits({"serial": 1}, ()), "serial", what, found)
                _look_at_order(some, what, found)


def judge_unique(attempts: Sequence[Attempt], found: Findings) -> None:
    """Jobs with the same unique key never run at the same time."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.unique:
            groups.setdefault(attempt.unique, []).append(attempt)
    for unique, some in groups.items():
        for at, leases, _ in most_at_once(some):
            found.judged["unique"] += 1
            if leases > 1:
                found.say("unique", f"{leases} jobs of {unique} ran at {at:.0f}")


def judge_holds(attempts: Sequence[Attempt], holds: Sequence[Hold], found: Findings) -> None:
    """Nothing is claimed while it is paused or held."""
    instants: dict[str, list[float]] = {}
    for attempt in attempts:
        for name in (attempt.gate, f"{attempt.gate} {attempt.key}"):
            instants.setdefault(name, []).append(attempt.claimed)
    for times in instants.values():
        times.sort()
    for hold in holds:
        times = instants.get(hold.name, [])
        found.judged["hold"] += hold.until > hold.since
        some = times[bisect_left(times, hold.since) : max(0, bisect_right(times, hold.until - 1))]
        if hold.until > hold.since and some:
            text = f"{hold.name} was held from {hold.since:.0f} to {hold.until:.0f}, and had starts at {some}"
            found.say("hold", text)


def _look_at_concurrency(attempts: Sequence[Attempt], known: Limits, name: str, what: str, found: Findings) -> None:
    for at, leases, runs in most_at_once(attempts):
        most = known.most(name, at)
        found.judged[name] += most < math.inf
        found.beyond_leases += leases <= most < runs
        if leases > most:
            found.say("concurrency", f"{what}: {leases} leases at {at:.0f}, {name} was {most:.0f}")


def _look_at_rates(attempts: Sequence[Attempt], known: Limits, name: str, what: str, found: Findings) -> None:
    times = sorted(it.claimed for it in attempts)
    for since, until, rates in known.steady(name):
        some = times[bisect_left(times, since) : bisect_right(times, until - 1)]
        for n, per, _ in rates or ():
            found.judged[name] += max(0, len(some) - n)
            for first, last in zip(some, some[n:], strict=False):
                if last - first < per:
                    text = f"{what}: more than {n} starts in {per} ms, from {first:.0f} to {last:.0f}"
                    found.say("rate", text)


def _look_at_order(attempts: Sequence[Attempt], what: str, found: Findings) -> None:
    last = (0.0, "")
    jobs: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        jobs.setdefault(attempt.number, []).append(attempt)
    for number in sorted(jobs):
        first = min(it.claimed for it in jobs[number])
        found.judged["order"] += 1
        if first < last[0]:
            found.say(
                "order", f"{what}: {jobs[number][0].job_id} started at {first:.0f}, before {last[1]} at {last[0]:.0f}"
            )
        last = max(last, (max(it.claimed for it in jobs[number]), jobs[number][0].job_id))
