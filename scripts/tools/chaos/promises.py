"""Promises about single faults of the storm, in addition to those about lost and repeated jobs.

executor_full     a worker whose default executor is full reconnects to Redis
timed_out_thread  an attempt that overruns its timeout ends in time, whatever its thread does
unknown_task      a task that a worker does not have costs no attempt, and never fails for that reason
password_refused  running jobs continue while Redis rejects the password
limited_worker    a worker that takes some tasks only gets no job of another
resources         what was entered is left, once, in reverse order; the lifespan before the first claim
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final

from schedq.model.lifecycle import FAILED
from scripts.tools.chaos.app import IGNORANT, LIMITED, MAX_ATTEMPTS, OVERRUN_TIMEOUT_S, is_taken
from scripts.tools.chaos.evidence import Evidence, Verdict
from scripts.tools.chaos.faults import SERVER
from scripts.tools.chaos.journal import Job, Resource, Start
from scripts.tools.chaos.resources import LIFESPAN, WORKER

BACK_S: Final = 3.0
"""Seconds within which a worker gets a reply again once no fault is active."""
TIMED_OUT_S: Final = OVERRUN_TIMEOUT_S + 1.5
_LEFT_WITHIN_S: Final = 3.0
"""Seconds after a handler's end within which its dependencies are left."""
_STOPPED_WITHIN_S: Final = 22.0
"""The same for a worker that was asked to stop. It is killed if it needs more than 20 s."""
_CANCELLED_WITHIN_S: Final = 1.0
"""Seconds after a fault within which a handler cancelled by it would have ended."""


def look(verdict: Verdict, evidence: Evidence) -> None:
    """Judge all promises."""
    _executor_full(verdict, evidence)
    for job in evidence.journal.jobs.values():
        _limited(verdict, job)
        if job.kind == "overrun":
            _timed_out(verdict, evidence, job)
        elif job.kind == "newcomer":
            _unknown(verdict, evidence, job)
    _refused(verdict, evidence)
    ends = {token: at for job in evidence.journal.jobs.values() for token, (at, _) in job.ends.items()}
    for process in evidence.journal.resources:
        _left(verdict, evidence, process, ends)


def _executor_full(verdict: Verdict, evidence: Evidence) -> None:
    replied: dict[str, list[float]] = {}
    for job in evidence.journal.jobs.values():
        for claim in job.claims.values():
            replied.setdefault(claim.process, []).append(claim.ended)
            ends = (op.ended for op in job.ops if op.verb == "settle" and op.token == claim.token)
            replied[claim.process] += [at for at in ends if at < math.inf]
    for instants in replied.values():
        instants.sort()
    for fault in evidence.faults:
        if fault.kind != "executor_full":
            continue
        instants = replied.get(fault.target, [])
        at = bisect_right(instants, fault.since + 0.05)
        back = instants[at] if at < len(instants) else math.inf
        died = _died(evidence, fault.target)
        until = min(back, died, evidence.ended)
        allowed = BACK_S + _hindered(evidence, fault.target, fault.since, until)
        if until == back or until - fault.since > allowed:
            verdict.hold("executor_full", until - fault.since, allowed, f"{fault.target}: the reconnection to Redis")


