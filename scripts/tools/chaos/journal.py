"""The records of all processes, by job."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scripts.tools.chaos.history import FOREVER, UNKNOWN, Op


@dataclass(frozen=True, slots=True)
class Claim:
    """An attempt as handed to a process; `crashes` is the number of leases that the job had lost before."""

    token: str
    process: str
    began: float
    ended: float
    attempts: int
    crashes: int


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a handler."""

    at: float
    token: str
    process: str


@dataclass(slots=True)
class Resource:
    """Something that a worker entered for an attempt, or for itself if the owner is ''; `left` holds instants."""

    owner: str
    name: str
    entered: float
    left: list[float] = field(default_factory=list)

    @property
    def is_async(self) -> bool:
        """Whether only async handlers have it."""
        return self.name.startswith("session")


@dataclass(slots=True)
class Job:
    """One job, over all processes.

    Attributes:
        is_accepted: its producer got the reply that the job is stored.
        ops: the requests about it.
        claims: by token.
        ends: token → how its handler ended, as recorded by the handler itself, and when.
    """

    id: str
    kind: str = ""
    is_accepted: bool = False
    ops: list[Op] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    ends: dict[str, tuple[float, str]] = field(default_factory=dict)


class Journal:
    """All jobs of a run.

    Attributes:
        gaps: process → intervals in which it was frozen.
        blocks: process → intervals in which a handler blocked its event loop.
        last_sign: process → when it last started a job, or looked as a promoter.
        resources: process → what it entered, by number.
        first_claims: process → when it sent its first claim.
        held: queue → process → instants at which it found that it held the promoter lease.
        ghosts: instants of claims without a reply, in order. A worker that asks afterwards what such a claim got may be
            faster than the claim itself, which a black hole delays.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.gaps: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.blocks: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.last_sign: dict[str, float] = {}
        self.resources: dict[str, dict[int, Resource]] = defaultdict(dict)
        self.first_claims: dict[str, float] = {}
        self.held: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.ghosts: list[float] = []
        self.refused = 0
        self._wanted: dict[str, Op] = {}  # tag → an enqueue with unknown outcome and therefore unknown id
        self._kinds: dict[str, str] = {}
        self._claims: dict[tuple[str, str], float] = {}
        self._settles: dict[tuple[str, int], tuple[float, list[Any]]] = {}
        self._requests: dict[tuple[str, int], tuple[float, str, list[Any]]] = {}

    @classmethod
    def of(cls, lines: Iterable[tuple[str, list[Any]]]) -> Journal:
        """Read all records."""
        journal = cls()
        for process, (kind, *fields) in lines:
            getattr(journal, f"_{kind}")(process, *fields)
        journal._close()
        return journal

    def may_be_claimed(self, since: float, until: float, late_s: float = 15.0) -> bool:
        """Whether an unanswered claim may have been executed; a black hole may delay it by `late_s`."""
        at = bisect_left(self.ghosts, since - late_s)
        return at < len(self.ghosts) and self.ghosts[at] <= until

    def job(self, job_id: str) -> Job:
        """The job with that id, created if it is new."""
        return self.jobs.setdefault(job_id, Job(job_id))

    # -- lines, by kind

    def _gap(self, process: str, since: float, until: float) -> None:
        self.gaps[process].append((since, until))

    def _block(self, process: str, since: float, until: float) -> None:
        self.blocks[process].append((since, until))

    def _start(self, process: str, at: float, job_id: str, attempt: int, token: str, tag: str, wall: float) -> None:
        job = self.job(job_id)
        job.starts.append(Start(at, token, process))
        self.last_sign[process] = max(at, self.last_sign.get(process, 0.0))
        if not job.kind:
            job.kind = tag  # replaced once everything has been read

    def _end(self, process: str, at: float, job_id: str, attempt: int, token: str, how: str) -> None:
        self.job(job_id).ends[token] = (at, how)

    def _entered(self, process: str, at: float, number: int, owner: str, name: str) -> None:
        self.resources[process][number] = Resource(owner, name, at)

    def _left(self, process: str, at: float, number: int) -> None:
        self.resources[process][number].left.append(at)

    def _claim(self, process: str, at: float, request: str) -> None:
        self.first_claims.setdefault(process, at)
        self._claims[process, request] = at

    def _claimed(self, process: str, at: float, request: str, jobs: list[Any]) -> None:
        self._got(process, self._claims.pop((process, request)), at, jobs)

    def _recovered(self, process: str, at: float, request: str, jobs: list[Any]) -> None:
        # A worker also asks again for a claim whose reply came after the lease had ended: what it got is known by then.
        self._got(process, self._claims.get((process, request), at), at, jobs)

    def _got(self, process: str, began: float, at: float, jobs: list[Any]) -> None:
        for job_id, token, attempts, crashes in jobs:
            job = self.job(job_id)
            if token not in job.claims:
                job.claims[token] = Claim(token, process, began, at, attempts, crashes)
                job.ops.append(Op("claim", began, at, "OK", token, number=attempts))

    def _settle(self, process: str, at: float, number: int, items: list[Any]) -> None:
        self._settles[process, number] = (at, items)

    def _settled(self, process: str, at: float, number: int, replies: list[str], sendings: int) -> None:
        began, items = self._settles.pop((process, number))
        for (move, job_id, token, delay_ms), reply in zip(items, replies, strict=True):
            if reply != "AGAIN":
                op = Op("settle", began, at, reply, token, move, delay_ms=int(delay_ms), sendings=sendings)
                self.job(job_id).ops.append(op)

    def _renewed(self, process: str, began: float, at: float, words: list[Any]) -> None:
        for job_id, token, reply in words:
            self.job(job_id).ops.append(Op("renew", began, at, reply, token))

    def _taken(self, process: str, began: float, at: float, ids: list[str]) -> None:
        for job_id in ids:
            self.job(job_id).ops.append(Op("taken", began, at, "OK"))

    def _look(self, process: str, at: float, key: str) -> None:
        self.last_sign[process] = max(at, self.last_sign.get(process, 0.0))

    def _held(self, process: str, at: float, key: str) -> None:
        self.held[key.split(":")[1]][process].append(at)

    def _do(self, process: str, at: float, number: int, verb: str, what: list[Any]) -> None:
        self._requests[process, number] = (at, verb, what)

    def _did(self, process: str, at: float, number: int, reply: Any) -> None:
        began, verb, what = self._requests.pop((process, number))
        self._request(began, FOREVER if reply is None else at, verb, what, reply)

    def _request(self, began: float, ended: float, verb: str, what: list[Any], reply: Any) -> None:
        if verb == "enqueue":
            replies = reply if isinstance(reply, list) else [reply] * len(what)
            for (tag, delay_ms, kind, attempts), job_id in zip(what, replies, strict=True):
                word = "full" if job_id == "full" else UNKNOWN if job_id is None else "OK"
                op = Op("enqueue", began, ended, word, number=attempts or 0, delay_ms=delay_ms)
                self._kinds[tag] = kind
                if word == "OK":
                    job = self.job(job_id)
                    job.is_accepted, job.kind = True, tag
                    job.ops.append(op)
                else:
                    self.refused += word == "full"
                    self._wanted[tag] = op
            return
        (job_id, *rest), *_ = what
        word = UNKNOWN if reply is None else str(reply)
        self.job(job_id).ops.append(Op(verb, began, ended, word, delay_ms=rest[0] if rest else None))

    def _close(self) -> None:
        """Give requests without a reply an open end."""
        self.ghosts = sorted(self._claims.values())
        for began, items in self._settles.values():
            for move, job_id, token, delay_ms in items:
                op = Op("settle", began, FOREVER, UNKNOWN, token, move, delay_ms=int(delay_ms))
                self.job(job_id).ops.append(op)
        for began, verb, what in self._requests.values():
            self._request(began, FOREVER, verb, what, None)
        for job in self.jobs.values():
            tag = job.kind
            if not job.is_accepted and tag in self._wanted:
                job.ops.append(self._wanted[tag])
            elif not job.is_accepted and job.id in self._wanted:
                job.ops.append(self._wanted[job.id])
            job.kind = self._kinds.get(tag, "")
