"""What must not have happened on a cluster, and what is allowed because a fault explains it.

These must be 0:

    lost          accepted jobs without an attempt that finished, or that are not completed at the end
    early         starts before the job's delay, or the pause before its retry, was over
    twice         attempts that were started although the job's earlier attempt had its lease, or had completed it
    waiting       states other than `completed` that have jobs at the end
    unlawful      violations of the laws of `tests/state.py` at the end
    not_whole     the cluster did not recover, a replica is missing, or keys are on a node that does not own them
    tracebacks    exceptions of schedq in the logs
    deaths        processes that ended by themselves

Replication is asynchronous. What a node wrote in the last moment before it was killed, or stopped until its replica
took over, may be lost. What a stopped node writes when it continues, until it learns of its successor, is lost. A reply
of such a moment may be about a lost write. That explains a second start, and the loss of a job that was accepted with
durability="memory"; both are counted apart, as `unreplicated`. It explains neither the loss of a job that was accepted
when the replica had it, nor an early start.

Second starts that a fault explains are counted by that fault in `again`: it killed the process, or kept it from
renewing the lease.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scripts.tools.chaos.faults import LEASE_S, SERVER, Fault
from scripts.tools.chaos.history import Op
from scripts.tools.chaos.journal import Claim, Job, Journal
from scripts.tools.chaos.stalls import Stalls
from scripts.tools.chaos.verdict import ENDS, SHARE

LAG_S: Final = 1.0
"""How far a replica may be behind its primary when that dies; on a loopback it is far less, unless a CPU is busy."""
_READ_S: Final = 0.2
"""How long a reply may be on its way to a process that then records it."""
_TOLERANCE_S: Final = 0.005
"""How far the monotonic clock may drift from that of Redis during a delay."""
_MEMORY: Final = "memory"
FAULTS: Final = ("lost", "early", "twice", "waiting", "unlawful", "not_whole", "tracebacks", "deaths")


@dataclass(frozen=True, slots=True)
class Outage:
    """A fault of a node.

    Attributes:
        node: its port.
        queues: those on the node.
        until: when the cluster served them again, according to its nodes.
        lost: intervals in which a reply may be about a write that was lost with the node.
    """

    kind: str
    node: int
    queues: tuple[str, ...]
    since: float
    until: float
    lost: tuple[tuple[float, float], ...] = ()


@dataclass
class Findings:
    """What a run has shown; all of `FAULTS` must be zero.

    Attributes:
        unreplicated: what writes explain that were lost with a node: `again`, second starts; `jobs`, lost jobs.
        again: second starts, counted by the fault that explains them.
    """

    lost: int = 0
    early: int = 0
    twice: int = 0
    waiting: int = 0
    unlawful: int = 0
    not_whole: int = 0
    tracebacks: int = 0
    deaths: int = 0
    unreplicated: Counter[str] = field(default_factory=lambda: Counter(again=0, jobs=0))
    again: Counter[str] = field(default_factory=Counter)
    judged: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def say(self, kind: str, text: str) -> None:
        """Record a fault."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.complaints.append(f"{kind}: {text}")


def queue_of(job_id: str) -> str:
    """The queue of a job, which its id begins with."""
    return job_id.partition("-")[0]


