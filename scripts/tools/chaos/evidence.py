"""The evidence of a run, and the verdict on it."""

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
    """Everything known about a run.

    Attributes:
        final: job id → its state in Redis at the end, GONE if it is not stored.
        audit_log: job id → transitions in Redis's audit log.
        plans: schedules.
        fired: queue → the server's count of jobs created from slots.
    """

    journal: Journal
    stalls: Stalls
    time: ServerTime
    faults: Sequence[Fault]
    final: Mapping[str, str]
    audit_log: Mapping[str, Sequence[str]]
    ended: float
    plans: Sequence[Plan] = ()
    fired: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Promise:
    """How often a time limit applied, how often it was exceeded, and the longest time taken."""

    judged: int = 0
    broken: int = 0
    most_ms: int = 0


@dataclass
class Verdict:
    """Counters; those in MUST_BE_ZERO must be zero.

    Attributes:
        undecided: histories too long to be judged.
        refused_ends: settlements rejected because the job no longer belonged to the process.
        takeover_max_ms: longest time without a promoter after its holder was killed.
        given_up: jobs of killed workers that failed because no attempt was left.
        given_up_max_ms: longest time that this took.
        slots: slots of schedules, up to their end.
        slots_twice: slots with two jobs, or with a job although another slot's job stands for them.
        slots_missed: slots without a job, and without an outage that explains it.
        slots_coalesced: slots of an outage that were replaced by its last one.
        slots_leapt: the same where the server's clock was set past them.
        broken: broken promises about single faults, of those that `promises` counts by fault.
        again: second starts, counted by the fault that explains them.
        complaints: a sentence for each violation.
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
            self.say("broken", f"{fault}: {text} took {took_s:.1f} s; the limit is {allowed_s:.1f} s")

    def say(self, kind: str, text: str) -> None:
        """Record a violation."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.complaints.append(f"{kind}: {text}")


MUST_BE_ZERO: Final = (
    "lost", "early", "after_completion", "twice_unexplained", "unfounded", "illegal", "recovered_late",
    "slots_twice", "slots_missed", "broken",
)  # fmt: skip
