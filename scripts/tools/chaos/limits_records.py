"""Reads the records of `scripts/chaos --limits`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.tools.chaos.limits_verdict import SLACK_MS, Attempt, Change, Hold


@dataclass
class Records:
    """What the processes of a run have recorded.

    Attributes:
        accepted: ids of the jobs that are stored for the producer.
        done: ids of the jobs with an attempt that ended well.
    """

    attempts: list[Attempt] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    limited: list[Hold] = field(default_factory=list)

    @property
    def holds(self) -> list[Hold]:
        """All certain intervals in which a gate or key was paused or held."""
        resumed = [it for it in self.changes if it.kind == "resume"]
        found = list(self.limited)
        for change in self.changes:
            if change.kind in ("pause", "hold") and change.done < math.inf:
                until = math.inf if change.kind == "pause" else change.sent + change.what
                found.append(Hold(change.name, change.done, until))
        for hold in found:
            ends = [it.sent for it in resumed if it.name == hold.name and it.done >= hold.since - SLACK_MS]
            hold.until = min([hold.until, *ends])
        return found


def read(lines: Iterable[tuple[str, list[Any]]], visibility_ms: int) -> Records:
    """Read all lines, each with the key of its process."""
    processes: dict[str, list[list[Any]]] = {}
    for process, line in lines:
        processes.setdefault(process, []).append(line)
    found = Records()
    for process, some in processes.items():
        role = process.partition("-")[0]
        if role == "worker":
            _Worker(visibility_ms).read(some, found)
        elif role == "changer":
            _read_changer(some, found)
        elif role == "producer":
            found.accepted |= {line[1] for line in some if line[0] == "accepted"}
    _end_unfinished(found.changes)
    return found


def _read_changer(lines: Sequence[list[Any]], found: Records) -> None:
    for line in lines:
        if line[0] == "change":
            found.changes.append(Change(line[2], line[3], line[4], sent=line[1]))
        elif line[0] == "changed":
            found.changes[-1].done = line[1]


def _end_unfinished(changes: list[Change]) -> None:
    """A resumption of a changer that was killed is done, if at all, when the next one begins."""
    changes.sort(key=lambda it: it.sent)
    for change, after in itertools.pairwise(changes):
        if change.kind == "resume":
            change.done = min(change.done, after.sent)


class _Worker:
    """The attempts of one process, and until when each certainly had its lease."""

    def __init__(self, visibility_ms: int) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.leases: dict[str, float] = {}
        self._visibility_ms = visibility_ms
        self._ahead = 0.0
        self._limits: dict[str, tuple[float, str]] = {}
        self._sent: dict[int, tuple[float, list[Any]]] = {}

    def read(self, lines: Sequence[list[Any]], found: Records) -> None:
        """Read all lines of its file."""
        for kind, *rest in lines:
            if kind == "clock":
                self._ahead = rest[1] - rest[0] * 1000
            elif kind == "begin":
                self._begin(*rest)
            elif kind == "left":
                self._left(found, *rest)
            elif kind == "settle":
                self._settle(*rest)
            elif kind == "settled":
                self._settled(found, *rest)
            elif kind == "renewed":
                self._renewed(*rest)
        for token, attempt in self.attempts.items():
            attempt.leased_until = self.leases[token]
            self._cut(token, attempt.leased_until)
            found.attempts.append(attempt)

    def _begin(
        self, _: float, job_id: str, token: str, gate: str, key: str, __: int, claimed: float, number: int, unique: str
    ) -> None:
        self.attempts[token] = Attempt(job_id, gate, key, number, claimed, math.inf, unique, token=token)
        self.leases[token] = max(self.leases.get(token, 0.0), claimed + self._visibility_ms)

    def _left(self, found: Records, at: float, job_id: str, token: str, how: str, *more: Any) -> None:
        self.attempts[token].left, self.attempts[token].how = at, how
        self._cut(token, at)
        if how == "done":
            found.done.add(job_id)
        elif how == "limited":
            self._limits[token] = (more[0] * 1000, more[1])

    def _settle(self, at: float, number: int, endings: list[Any]) -> None:
        self._sent[number] = (at * 1000 + self._ahead, endings)
        for move, _, token, _ in endings:
            self._cut(token, at * 1000 + self._ahead - SLACK_MS)
            if token in self.attempts:
                self.attempts[token].moves += (move,)

    def _settled(self, found: Records, at: float, number: int, replies: list[str], _: int) -> None:
        sent, endings = self._sent[number]
        for (move, _, token, _), reply in zip(endings, replies, strict=True):
            if reply in ("OK", "DUPLICATE") and token in self.attempts:
                self.attempts[token].move = move
            if move == "limit" and reply == "OK" and token in self._limits:
                after, scope = self._limits[token]
                it = self.attempts[token]
                name = it.gate if scope == "gate" else f"{it.gate} {it.key}"
                since = at * 1000 + self._ahead + SLACK_MS
                found.limited.append(Hold(name, since, sent + after - SLACK_MS))

    def _renewed(self, since: float, _: float, renewals: list[Any]) -> None:
        until = since * 1000 + self._ahead + self._visibility_ms - SLACK_MS
        for _, token, reply in renewals:
            if reply in ("OK", "STOP"):
                self.leases[token] = max(self.leases.get(token, 0.0), until)

    def _cut(self, token: str, at: float) -> None:
        if token in self.attempts:
            self.attempts[token].held_until = min(self.attempts[token].held_until, at)
