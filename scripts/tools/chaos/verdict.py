"""Verdict on a run: what must not have happened, and what is allowed because a fault explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from schedq.model.lifecycle import COMPLETED, FINISHED
from scripts.tools.chaos import promises, recovery, slots
from scripts.tools.chaos.app import MAX_ATTEMPTS
from scripts.tools.chaos.evidence import GONE, Evidence, Verdict
from scripts.tools.chaos.faults import LEASE_S
from scripts.tools.chaos.history import UNKNOWN, Law, Op, TooLongError, is_legal
from scripts.tools.chaos.journal import Claim, Job, Start
from scripts.tools.chaos.servertime import TOLERANCE_MS, ServerTime

SHARE: Final = 0.6
"""Share of a lease for which renewal must have been prevented: up to a third may have passed since the last renewal,
and clocks and records are not exact."""
SHARE_AT_A_STEP: Final = 0.1
"""The same if the server's clock was set forward in between: a lease then expires at once unless it is renewed."""
ENDS: Final = ("OK", "DUPLICATE")


def judge(evidence: Evidence) -> Verdict:
    """Judge every job."""
    verdict = Verdict()
    accounts = slots.enter(evidence)
    law = _law(evidence)
    for job in evidence.journal.jobs.values():
        verdict.jobs += job.is_accepted
        verdict.starts += len(job.starts)
        verdict.refused_ends += sum(op.verb == "settle" and op.reply == "LOST" for op in job.ops)
        job.starts.sort(key=lambda start: start.at)
        _look_for_loss(verdict, evidence, job)
        _look_for_early_starts(verdict, evidence, job)
        _look_for_second_starts(verdict, evidence, job)
        _look_for_late_starts(verdict, evidence, job)
        _look_at_order(verdict, evidence, job, law)
    recovery.look(verdict, evidence)
    promises.look(verdict, evidence)
    slots.look(verdict, evidence, accounts)
    return verdict


def can_end(time: ServerTime, since: float, until: float) -> bool:
    """Whether a lease that began no earlier than the first instant can have ended by the second."""
    return (until - since) * 1000 + time.went_ahead(since, until) >= LEASE_S * 1000 - TOLERANCE_MS


def _law(evidence: Evidence) -> Law:
    return Law(MAX_ATTEMPTS, lambda since, until: can_end(evidence.time, since, until), evidence.journal.may_be_claimed)


def _settled(job: Job, *moves: str) -> Iterator[Op]:
    """Settlements that were accepted."""
    return (op for op in job.ops if op.verb == "settle" and op.move in moves and op.reply in ENDS)


