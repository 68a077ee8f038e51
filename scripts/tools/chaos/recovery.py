"""How soon jobs of killed workers started elsewhere, or had failed, when no other fault was active.

This is promised while a reclaimer is running. If the reclaimer was killed with its worker, another has to take over
first; that time is measured as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from scripts.tools.chaos.evidence import Evidence, Verdict
from scripts.tools.chaos.faults import LEASE_S
from scripts.tools.chaos.journal import Claim, Job, Journal

RECLAIM_S: Final = LEASE_S + 1.5
GIVE_UP_S: Final = 2 * LEASE_S + 1.5
"""The limit for a job without attempts left: the time until it counts as failed."""


def look(verdict: Verdict, evidence: Evidence) -> None:
    """Measure and judge this for every job that killed workers held."""
    deaths = {fault.target: fault.since for fault in evidence.faults if fault.is_calm}
    if not deaths:
        return
    takeovers = list(_takeovers(evidence.journal, deaths))
    verdict.takeover_max_ms = round(max((after - died for died, after in takeovers), default=0) * 1000)
    lateness = {
        died: _lateness(evidence, died, died + RECLAIM_S) + _without_a_reclaimer(takeovers, died)
        for died in deaths.values()
    }
    for job in evidence.journal.jobs.values():
        for claim in job.claims.values():
            if (died := deaths.get(claim.process)) is None or not _is_held(job, claim, died):
                continue
            later = [s.at for s in job.starts if s.token in job.claims and job.claims[s.token].began > claim.began]
            if later and claim.crashes == 0:
                _recovered(verdict, evidence, job, died, min(later), lateness[died])
            ends = [op.ended for op in job.ops if op.verb == "taken" and op.ended > died]
            if ends and 0 < _most(job) <= claim.attempts:
                _given_up(verdict, evidence, job, died, min(ends), lateness[died])


def _is_held(job: Job, claim: Claim, died: float) -> bool:
    return claim.ended < died and not any(op.verb == "settle" and op.token == claim.token for op in job.ops)


def _recovered(verdict: Verdict, evidence: Evidence, job: Job, died: float, began: float, late: float) -> None:
    verdict.recovered += 1
    verdict.recovery_max_ms = max(verdict.recovery_max_ms, round((began - died) * 1000))
    allowed = RECLAIM_S + evidence.stalls.of_anyone(died, began) + late
    if began - died > allowed:
        verdict.say(
            "recovered_late",
            f"{job.id} began {began - died:.1f} s after its worker's death; the limit is {allowed:.1f} s",
        )


def _most(job: Job) -> int:
    """Its maximum number of attempts if the producer set one, else 0."""
    return max((op.number for op in job.ops if op.verb == "enqueue"), default=0)


def _given_up(verdict: Verdict, evidence: Evidence, job: Job, died: float, ended: float, late: float) -> None:
    verdict.given_up += 1
    verdict.given_up_max_ms = max(verdict.given_up_max_ms, round((ended - died) * 1000))
    allowed = GIVE_UP_S + evidence.stalls.of_anyone(died, ended) + late
    if ended - died > allowed:
        verdict.say(
            "recovered_late",
            f"{job.id} failed {ended - died:.1f} s after its worker's death; the limit is {allowed:.1f} s",
        )


def _takeovers(journal: Journal, deaths: Mapping[str, float]) -> Iterator[tuple[float, float]]:
    """Instants at which holders of promoter leases were killed, each with the instant of the takeover."""
    for holders in journal.held.values():
        looks = sorted((at, process) for process, instants in holders.items() for at in instants)
        for (at, process), (after, other) in pairwise(looks):
            if process != other and at <= deaths.get(process, -1.0) <= after:
                yield deaths[process], after


def _without_a_reclaimer(takeovers: list[tuple[float, float]], died: float) -> float:
    """Seconds, within the time in which a job had to be restarted, for which some queue had no reclaimer."""
    until = died + RECLAIM_S
    return max(
        (min(after, until) - max(since, died) for since, after in takeovers if since < until and after > died),
        default=0.0,
    )


def _lateness(evidence: Evidence, since: float, until: float) -> float:
    """How slow the machine is at the moment, judged by the late starts of delayed jobs."""
    late = 0.0
    for job in evidence.journal.jobs.values():
        put = next((op for op in job.ops if op.verb == "enqueue"), None)
        if put is None or not put.delay_ms or not job.starts or any(op.verb == "reschedule" for op in job.ops):
            continue
        due = put.ended + put.delay_ms / 1000
        if since <= due <= until:
            late = max(late, min(start.at for start in job.starts) - due)
    return late
