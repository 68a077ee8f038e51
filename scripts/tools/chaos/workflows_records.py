"""Reads the records of `scripts/chaos --workflows`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scripts.tools.chaos import limits_records
from scripts.tools.chaos.limits_verdict import Attempt

Place = tuple[str, int, str]
"""Where an operation is: run, life and label."""
_NEVER = math.inf


class Try(NamedTuple):
    """What happened to the function of a step: `step` (it began), `stepped` (it returned) or `stumbled` (it raised)."""

    at: float
    kind: str
    token: str
    value: Any = None


class Sight(NamedTuple):
    """What an operation came to, as an attempt saw it; `requeued` says how often the run had been."""

    at: float
    requeued: int
    token: str
    value: Any


class Undo(NamedTuple):
    """What happened to what undoes a step: `undo` (it began) or `undone` (it returned).

    `claimed` is when its attempt was; no other record has that of an attempt that undoes.
    """

    at: float
    kind: str
    life: int
    label: str
    token: str
    claimed: float


class Wait(NamedTuple):
    """When a run first came to a wait, and for how many ms, or `until` which instant."""

    at: float
    kind: str
    ms: float

    @property
    def ends(self) -> float:
        """The earliest instant at which it may be over."""
        return self.ms if self.kind == "until" else self.at + self.ms


class Return(NamedTuple):
    """A run's function has returned."""

    at: float
    token: str
    value: Any


class End(NamedTuple):
    """What the call at the end of a batch was given; `counts` are completed, failed, total, and the failed numbers."""

    at: float
    batch: str
    job_id: str
    what: str
    values: list[int]
    counts: list[Any]


class Progress(NamedTuple):
    """What a callback was given."""

    at: float
    status: str
    completed: int
    failed: int
    total: int


@dataclass
class Act:
    """Something that the producer did.

    Attributes:
        asked: when it first began to.
        did: when it was acknowledged; infinity if it was not.
    """

    asked: float
    did: float = _NEVER
    reply: Any = None


@dataclass
class Records:
    """What the processes of a run have recorded.

    Attributes:
        attempts: of all jobs, in the order of their claims.
        acts: number of a plan → its acts, by number.
        tries, sights, waits: what happened at a place.
        returns, undos: by run.
        progress: by number of a plan.
    """

    attempts: list[Attempt] = field(default_factory=list)
    acts: dict[int, dict[int, Act]] = field(default_factory=dict)
    tries: dict[Place, list[Try]] = field(default_factory=dict)
    sights: dict[Place, list[Sight]] = field(default_factory=dict)
    waits: dict[Place, Wait] = field(default_factory=dict)
    returns: dict[str, list[Return]] = field(default_factory=dict)
    undos: dict[str, list[Undo]] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    progress: dict[int, list[Progress]] = field(default_factory=dict)

    def by_place(self) -> dict[tuple[str, int], list[Attempt]]:
        """The attempts of each child and link, and of each job that is neither, in order.

        A child has the same place in each generation of its group.
        """
        found: dict[tuple[str, int], list[Attempt]] = {}
        for attempt in self.attempts:
            is_alone = attempt.gate in ("run", "then")
            found.setdefault((attempt.job_id, -1) if is_alone else (attempt.gate, attempt.number), []).append(attempt)
        return found

    def sights_of(self, run: str, label: str) -> Iterator[tuple[Place, list[Sight]]]:
        """What a run saw of an operation, by life."""
        for place, some in self.sights.items():
            if place[0] == run and place[2] == label:
                yield place, some


def read(lines: Iterable[tuple[str, list[Any]]], visibility_ms: int) -> Records:
    """Read all lines, each with the key of its process."""
    found, kept = Records(), [*lines]
    for _, line in kept:
        if (take := getattr(_Lines, f"take_{line[0]}", None)) is not None:
            take(found, *line[1:])
    found.attempts = sorted(limits_records.read(kept, visibility_ms).attempts, key=lambda it: it.claimed)
    for tries in found.tries.values():
        tries.sort(key=lambda it: it.at)
    for sights in found.sights.values():
        sights.sort(key=lambda it: it.at)
    return found


class _Lines:
    """Takes lines, by kind."""

    @staticmethod
    def take_step(found: Records, at: float, run: str, life: int, label: str, token: str) -> None:
        found.tries.setdefault((run, life, label), []).append(Try(at, "step", token))

    @staticmethod
    def take_stepped(found: Records, at: float, run: str, life: int, label: str, token: str, value: Any) -> None:
        found.tries.setdefault((run, life, label), []).append(Try(at, "stepped", token, value))

    @staticmethod
    def take_stumbled(found: Records, at: float, run: str, life: int, label: str, token: str) -> None:
        found.tries.setdefault((run, life, label), []).append(Try(at, "stumbled", token))

    @staticmethod
    def take_undo(found: Records, at: float, run: str, life: int, label: str, token: str, claimed: float) -> None:
        found.undos.setdefault(run, []).append(Undo(at, "undo", life, label, token, claimed))

    @staticmethod
    def take_undone(found: Records, at: float, run: str, life: int, label: str, token: str, claimed: float) -> None:
        found.undos.setdefault(run, []).append(Undo(at, "undone", life, label, token, claimed))

    @staticmethod
    def take_waits(found: Records, at: float, run: str, life: int, label: str, kind: str, ms: float) -> None:
        place = (run, life, label)
        if place not in found.waits or at < found.waits[place].at:
            found.waits[place] = Wait(at, kind, ms)

    @staticmethod
    def take_saw(
        found: Records, at: float, run: str, life: int, requeued: int, label: str, token: str, value: Any
    ) -> None:
        found.sights.setdefault((run, life, label), []).append(Sight(at, requeued, token, value))

    @staticmethod
    def take_returned(found: Records, at: float, run: str, _: int, token: str, value: Any) -> None:
        found.returns.setdefault(run, []).append(Return(at, token, value))

    @staticmethod
    def take_end(
        found: Records, at: float, batch: str, job: str, what: str, _: str, values: list[int], counts: list[Any]
    ) -> None:
        found.ends.append(End(at, batch, job, what, values, counts))

    @staticmethod
    def take_begins(found: Records, _: float, number: int) -> None:
        found.acts.setdefault(number, {})

    @staticmethod
    def take_asks(found: Records, at: float, number: int, act: int) -> None:
        known = found.acts.setdefault(number, {}).setdefault(act, Act(at))
        known.asked = min(known.asked, at)

    @staticmethod
    def take_did(found: Records, at: float, number: int, act: int, reply: Any) -> None:
        known = found.acts.setdefault(number, {}).setdefault(act, Act(at))
        known.did, known.reply = min(known.did, at), reply

    @staticmethod
    def take_progress(found: Records, at: float, number: int, status: str, counts: list[int]) -> None:
        found.progress.setdefault(number, []).append(Progress(at, status, *counts))
