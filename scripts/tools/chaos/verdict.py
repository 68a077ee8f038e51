"""What is to be said of a run: what must not have happened, and what may have where a fault explains it."""

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
"""Of a lease that a process must have been kept from renewing it: a third may have passed since the last renewal, and
clocks and notes are not quite exact."""
SHARE_AT_A_STEP: Final = 0.1
"""The same when the server's clock was set forward meanwhile: a lease then ends at once, and is saved by a renewal."""
ENDS: Final = ("OK", "DUPLICATE")


def judge(evidence: Evidence) -> Verdict:
    """Look at every job."""
    verdict = Verdict()
    accounts = slots.enter(evidence)
    law = _law(evidence)
    for job in evidence.journal.jobs.values():
        verdict.jobs += job.is_accepted
        verdict.starts += len(job.starts)
        verdict.refused_ends += sum(op.verb == "settle" and op.answer == "LOST" for op in job.ops)
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
    """Ends of attempts that were accepted."""
    return (op for op in job.ops if op.verb == "settle" and op.move in moves and op.answer in ENDS)


def _look_for_loss(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    place = evidence.final.get(job.id, GONE)
    completions = list(_settled(job, "complete"))
    if completions and all(job.ends.get(op.token, (0, ""))[1] != "done" for op in completions):
        verdict.say("unfounded", f"{job.id} is called completed, and no handler came to its end")
    if not job.is_accepted or place in FINISHED:
        return
    if place != GONE:
        verdict.say("lost", f"{job.id} ({job.kind}) is {place} for good")
    elif not (completions or _was_told_of_its_end(evidence, job)):
        verdict.say("lost", f"{job.id} ({job.kind}) was accepted, and is nowhere")


def _was_told_of_its_end(evidence: Evidence, job: Job) -> bool:
    """Finished jobs are forgotten in time; then an answer, or the audit log's last word, says that they were."""
    moves = [move for move in evidence.told.get(job.id, ()) if move in (*FINISHED, "requeue")]
    if moves:
        return moves[-1] in FINISHED
    is_revived = any(op.verb == "requeue" and op.answer != "False" for op in job.ops)
    is_cancelled = any(op.verb == "cancel" and op.answer == "cancelled" for op in job.ops)
    return not is_revived and (is_cancelled or any(_settled(job, "fail")))


def _look_for_early_starts(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    for put in _puts(job):
        if not put.delay_ms or put.answer in ("LOST", "False", "full"):
            continue
        due = evidence.time.earliest(put.began, min(put.ended, evidence.ended)) + put.delay_ms
        for start in _starts_after(job, put):
            shown = evidence.time.latest(put.began, start.at)
            if shown < due - TOLERANCE_MS:
                verdict.say("early", f"{job.id} ({job.kind}) began {due - shown:.0f} ms before it was due")
            break  # later ones have other reasons


def _puts(job: Job) -> list[Op]:
    """What gave the job a due instant that nothing else took away again."""
    verbs = {op.verb for op in job.ops}
    if "requeue" in verbs:
        return []
    if "reschedule" in verbs:
        return [max((op for op in job.ops if op.verb == "reschedule"), key=lambda op: op.began)]
    return [op for op in job.ops if op.verb == "enqueue" or (op.verb == "settle" and op.move in ("retry", "snooze"))]


def _starts_after(job: Job, put: Op) -> Iterator[Start]:
    """Starts by claims that came after the request; of those that may have come before it none."""
    holder = job.claims.get(put.token)
    for start in job.starts:
        claim = job.claims.get(start.token)
        if claim is None or start.token == put.token:
            continue
        if put.verb == "enqueue" or claim.began > (put.ended if holder is None else put.began):
            yield start


def _look_for_second_starts(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    """Whoever began an attempt and did not end it has lost its lease, if another attempt was begun after it.

    Which of two claims came first is told by their answers: a request may be long on its way.
    """
    seen: set[str] = set()
    for start in job.starts:
        held = job.claims.get(start.token)
        if start.token in seen:
            verdict.say("twice_unexplained", f"{job.id}: the attempt {start.token} began twice")
        elif held is not None and not _was_ended(job, held.token):
            begun = (job.claims[other.token] for other in job.starts if other.token in job.claims)
            later = [claim for claim in begun if claim.ended > held.ended]
            if later:
                _explain(verdict, evidence, job, held, min(later, key=lambda claim: claim.ended))
        seen.add(start.token)


def _was_ended(job: Job, token: str) -> bool:
    """Whether the attempt ended by its worker's word, which may be one that was not answered."""
    return any(
        op.token == token
        and op.verb == "settle"
        and (op.answer in ENDS or (op.move != "complete" and (op.answer == UNKNOWN or op.sendings > 1)))
        for op in job.ops
    )


def _explain(verdict: Verdict, evidence: Evidence, job: Job, held: Claim, claim: Claim) -> None:
    renewals = [op for op in job.ops if op.verb == "renew" and op.token == held.token and op.answer in ("OK", "STOP")]
    since = max([held.began, *(op.began for op in renewals)])
    # A sweep that was under way when the job was last seen held has taken back the attempt before it.
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
            f"{until - since:.1f} s, and {claim.process} began it again",
        )


def _unread(evidence: Evidence, claim: Claim) -> float:
    """Seconds in which a claim's answer lay unread, since a handler stopped the loop: what it got was not renewed."""
    stretches = evidence.journal.blocks.get(claim.process, ())
    return max([0.0, *(min(claim.ended, until) - max(claim.began, since) for since, until in stretches)])


def _look_for_late_starts(verdict: Verdict, evidence: Evidence, job: Job) -> None:
    """Starts after an accepted completion: by nobody but a process that had claimed before, and then stood still."""
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
            verdict.say("after_completion", f"{job.id} ({job.kind}) began {start.at - completed:.2f} s after it")


def _look_at_order(verdict: Verdict, evidence: Evidence, job: Job, law: Law) -> None:
    if any(start.token not in job.claims for start in job.starts):
        verdict.say("illegal", f"{job.id}: an attempt began that nobody was given")
        return
    place = evidence.final.get(job.id, GONE)
    told = evidence.told.get(job.id, ())
    if place == GONE and COMPLETED in told:
        place = COMPLETED
    ops = [*_without_the_middle(job.ops), Op("seen", evidence.ended, evidence.ended, place)]
    try:
        if not is_legal(ops, law):
            verdict.say("illegal", f"{job.id} ({job.kind}): no order of these is legal: {_listed(ops)}")
    except TooLongError as error:
        verdict.say("undecided", f"{job.id} ({job.kind}): {error}")


def _without_the_middle(ops: Sequence[Op], most: int = 40) -> list[Op]:
    """Of the renewals of one claim that went well the last ones are enough."""
    if len(ops) <= most:
        return list(ops)
    kept: dict[str, Op] = {}
    rest = []
    for op in ops:
        if op.verb == "renew" and op.answer == "OK":
            kept[op.token] = op if op.token not in kept else max(op, kept[op.token], key=lambda o: o.began)
        else:
            rest.append(op)
    return rest + [replace(op) for op in kept.values()]


def _listed(ops: Sequence[Op]) -> str:
    return "; ".join(
        f"{op.verb} {op.move} {op.token[-6:]} {op.answer} #{op.number} [{op.began:.3f}, {op.ended:.3f}] x{op.sendings}"
        for op in sorted(ops, key=lambda op: op.began)
    )
