"""State shared by a storm and its groups of faults."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from scripts.tools.chaos.agenda import Agenda
from scripts.tools.chaos.faults import KINDS, Fault
from scripts.tools.chaos.record import now
from scripts.tools.chaos.stage import Part, Stage
from scripts.tools.chaos.timetable import Timetable


@dataclass
class StormState:
    """The participants, the scheduled actions, and the faults so far.

    Attributes:
        refusals: intervals in which the password was rejected.
        is_server_busy: a fault of Redis is active.
    """

    stage: Stage
    timetable: Timetable
    rng: random.Random
    agenda: Agenda = field(default_factory=Agenda)
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(KINDS, 0)))
    refusals: list[tuple[float, float]] = field(default_factory=list)
    is_server_busy: bool = False

    def note(self, kind: str, target: str, since: float, until: float | None = None, *, is_calm: bool = False) -> None:
        self.faults.append(Fault(kind, since, now() if until is None else until, target, is_calm))
        self.counts[kind] += 1

    def pick(self, *roles: str, spared: bool = True) -> Part | None:
        found = [part for role in roles for part in self.stage.having(role, spared=spared)]
        return self.rng.choice(found) if found else None