def _timed_out(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    for start in job.starts:
        ended = min((op.began for op in job.ops if op.verb == "settle" and op.token == start.token), default=math.inf)
        until = min(ended, _died(evidence, start.process), evidence.ended, _lost(job, start))
        allowed = TIMED_OUT_S + _hindered(evidence, start.process, start.at, until)
        if until == ended or until - start.at > allowed:
            verdict.hold("timed_out_thread", until - start.at, allowed, f"{job.id}: the end of an attempt")


def _unknown(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    """Released attempts do not count: each start must follow exactly as many other attempts."""
    back = {op.token for op in job.ops if op.move == "snooze" and op.reply in ("OK", "DUPLICATE")}
    if not any(claim.process.rpartition("-")[0] in IGNORANT for claim in job.claims.values()):
        return
    spent = sum(token not in back for token in job.claims)
    counted = max((claim.attempts for claim in job.claims.values()), default=0)
    is_failed = evidence.final.get(job.id) == FAILED and spent < MAX_ATTEMPTS
    verdict.hold("unknown_task", 0.0, 0.0, "")
    if is_failed or counted > spent + 1:
        verdict.promises["unknown_task"].broken += 1
        verdict.say("broken", f"unknown_task: {job.id} had {counted} attempts, {spent} of them spent, and "
                    f"is {evidence.final.get(job.id)}")  # fmt: skip


def _limited(verdict: Verdict, job: Job) -> None:
    for claim in job.claims.values():
        if (worker := claim.process.rpartition("-")[0]) in LIMITED:
            verdict.hold("limited_worker", 0.0, 0.0, "")
            if job.kind and not is_taken(worker, job.kind):
                verdict.promises["limited_worker"].broken += 1
                verdict.say("broken", f"limited_worker: {claim.process} got {job.id} ({job.kind})")


def _refused(verdict: Verdict, evidence: Evidence) -> None:
    stretches = [(f.since, f.until + _CANCELLED_WITHIN_S) for f in evidence.faults if f.kind == "password_refused"]
    for job in evidence.journal.jobs.values():
        for start in job.starts:
            at, how = job.ends.get(start.token, (math.inf, ""))
            if not any(start.at < since < at for since, _ in stretches):
                continue
            verdict.hold("password_refused", 0.0, 0.0, "")
            if how == "stopped" and any(since <= at <= until for since, until in stretches):
                is_asked = any(op.verb == "cancel" for op in job.ops) or _died(evidence, start.process) < math.inf
                if not is_asked and _lost(job, start) == math.inf:
                    verdict.promises["password_refused"].broken += 1
                    verdict.say("broken", f"password_refused: {job.id} ({job.kind}) was cancelled in {start.process}")


def _left(verdict: Verdict, evidence: Evidence, process: str, ends: Mapping[str, float]) -> None:
    """What a worker entered for itself and for its attempts."""
    by_owner: dict[str, list[Resource]] = {}
    for one in evidence.journal.resources[process].values():
        verdict.hold("resources", 0.0, 0.0, "")
        by_owner.setdefault(one.owner, []).append(one)
        if one.name == LIFESPAN and one.entered > evidence.journal.first_claims.get(process, math.inf):
            _broken(verdict, f"{one.name} in {process} was entered after the first claim")
    stopped = {fault.target: fault.since for fault in evidence.faults if fault.kind == "worker_restart"}
    for owner, entered in by_owner.items():
        over = stopped.get(process, math.inf) if owner == WORKER else ends.get(owner, math.inf)
        # A worker that was killed leaves nothing. One that was stopped gives up threads, but no coroutines.
        is_waited_for = process in stopped and (owner == WORKER or any(one.is_async for one in entered))
        until = evidence.ended if is_waited_for else min(_died(evidence, process), evidence.ended)
        allowed = (_STOPPED_WITHIN_S if owner == WORKER else _LEFT_WITHIN_S) + (
            evidence.stalls.of_anyone(over, until) if is_waited_for else _hindered(evidence, process, over, until)
        )
        for one in entered:
            if len(one.left) > 1:
                _broken(verdict, f"{one.name} in {process} was left {len(one.left)} times")
            elif not one.left and over + allowed < until:
                _broken(verdict, f"{one.name} in {process} was not left")
        left = [one.left[0] for one in entered if one.left]
        if left != sorted(left, reverse=True):
            _broken(
                verdict, f"{process} left {[one.name for one in entered]} of {owner or 'the worker'} in another order"
            )


def _broken(verdict: Verdict, text: str) -> None:
    verdict.promises["resources"].broken += 1
    verdict.say("broken", f"resources: {text}")


def _died(evidence: Evidence, process: str) -> float:
    """When we killed a process, or it was asked to stop."""
    return min((fault.since for fault in evidence.faults if fault.target == process and fault.until == math.inf),
               default=math.inf)  # fmt: skip


def _lost(job: Job, start: Start) -> float:
    """When an attempt's process learned that its lease was lost, or another process got the job."""
    ends = [op.ended for op in job.ops if op.token == start.token and op.reply == "LOST"]
    ends += [op.ended for op in job.ops if op.verb == "taken" and op.ended > start.at]
    return min(ends, default=math.inf)


def _hindered(evidence: Evidence, process: str, since: float, until: float) -> float:
    """Seconds for which other faults, or the machine, prevented a process from making progress."""
    kept = sum(end - begin for begin, end in _stretches(evidence, process, since, until))
    return kept + evidence.stalls.within(process, since, until) + evidence.stalls.of_anyone(since, until)


def _stretches(evidence: Evidence, process: str, since: float, until: float) -> Iterator[tuple[float, float]]:
    """Intervals of faults that leave a process its leases but prevent it from ending or starting attempts."""
    for fault in evidence.faults:
        if fault.kind in ("loop_block", "memory_squeeze") and fault.target in (process, SERVER):
            begin, end = max(fault.since, since), min(fault.until + 0.5, until)
            if begin < end:
                yield begin, end