def _look_for_loss(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    place = evidence.final.get(job.id, GONE)
    completions = list(_settled(job, "complete"))
    if completions and all(job.ends.get(op.token, (0, ""))[1] != "done" for op in completions):
        verdict.say("unfounded", f"{job.id} is recorded as completed, but no handler finished")
    if not job.is_accepted or place in FINISHED:
        return
    if place != GONE:
        verdict.say("lost", f"{job.id} ({job.kind}) is stuck in {place}")
    elif not (completions or _is_known_to_have_finished(evidence, job)):
        verdict.say("lost", f"{job.id} ({job.kind}) was accepted but is not stored")


def _is_known_to_have_finished(evidence: Evidence, job: Job) -> bool:
    """Finished jobs are deleted eventually; then a reply or the audit log's last entry shows that they finished."""
    moves = [move for move in evidence.audit_log.get(job.id, ()) if move in (*FINISHED, "requeue")]
    if moves:
        return moves[-1] in FINISHED
    is_revived = any(op.verb == "requeue" and op.reply != "False" for op in job.ops)
    is_cancelled = any(op.verb == "cancel" and op.reply == "cancelled" for op in job.ops)
    return not is_revived and (is_cancelled or any(_settled(job, "fail")))


def _look_for_early_starts(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    for put in _puts(job):
        if not put.delay_ms or put.reply in ("LOST", "False", "full"):
            continue
        due = evidence.time.earliest(put.began, min(put.ended, evidence.ended)) + put.delay_ms
        for start in _starts_after(job, put):
            shown = evidence.time.latest(put.began, start.at)
            if shown < due - TOLERANCE_MS:
                verdict.say("early", f"{job.id} ({job.kind}) started {due - shown:.0f} ms before it was due")
            break  # later starts have other causes


def _puts(job: Job) -> list[Op]:
    """Requests that gave the job a due instant that no other request removed."""
    verbs = {op.verb for op in job.ops}
    if "requeue" in verbs:
        return []
    if "reschedule" in verbs:
        return [max((op for op in job.ops if op.verb == "reschedule"), key=lambda op: op.began)]
    return [op for op in job.ops if op.verb == "enqueue" or (op.verb == "settle" and op.move in ("retry", "snooze"))]


def _starts_after(job: Job, put: Op) -> Iterator[Start]:
    """Starts by claims that certainly followed the request."""
    holder = job.claims.get(put.token)
    for start in job.starts:
        claim = job.claims.get(start.token)
        if claim is None or start.token == put.token:
            continue
        if put.verb == "enqueue" or claim.began > (put.ended if holder is None else put.began):
            yield start


def _look_for_second_starts(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    """An attempt that was started and not ended must have lost its lease if another attempt was started after it.

    The order of two claims is known from their replies, because a request may be delayed.
    """
    seen: set[str] = set()
    for start in job.starts:
        held = job.claims.get(start.token)
        if start.token in seen:
            verdict.say("twice_unexplained", f"{job.id}: the attempt {start.token} was started twice")
        elif held is not None and not _was_ended(job, held.token):
            begun = (job.claims[other.token] for other in job.starts if other.token in job.claims)
            later = [claim for claim in begun if claim.ended > held.ended]
            if later:
                _explain(verdict, evidence, job, held, min(later, key=lambda claim: claim.ended))
        seen.add(start.token)


def _was_ended(job: Job, token: str) -> bool:
    """Whether the worker ended the attempt, possibly by a request without a reply."""
    return any(
        op.token == token
        and op.verb == "settle"
        and (op.reply in ENDS or (op.move != "complete" and (op.reply == UNKNOWN or op.sendings > 1)))
        for op in job.ops
    )


def _explain(verdict: Verdict, evidence: Evidence, job: Job, held: Claim, claim: Claim) -> None:
    renewals = [op for op in job.ops if op.verb == "renew" and op.token == held.token and op.reply in ("OK", "STOP")]
    since = max([held.began, *(op.began for op in renewals)])
    # A sweep that was running when the job was last seen as held took back the preceding attempt.
    ends = [op for op in job.ops if op.verb == "taken" and since < op.began <= claim.ended]
    until = max(ends, key=lambda op: op.began).ended if ends else claim.ended
    share = SHARE_AT_A_STEP if evidence.time.went_ahead(since, until) else SHARE
    kept = evidence.stalls.within(held.process, since, until) + _unread(evidence, held)
    if kept >= share * LEASE_S and can_end(evidence.time, since, until):
        verdict.twice_explained += 1
        verdict.again[evidence.stalls.longest(held.process, since, until) or "loop_block"] += 1
    else:
        verdict.say(
            "twice_unexplained",
            f"{job.id} ({job.kind}): {held.process} held it, was kept from renewing it for {kept:.1f} of "
            f"{until - since:.1f} s, and {claim.process} started it again",
        )


def _unread(evidence: Evidence, claim: Claim) -> float:
    """Seconds for which a claim's reply was unread because a handler blocked the loop: its jobs were not renewed."""
    stretches = evidence.journal.blocks.get(claim.process, ())
    return max([0.0, *(min(claim.ended, until) - max(claim.began, since) for since, until in stretches)])


def _look_for_late_starts(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    """Starts after an accepted completion: allowed only in a process that had claimed before and was then frozen."""
    completed = min((op.ended for op in _settled(job, "complete")), default=None)
    if completed is None:
        return
    for start in job.starts:
        if start.at <= completed:
            continue
        claim = job.claims.get(start.token)
        is_old = claim is not None and claim.began < completed
        kept = 0.0
        if claim is not None and is_old:
            kept = evidence.stalls.within(claim.process, claim.began, start.at) + _unread(evidence, claim)
        if kept < SHARE * LEASE_S:
            verdict.say(
                "after_completion",
                f"{job.id} ({job.kind}) was started {start.at - completed:.2f} s after its completion",
            )


def _look_at_order(verdict: Verdict, evidence: Evidence, job: Job, law: Law) -> None:
    if any(start.token not in job.claims for start in job.starts):
        verdict.say("illegal", f"{job.id}: an attempt was started that no claim returned")
        return
    place = evidence.final.get(job.id, GONE)
    moves = evidence.audit_log.get(job.id, ())
    if place == GONE and COMPLETED in moves:
        place = COMPLETED
    ops = [*_without_the_middle(job.ops), Op("seen", evidence.ended, evidence.ended, place)]
    try:
        if not is_legal(ops, law):
            verdict.say("illegal", f"{job.id} ({job.kind}): these have no legal order: {_listed(ops)}")
    except TooLongError as error:
        verdict.say("undecided", f"{job.id} ({job.kind}): {error}")


def _without_the_middle(ops: Sequence[Op], most: int = 40) -> list[Op]:
    """Keep only the last of a claim's successful renewals."""
    if len(ops) <= most:
        return list(ops)
    kept: dict[str, Op] = {}
    rest = []
    for op in ops:
        if op.verb == "renew" and op.reply == "OK":
            kept[op.token] = op if op.token not in kept else max(op, kept[op.token], key=lambda o: o.began)
        else:
            rest.append(op)
    return rest + [replace(op) for op in kept.values()]


def _listed(ops: Sequence[Op]) -> str:
    return "; ".join(
        f"{op.verb} {op.move} {op.token[-6:]} {op.reply} #{op.number} [{op.began:.3f}, {op.ended:.3f}] x{op.sendings}"
        for op in sorted(ops, key=lambda op: op.began)
    )
