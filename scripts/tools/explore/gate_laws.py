"""What a step says of gates, beyond the laws of states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from schedq.model.lifecycle import DELAYED, PENDING, PROCESSING
from schedq.transitions.claim import Claim
from tests import gates
from tests.gates import Gates
from tests.state import State


def claimed(found: Claim, asked: int, before: State, after: State, order: Sequence[str]) -> Iterator[str]:
    """A claim starts what may start, in the order in which the jobs were accepted if their gate keeps it."""
    yield from gates.claimed(found, asked, before, after)
    now = Gates(after)
    for job in found.jobs:
        if job.gate and now.limits(job.gate).get("serial") and job.id in order:
            yield from (
                f"{job.id} started before {earlier}, which came first"
                for earlier in order[: order.index(job.id)]
                if _is_ahead(earlier, before, job.gate, job.key)
            )
    yield from _rates(after, now)


def _is_ahead(job_id: str, before: State, gate: str, key: str) -> bool:
    """Whether a job of this key has been accepted there and has not ended."""
    job = before.job(job_id)
    if (job.get("gate"), job.get("key", "")) != (gate, key) or job_id in before.holds("pending", "list"):
        return False
    has_started = job.get("status") == DELAYED and "started_at_ms" in job
    return has_started or job.get("status") in (PENDING, PROCESSING)


def _rates(after: State, now: Gates) -> Iterator[str]:
    """In no window of a rate's length are more starts than it says; of each job, the last one is known."""
    starts = defaultdict[tuple[str, str | None], list[int]](list)
    for job_id in after.jobs():
        job = after.job(job_id)
        if job.get("gate") and "started_at_ms" in job:
            for key in (None, job.get("key", "")):
                starts[job["gate"], key].append(int(job["started_at_ms"]))
    for (gate, key), at in starts.items():
        for most, per, _ in now.limits(gate).get("rate" if key is None else "key_rate") or ():
            at.sort()
            if any(later - sooner < per for sooner, later in zip(at, at[most:], strict=False)):
                yield f"more than {most} jobs of gate {gate} {key or ''} started within {per} ms: {at}"


def enqueued(before: State, after: State) -> Iterator[str]:
    """A key that becomes ready comes after all that came before it and have not started yet."""
    started = {
        (job.get("gate"), job.get("key", "")) for name in before.jobs() if "started_at_ms" in (job := before.job(name))
    }
    now = Gates(after)
    for gate in {name.partition(" ")[0] for name in now.waiting}:
        ready, were = now.ready(gate), Gates(before).ready(gate)
        first_come = [float(tag) for key, tag in were.items() if (gate, key) not in started]
        for key in ready.keys() - were.keys():
            if first_come and float(ready[key]) <= max(first_come):
                yield f"key {key!r} of gate {gate} enters before those that came before it: {ready}"


def held(name: str, action: str, before: State, after: State) -> Iterator[str]:
    """A pause or a hold never shortens another one."""
    was, now = (Gates(state).holds.get(name, 0.0) for state in (before, after))
    if action != "resume" and now < was:
        yield f"{name} was held until {was}, and after {action} until {now}"
