"""What is known of a run, and what is said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scripts.tools.chaos.faults import Fault
from scripts.tools.chaos.journal import Journal
from scripts.tools.chaos.servertime import ServerTime
from scripts.tools.chaos.stalls import Stalls
from scripts.tools.chaos.timetable import Plan

GONE: Final = "gone"


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run.

    Attributes:
        final: job id → its place in Redis in the end, GONE if nothing is stored of it.
        told: job id → moves in Redis's audit log.
        plans: schedules.
        fired: queue → how many jobs the server has counted that were made of slots.
    """

    journal: Journal
    stalls: Stalls
    time: ServerTime
    faults: Sequence[Fault]
    final: Mapping[str, str]
    told: Mapping[str, Sequence[str]]
    ended: float
    plans: Sequence[Plan] = ()
    fired: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Promise:
    """How often something had to be done in time, how often it was not, and how long it took at most."""

    judged: int = 0
    broken: int = 0
    most_ms: int = 0


@dataclass
class Verdict:
    """Counts; those of MUST_BE_ZERO must be.

    Attributes:
        undecided: histories too long to be judged.
        refused_ends: what processes said of jobs that were no longer theirs.
        takeover_max_ms: how long a queue was without a promoter, at most, when its holder was killed.
        given_up: jobs of killed workers that had no attempt left, and failed by that.
        given_up_max_ms: how long that took at most.
        slots: of schedules, up to their end.
        slots_twice: with two jobs, or a job and another's that stands for it.
        slots_missed: without a job, and without an outage that says why.
        slots_coalesced: of an outage, for which its last one stands.
        slots_leapt: the same, where the server's clock was set past them.
        broken: promises about single faults, of those that `promises` counts by fault.
        again: what explains how many second starts.
        complaints: a sentence for each thing that must not be.
    """

    jobs: int = 0
    starts: int = 0
    lost: int = 0
    early: int = 0
    after_completion: int = 0
    twice_explained: int = 0
    twice_unexplained: int = 0
    unfounded: int = 0
    illegal: int = 0
    undecided: int = 0
    refused_ends: int = 0
    recovered: int = 0
    recovery_max_ms: int = 0
    recovered_late: int = 0
    takeover_max_ms: int = 0
    given_up: int = 0
    given_up_max_ms: int = 0
    slots: int = 0
    slots_twice: int = 0
    slots_missed: int = 0
    slots_coalesced: int = 0
    slots_leapt: int = 0
    broken: int = 0
    promises: dict[str, Promise] = field(default_factory=dict)
    again: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def hold(self, fault: str, took_s: float, allowed_s: float, text: str) -> None:
        """Judge one promise; `text` says what took so long."""
        promise = self.promises.setdefault(fault, Promise())
        promise.judged += 1
        promise.most_ms = max(promise.most_ms, round(took_s * 1000))
        if took_s > allowed_s:
            promise.broken += 1
            self.say("broken", f"{fault}: {text} took {took_s:.1f} s; {allowed_s:.1f} s are allowed")

    def say(self, kind: str, text: str) -> None:
        """Count what must not be."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.complaints.append(f"{kind}: {text}")


MUST_BE_ZERO: Final = (
    "lost", "early", "after_completion", "twice_unexplained", "unfounded", "illegal", "recovered_late",
    "slots_twice", "slots_missed", "broken",
)  # fmt: skip
