"""Verdict on the slots of schedules: one job each, unless no process could fire the slot when it came.

The job of a slot is known from its handler's start, from the job's record, or from the schedule's history; all other
outcomes are known from the history only. With catch_up="latest" the last slot of an outage replaces the others. An
outage is a period in which the server, or the process with the promoter lease, could not fire slots. If the holder is
killed, another process takes over when its lease has expired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from scripts.tools.chaos.app import SLOT_S
from scripts.tools.chaos.evidence import Evidence, Verdict
from scripts.tools.chaos.faults import SERVER
from scripts.tools.chaos.history import FOREVER, UNKNOWN, Op
from scripts.tools.chaos.journal import Job
from scripts.tools.chaos.servertime import TOLERANCE_MS
from scripts.tools.chaos.timetable import Line, Plan

SLOT_MS: Final = SLOT_S * 1000
HELD_S: Final = 2.5
"""Seconds before a slot within which a process seen as holder of the promoter lease may still have held it: the lease
lasts 1.5 s, and looks are recorded a little late."""


@dataclass(slots=True)
class Account:
    """What is known about a schedule's slots.

    Attributes:
        fired: slot → its job.
        coalesced: slot → the line of the history that says so.
        mentions: number of history lines that mention each slot.
    """

    plan: Plan
    fired: dict[int, str] = field(default_factory=dict)
    coalesced: dict[int, Line] = field(default_factory=dict)
    mentions: Counter[int] = field(default_factory=Counter)


def enter(evidence: Evidence) -> list[Account]:
    """Collect what is known; from here on, jobs of slots count as accepted, as if a producer had enqueued them."""
    accounts = {plan.id: Account(plan) for plan in evidence.plans}
    for plan in evidence.plans:
        _read(accounts[plan.id])
    journal = evidence.journal
    for job_id in [*journal.jobs, *evidence.final, *evidence.audit_log]:
        name, _, number = job_id.rpartition("-")
        if name in accounts and number.isdigit():
            accounts[name].fired[int(number)] = job_id
    for account in accounts.values():
        for slot, job_id in account.fired.items():
            job = journal.job(job_id)
            job.kind, job.is_accepted = "tick", True
            came = evidence.time.reached(slot, account.plan.began, evidence.ended)
            job.ops.append(Op("enqueue", came, FOREVER, UNKNOWN))
    return list(accounts.values())


def _read(account: Account) -> None:
    for line in account.plan.lines:
        slots = range(line.slot_ms, line.to_ms + 1, SLOT_MS)
        account.mentions.update(slots)
        if line.outcome == "fired":
            account.fired[line.slot_ms] = line.what
        elif line.outcome == "coalesced":
            account.coalesced |= dict.fromkeys(slots, line)


def look(verdict: Verdict, evidence: Evidence, accounts: list[Account]) -> None:
    """Judge every slot of every schedule."""
    for account in accounts:
        plan = account.plan
        if not plan.next_ms:
            verdict.say("slots_missed", f"schedule {plan.id}: its final state could not be read")
            continue
        _look_for_second_jobs(verdict, evidence, account)
        _look_for_early_ones(verdict, evidence, account)
        _look_for_missed_ones(verdict, evidence, account)
    for queue, count in evidence.fired.items():
        known = sum(len(account.fired) for account in accounts if account.plan.queue == queue)
        if count != known:
            verdict.say("slots_twice", f"queue {queue}: {count} jobs were created from {known} slots")


def _look_for_second_jobs(verdict: Verdict, evidence: Evidence, account: Account) -> None:
    name = account.plan.id
    for slot, count in account.mentions.items():
        if count > 1:
            verdict.say("slots_twice", f"schedule {name}: {count} entries of its history mention slot {slot}")
    for slot in sorted(account.fired.keys() & account.coalesced.keys()):
        verdict.say("slots_twice", f"schedule {name}: slot {slot} has a job although another slot replaced it")
    for job_id in account.fired.values():
        if len(_completions(evidence.journal.job(job_id))) > 1:
            verdict.say("slots_twice", f"schedule {name}: {job_id} was completed by two attempts")


def _completions(job: Job) -> set[str]:
    return {op.token for op in job.ops if op.verb == "settle" and op.move == "complete" and op.reply == "OK"}


def _look_for_early_ones(verdict: Verdict, evidence: Evidence, account: Account) -> None:
    plan = account.plan
    for slot, job_id in account.fired.items():
        if slot % SLOT_MS:
            verdict.say("early", f"{job_id}: the schedule has no such slot")
        elif slot >= plan.next_ms:
            verdict.say("early", f"{job_id} was created while the schedule's next slot was {plan.next_ms}")
        for start in evidence.journal.job(job_id).starts[:1]:
            shown = evidence.time.latest(plan.began, start.at)
            if shown < slot - TOLERANCE_MS:
                verdict.say("early", f"{job_id} started {slot - shown:.0f} ms before its slot")


def _look_for_missed_ones(verdict: Verdict, evidence: Evidence, account: Account) -> None:
    plan = account.plan
    upcoming = plan.written_ms // SLOT_MS * SLOT_MS + SLOT_MS
    first = min(chain(account.mentions, account.fired, [upcoming]))  # read a moment before it was written
    excuses: dict[Line, str] = {}
    for slot in range(first, plan.next_ms, SLOT_MS):
        verdict.slots += 1
        line = account.coalesced.get(slot)
        if slot in account.fired:
            continue
        if line is None:
            verdict.say("slots_missed", f"schedule {plan.id}: slot {slot} has no outcome")
            continue
        if line not in excuses:
            excuses[line] = _excuse(evidence, account, line)
        verdict.slots_coalesced += excuses[line] == "outage"
        verdict.slots_leapt += excuses[line] == "step"
        if not excuses[line]:
            verdict.say(
                "slots_missed", f"schedule {plan.id}: slot {slot} was replaced by {line.what} and no fault explains it"
            )


def _excuse(evidence: Evidence, account: Account, line: Line) -> str:
    """Why slots were allowed to be replaced: an "outage", or a "step" of the server's clock past them; '' if not."""
    plan = account.plan
    if plan.catch_up != "latest" or int(line.what) not in account.fired:
        return ""
    came = evidence.time.instants(line.slot_ms, plan.began, evidence.ended)
    went = evidence.time.instants(line.at_ms, plan.began, evidence.ended)
    if not came or not went or evidence.time.stepped(came[0], went[-1]):
        return "step"
    since, until = came[0], max(went[-1], came[0])
    squeezed = any(f.kind == "memory_squeeze" and f.since < until and f.until > since for f in evidence.faults)
    is_kept = any(
        evidence.stalls.within(process, since - HELD_S, until) for process in _holders(evidence, plan, since, until)
    )
    return "outage" if squeezed or is_kept or evidence.stalls.within(SERVER, since, until) else ""


def _holders(evidence: Evidence, plan: Plan, since: float, until: float) -> Iterator[str]:
    """Processes that may have held the promoter lease at that time, by their own records."""
    for process, instants in evidence.journal.held.get(plan.queue, {}).items():
        if any(since - HELD_S <= instant <= until for instant in instants):
            yield process
