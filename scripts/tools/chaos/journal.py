"""What all processes wrote down, by job."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scripts.tools.chaos.history import FOREVER, UNKNOWN, Op


@dataclass(frozen=True, slots=True)
class Claim:
    """An attempt as it was given to a process; `crashes` is how many leases the job had lost before."""

    token: str
    process: str
    began: float
    ended: float
    attempts: int
    crashes: int


@dataclass(frozen=True, slots=True)
class Start:
    """A handler began."""

    at: float
    token: str
    process: str


@dataclass(slots=True)
class Job:
    """One job, over all processes.

    Attributes:
        is_accepted: its producer was told that it is stored.
        ops: what was asked about it.
        claims: by token.
        ends: how the handler of a token ended, by its own word, and when.
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
        gaps: process → stretches in which it stood still.
        blocks: process → stretches in which a handler stopped its event loop.
        last_sign: process → when it last started a job, or looked as a promoter.
        held: queue → process → when it found that it held the promoter lease.
        ghosts: instants of claims that were never answered, in order. Who asked afterwards what such a claim has got
            may have been quicker than the claim, which comes late out of a black hole.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.gaps: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.blocks: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.last_sign: dict[str, float] = {}
        self.held: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.ghosts: list[float] = []
        self.refused = 0
        self._wanted: dict[str, Op] = {}  # tag → an enqueue whose outcome, and so its id, is not known
        self._kinds: dict[str, str] = {}
        self._claims: dict[tuple[str, str], float] = {}
        self._settles: dict[tuple[str, int], tuple[float, list[Any]]] = {}
        self._requests: dict[tuple[str, int], tuple[float, str, list[Any]]] = {}

    @classmethod
    def of(cls, lines: Iterable[tuple[str, list[Any]]]) -> Journal:
        """Read everything."""
        journal = cls()
        for process, (kind, *fields) in lines:
            getattr(journal, f"_{kind}")(process, *fields)
        journal._close()
        return journal

    def may_be_claimed(self, since: float, until: float, late_s: float = 15.0) -> bool:
        """Whether a claim without an answer can have been carried out; what a black hole held comes `late_s` later."""
        at = bisect_left(self.ghosts, since - late_s)
        return at < len(self.ghosts) and self.ghosts[at] <= until

    def job(self, job_id: str) -> Job:
        """The job of that id; a new one if nothing was said of it so far."""
        return self.jobs.setdefault(job_id, Job(job_id))

    # -- lines, by their kind

    def _gap(self, process: str, since: float, until: float) -> None:
        self.gaps[process].append((since, until))

    def _block(self, process: str, since: float, until: float) -> None:
        self.blocks[process].append((since, until))

    def _start(self, process: str, at: float, job_id: str, attempt: int, token: str, tag: str, wall: float) -> None:
        job = self.job(job_id)
        job.starts.append(Start(at, token, process))
        self.last_sign[process] = max(at, self.last_sign.get(process, 0.0))
        if not job.kind:
            job.kind = tag  # until all is read

    def _end(self, process: str, at: float, job_id: str, attempt: int, token: str, how: str) -> None:
        self.job(job_id).ends[token] = (at, how)

    def _claim(self, process: str, at: float, request: str) -> None:
        self._claims[process, request] = at

    def _claimed(self, process: str, at: float, request: str, jobs: list[Any]) -> None:
        self._got(process, self._claims.pop((process, request)), at, jobs)

    def _recovered(self, process: str, at: float, request: str, jobs: list[Any]) -> None:
        # A worker asks again, too, for a claim whose answer came after the lease's end: what it got is known by then.
        self._got(process, self._claims.get((process, request), at), at, jobs)

    def _got(self, process: str, began: float, at: float, jobs: list[Any]) -> None:
        for job_id, token, attempts, crashes in jobs:
            job = self.job(job_id)
            if token not in job.claims:
                job.claims[token] = Claim(token, process, began, at, attempts, crashes)
                job.ops.append(Op("claim", began, at, "OK", token, number=attempts))

    def _settle(self, process: str, at: float, number: int, items: list[Any]) -> None:
        self._settles[process, number] = (at, items)

    def _settled(self, process: str, at: float, number: int, answers: list[str], sendings: int) -> None:
        began, items = self._settles.pop((process, number))
        for (move, job_id, token, delay_ms), answer in zip(items, answers, strict=True):
            if answer != "AGAIN":
                op = Op("settle", began, at, answer, token, move, delay_ms=int(delay_ms), sendings=sendings)
                self.job(job_id).ops.append(op)

    def _renewed(self, process: str, began: float, at: float, told: list[Any]) -> None:
        for job_id, token, answer in told:
            self.job(job_id).ops.append(Op("renew", began, at, answer, token))

    def _taken(self, process: str, began: float, at: float, ids: list[str]) -> None:
        for job_id in ids:
            self.job(job_id).ops.append(Op("taken", began, at, "OK"))

    def _look(self, process: str, at: float, key: str) -> None:
        self.last_sign[process] = max(at, self.last_sign.get(process, 0.0))

    def _held(self, process: str, at: float, key: str) -> None:
        self.held[key.split(":")[1]][process].append(at)

    def _do(self, process: str, at: float, number: int, verb: str, what: list[Any]) -> None:
        self._requests[process, number] = (at, verb, what)

    def _did(self, process: str, at: float, number: int, answer: Any) -> None:
        began, verb, what = self._requests.pop((process, number))
        self._request(began, FOREVER if answer is None else at, verb, what, answer)

    def _request(self, began: float, ended: float, verb: str, what: list[Any], answer: Any) -> None:
        if verb == "enqueue":
            answers = answer if isinstance(answer, list) else [answer] * len(what)
            for (tag, delay_ms, kind, attempts), job_id in zip(what, answers, strict=True):
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
        word = UNKNOWN if answer is None else str(answer)
        self.job(job_id).ops.append(Op(verb, began, ended, word, delay_ms=rest[0] if rest else None))

    def _close(self) -> None:
        """What was asked and never answered is open for ever."""
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