class Judge:
    """Judges every job of a run.

    Args:
        kills: of processes.
        final: job id → its state at the end; without those that are not stored.
    """

    def __init__(
        self,
        journal: Journal,
        outages: Sequence[Outage],
        kills: Sequence[Fault],
        final: Mapping[str, str],
        found: Findings,
    ) -> None:
        self._journal, self._final, self._found = journal, final, found
        self._outages: dict[str, list[Outage]] = defaultdict(list)
        for outage in outages:
            for queue in outage.queues:
                self._outages[queue].append(outage)
        directors = [key for key in journal.gaps if key.startswith("director")]
        self._stalls = {
            queue: Stalls([*kills, *(Fault(o.kind, o.since, o.until, SERVER) for o in some)], journal.gaps, directors)
            for queue, some in self._outages.items()
        }
        self._calm = Stalls(kills, journal.gaps, directors)

    def judge(self) -> None:
        """Judge them."""
        for job in self._journal.jobs.values():
            job.starts.sort(key=lambda start: start.at)
            self._look_for_loss(job)
            self._look_for_early_starts(job)
            self._look_for_second_starts(job)
            self._look_for_late_starts(job)

    def _may_be_lost(self, job: Job, at: float) -> bool:
        """Whether a reply of this instant may be about a write that was lost with its node."""
        lost = (interval for outage in self._outages[queue_of(job.id)] for interval in outage.lost)
        return any(since <= at <= until + _READ_S for since, until in lost)

    def _stalls_of(self, job: Job) -> Stalls:
        return self._stalls.get(queue_of(job.id), self._calm)

    # -- laws

    def _look_for_loss(self, job: Job) -> None:
        if not job.is_accepted:
            return
        self._found.judged["jobs"] += 1
        place = self._final.get(job.id, "gone")
        has_run = any(how == "done" for _, how in job.ends.values())
        if place == "completed" and has_run:
            return
        accepted = max(op.ended for op in job.ops if op.verb == "enqueue")
        if place == "gone" and job.kind.startswith(_MEMORY) and self._may_be_lost(job, accepted):
            self._found.unreplicated["jobs"] += 1
        else:
            ran = "has run" if has_run else "never ran to its end"
            self._found.say("lost", f"{job.id} ({job.kind}) was accepted at {accepted:.3f}, {ran} and is {place}")

    def _look_for_early_starts(self, job: Job) -> None:
        for put in job.ops:
            is_new = put.verb == "enqueue"
            if not (is_new or (put.verb == "settle" and put.move == "retry" and put.reply in ENDS)) or not put.delay_ms:
                continue
            if not is_new and self._may_be_lost(job, put.ended):
                continue
            self._found.judged["delays"] += 1
            due = put.began + put.delay_ms / 1000
            for start in job.starts:
                claim = job.claims.get(start.token)
                if start.token != put.token and (is_new or (claim is not None and claim.began > put.ended)):
                    if start.at < due - _TOLERANCE_S:
                        early = (due - start.at) * 1000
                        self._found.say("early", f"{job.id} ({job.kind}) started {early:.0f} ms before it was due")
                    break

    def _look_for_second_starts(self, job: Job) -> None:
        seen: set[str] = set()
        begun = {start.token: job.claims[start.token] for start in job.starts if start.token in job.claims}
        for start in job.starts:
            held = job.claims.get(start.token)
            self._found.judged["starts"] += 1
            if held is None:
                self._found.say("twice", f"{job.id}: an attempt was started that no claim returned")
            elif start.token in seen:
                self._found.say("twice", f"{job.id}: the attempt {start.token} was started twice")
            elif later := [claim for claim in begun.values() if claim.ended > held.ended]:
                self._judge_pair(job, held, min(later, key=lambda claim: claim.ended))
            seen.add(start.token)

    def _judge_pair(self, job: Job, held: Claim, later: Claim) -> None:
        """Two attempts, one after the other."""
        ends = [op for op in _of(job, held, "settle") if op.reply in ENDS]
        completed = [op for op in ends if op.move == "complete"]
        if completed:
            if any(self._may_be_lost(job, at) for at in (*(op.ended for op in completed), later.ended)):
                self._found.unreplicated["again"] += 1
            else:
                text = (
                    f"{held.process} had completed it at {completed[0].ended:.3f}, and {later.process} started it again"
                )
                self._found.say("twice", f"{job.id} ({job.kind}): {text}, claimed at {later.ended:.3f}")
        elif not ends and not any(_may_have_ended(op) for op in _of(job, held, "settle")):
            self._explain(job, held, later)

    def _explain(self, job: Job, held: Claim, later: Claim) -> None:
        """An attempt that was not ended must have lost its lease, or a write about it was lost."""
        renewals = [op for op in _of(job, held, "renew") if op.reply in ("OK", "STOP") and op.began <= later.ended]
        since, stalls = max([held.began, *(op.began for op in renewals)]), self._stalls_of(job)
        kept = stalls.within(held.process, since, later.ended)
        if later.ended - since >= LEASE_S - 10 * _TOLERANCE_S and kept >= SHARE * LEASE_S:
            self._found.again[stalls.longest(held.process, since, later.ended)] += 1
        elif self._is_unfounded(job, [(held.began, held.ended), *((op.began, op.ended) for op in renewals)], later):
            self._found.unreplicated["again"] += 1
        else:
            self._found.say(
                "twice",
                f"{job.id} ({job.kind}): {held.process} held it, was kept from renewing it for {kept:.1f} of "
                f"{later.ended - since:.1f} s since {since:.3f}, and {later.process} started it again",
            )

    def _is_unfounded(self, job: Job, confirmed: Sequence[tuple[float, float]], later: Claim) -> bool:
        """Whether the later claim, or what it contradicts in the lease that was confirmed, may have been lost."""
        kept = [began for began, ended in confirmed if not self._may_be_lost(job, ended)]
        may_have_ended = not kept or later.ended - max(kept) >= LEASE_S - 10 * _TOLERANCE_S
        return self._may_be_lost(job, later.ended) or (may_have_ended and len(kept) < len(confirmed))

    def _look_for_late_starts(self, job: Job) -> None:
        """Starts after a completion, by a claim from before: its process must have been kept from noticing."""
        completions = [op.ended for op in job.ops if op.verb == "settle" and op.move == "complete" and op.reply in ENDS]
        if not completions:
            return
        completed = min(completions)
        for start in job.starts:
            claim = job.claims.get(start.token)
            if claim is None or start.at <= completed or claim.began > completed:
                continue
            kept = self._stalls_of(job).within(claim.process, claim.began, start.at)
            if kept < SHARE * LEASE_S and not any(self._may_be_lost(job, at) for at in (completed, claim.ended)):
                late = start.at - completed
                self._found.say("twice", f"{job.id} ({job.kind}) was started {late:.2f} s after its completion")


def _of(job: Job, claim: Claim, verb: str) -> Iterator[Op]:
    """The requests about an attempt."""
    return (op for op in job.ops if op.verb == verb and op.token == claim.token)


def _may_have_ended(op: Op) -> bool:
    """Whether a retry was perhaps carried out by a request without a reply."""
    return op.move != "complete" and (op.ended == math.inf or op.sendings > 1)
