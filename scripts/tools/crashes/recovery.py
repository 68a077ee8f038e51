"""What any deployment does automatically after a crash: leases expire, jobs become due, workers continue."""

from __future__ import annotations

from typing import Any, Final

from schedq.model.ids import new_request
from schedq.model.lifecycle import BROKEN, CANCELLED, COMPLETED, FAILED
from schedq.model.records import Settlement
from schedq.queue.queue import Queue
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.transitions import Operation, claim, gates, reclaim
from scripts.tools.settling import settle_all
from tests.doors import Clock
from tests.state import State

ENDED: Final = (COMPLETED, FAILED, CANCELLED, BROKEN)
_MOST_ROUNDS: Final = 12


def recover(queue: Queue, clock: Clock) -> list[str]:
    """Let time pass, and run a worker, a promoter and a reclaimer until nothing is left to do.

    Returns:
        The ids of the jobs that ran, once per run.
    """
    ran: list[str] = []
    queue.resume()
    for task in queue.list_paused_tasks():
        queue.resume(task=task)
    for name in queue._ask(_paused_gates(queue)):
        gate, _, key = name.partition(" ")
        queue._ask(gates.hold(queue.settings, gate, key if " " in name else None, "resume"))
    for _ in range(_MOST_ROUNDS):
        clock.pass_time(700)  # the longest wait between attempts is 600 s, a lease lasts 10 s
        sweep = queue._drive(reclaim.sweep(queue.settings, 0))
        queue.promote_due()
        queue._drive(fire_due(queue.settings, DefinitionCache()))
        moved = work(queue)
        ran += moved
        depths = queue.stats()
        left = sum(depths[f"{place}_depth"] for place in ("pending", "processing", "delayed", "leases"))
        if not (moved or sweep.taken_back or left or queue._ask(_marked_groups(queue))):
            break
    return ran


def _paused_gates(queue: Queue) -> Operation[list[str]]:
    words = ("ZRANGE", queue.settings.keys.gate_holds, "+inf", "+inf", "BYSCORE")
    return Operation("paused gates", None, (), words, list)


def _marked_groups(queue: Queue) -> Operation[int]:
    return Operation("marked groups", None, (), ("ZCOUNT", queue.settings.keys.groups, 0, 0), int)


def work(queue: Queue) -> list[str]:
    """Claim all available jobs and complete them; returns their ids."""
    ran: list[str] = []
    while True:
        found = queue._ask(claim.claim(queue.settings, new_request(), 50))
        ran += [job.id for job in found.jobs]
        finish(queue, found.jobs)
        if not found.jobs and not found.has_more:
            return ran


def finish(queue: Queue, jobs: Any) -> list[str]:
    """Complete claimed jobs; returns the replies."""
    ends = [Settlement("complete", job.id, job.claim_token, text='"done"', gate_key=job.gate_key) for job in jobs]
    return queue._drive(settle_all(queue.settings, ends))


def lost(state: State, accepted: set[str]) -> list[str]:
    """The state of accepted jobs that have not finished; should be empty."""
    where = {job_id: place for place, ids in state.places().items() for job_id in ids}
    return [
        f"{job_id}: {where.get(job_id, 'nowhere')}" for job_id in sorted(accepted) if where.get(job_id) not in ENDED
    ]
