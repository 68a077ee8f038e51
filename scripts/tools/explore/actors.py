"""The actors: the engine's own operations in the order in which workers, promoters and operators send them.

An actor is a function from settings to round trips: it yields the operations of one and is sent their results. It is
restarted for every step and sent all earlier results, so it must be deterministic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from schedq.errors import SchedqError, StoreUnavailable
from schedq.inspect import bulk
from schedq.inspect.bulk import Purge
from schedq.model import outcome
from schedq.model.records import ClaimedJob, Options, Settlement
from schedq.model.settings import Settings
from schedq.model.unique import Unique
from schedq.schedules.definition import Definition
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.schedules.records import ScheduleStatus
from schedq.schedules.register import upsert
from schedq.transitions import (
    Operation,
    cancel,
    claim,
    gates,
    identity,
    pause,
    promote,
    reclaim,
    renew,
    requeue,
    reschedule,
    scripts,
    settle,
    unwrap,
)
from schedq.transitions.enqueue import enqueue, prepare
from scripts.tools.settling import settle_all

RequestGenerator = Generator[Any, Any, Any]
Plan = Callable[[Settings], RequestGenerator]


@dataclass(frozen=True)
class Pause:
    """Not a request: time passes."""

    seconds: float


def enqueues(
    job_id: str,
    delay: float | None = None,
    payload: object = "work",
    *,
    is_fresh: bool = False,
    expires: float | None = None,
    unique: Unique | None = None,
    gate: str | None = None,
    key: str | None = None,
) -> Plan:
    """A producer enqueues one job under the caller's own id or a fresh one, with these options."""

    def steps(queue: Settings) -> RequestGenerator:
        given = Options(delay=delay, job_id=job_id, expires=expires, unique=unique, gate=gate, key=key)
        job = prepare(queue, payload, given)
        yield [enqueue(queue, job._replace(is_callers_id=not is_fresh))]

    return steps


def works(
    name: str,
    *ends: str,
    renews: int = 0,
    claims: int = 1,
    only: str = "",
    most: int = 1,
    suspects: bool = True,
) -> Plan:
    """A worker claims jobs, `most` at a time, and settles each as the items of `ends` say; several are tried in turn.

    With `only` it takes the jobs of this task alone; without `suspects` it holds one already.
    """

    def steps(queue: Settings) -> RequestGenerator:
        for number in range(claims):
            request = f"{name}{number}"
            for job in (yield from claims_jobs(queue, request, name, only=only, most=most, suspects=suspects)):
                for _ in range(renews):
                    (words,) = yield [renew.renew(queue, [(job.id, job.claim_token)])]
                    if unwrap(words) == ["LOST"]:
                        return
                for end in ends:
                    yield from settle_all(queue, [ending(end, job, queue)])

    return steps


def claims_jobs(
    queue: Settings, request: str, name: str, *, only: str = "", most: int = 1, suspects: bool = True
) -> Generator[Any, Any, Sequence[ClaimedJob]]:
    """Claim jobs. If the reply is lost, ask what the claim got; if that is nothing, claim again."""
    tasks = (only,) if only else None
    (reply,) = yield [claim.claim(queue, request, most, name, suspects=suspects, only=tasks)]
    if not isinstance(reply, StoreUnavailable):
        jobs: Sequence[ClaimedJob] = unwrap(reply).jobs
        return jobs
    jobs = yield from claim.recover(queue, request)
    again = f"{request}again"
    return jobs or (yield from claims_jobs(queue, again, name, only=only, most=most, suspects=suspects))


def pumps(name: str, *, rounds: int = 2) -> Plan:
    """A worker's fetch loop: settlements and the next claim are sent together."""

    def steps(queue: Settings) -> RequestGenerator:
        held: Sequence[ClaimedJob] = ()
        for number in range(rounds):
            request = f"{name}{number}"
            operations: list[Operation[Any]] = [settle.settle(queue, [ending("complete", job, queue)]) for job in held]
            *_, reply = yield [*operations, claim.claim(queue, request, 1, name)]
            if isinstance(reply, SchedqError):
                held = yield from claim.recover(queue, request)
            else:
                held = reply.jobs
        for job in held:
            yield [settle.settle(queue, [ending("complete", job, queue)])]

    return steps


def ending(end: str, job: ClaimedJob, queue: Settings) -> Settlement:
    """The settlement of an attempt: complete, fail (retry or the last one), discard, snooze or release."""
    policy = outcome.Policy.of(queue, job)
    if end == "complete":
        return outcome.succeeded(job, "done", policy)
    if end == "release":
        return outcome.released(job)
    if end == "snooze":
        return Settlement("snooze", job.id, job.claim_token, 30_000, gate_key=job.gate_key)
    if end == "limit":
        return outcome.failed(job, outcome.RateLimited(5), policy)
    return outcome.failed(job, outcome.Discard() if end == "discard" else "went wrong", policy)


def reclaims(times: int = 1) -> Plan:
    """A reclaimer sweeps, `times` times."""

    def steps(queue: Settings) -> RequestGenerator:
        for _ in range(times):
            yield from reclaim.take_back(queue)

    return steps


def promotes(name: str, times: int = 1) -> Plan:
    """A promoter ticks, `times` times."""

    def steps(queue: Settings) -> RequestGenerator:
        for _ in range(times):
            yield [promote.promote(queue, 1000, name)]

    return steps


def schedules(definition: Definition) -> Plan:
    """An operator stores a schedule."""

    def steps(queue: Settings) -> RequestGenerator:
        yield from upsert(queue, definition)

    return steps


def fires(knows: Definition | None = None) -> Plan:
    """A scheduler ticks; it may have read a definition before."""

    def steps(queue: Settings) -> RequestGenerator:
        memory = DefinitionCache()
        if knows is not None:
            fields = {name: str(value) for name, value in knows.to_fields().items()}
            seen = ScheduleStatus(knows.id, "", fields["definition"], "", "", "", is_paused=False, error="")
            memory.learn(seen, fields)
        yield from fire_due(queue, memory)

    return steps


def cancels(job_id: str) -> Plan:
    """An operator cancels a job."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [cancel.cancel(queue, job_id)]

    return steps


def reschedules(job_id: str, ms: int) -> Plan:
    """An operator gives a delayed job another due time; 0: now."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [reschedule.reschedule(queue, job_id, "in", ms)]

    return steps


def requeues(job_id: str) -> Plan:
    """An operator requeues a failed or cancelled job."""

    def steps(queue: Settings) -> RequestGenerator:
        yield from requeue.requeue(queue, job_id)

    return steps


def pauses_and_resumes() -> Plan:
    """An operator pauses the queue, and resumes it."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [pause.pause(queue)]
        yield [pause.resume(queue)]

    return steps


def pauses_a_task(task: str, *, resumes: bool = True) -> Plan:
    """An operator pauses a task, and resumes it."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [pause.pause_task(queue, task)]
        if resumes:
            yield from pause.resume_task(queue, task)

    return steps


def resumes_a_task(task: str, most: int = pause.MOST_PUT_BACK) -> Plan:
    """An operator resumes a task; each round trip puts back at most `most` jobs."""

    def steps(queue: Settings) -> RequestGenerator:
        yield from pause.resume_task(queue, task, most)

    return steps


def deletes(job_id: str, state: str = "") -> Plan:
    """An operator deletes a job that is not running."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [bulk.delete(queue, f"delete-{job_id}", [job_id], state)]

    return steps


def purges() -> Plan:
    """An operator empties the queue."""

    def steps(queue: Settings) -> RequestGenerator:
        yield from Purge(queue).steps()

    return steps


def limits(gate: str, **definition: object) -> Plan:
    """An operator sets limits of a gate, 0 for none; what that changes, a promoter looks at later."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [gates.set_limits(queue, gate, json.dumps(definition))]

    return steps


def removes(gate: str) -> Plan:
    """An operator removes the limits of a gate."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [gates.remove(queue, gate)]

    return steps


def holds(gate: str, key: str | None, *actions: Literal["pause", "hold", "resume"]) -> Plan:
    """An operator pauses a gate or one of its keys, holds it for 5 s, or resumes it."""

    def steps(queue: Settings) -> RequestGenerator:
        for action in actions:
            yield [gates.hold(queue, gate, key, action, 5000)]

    return steps


def loses_a_record(job_id: str) -> Plan:
    """Another program deletes the data of a job."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [plain("DEL", queue.keys.job(job_id))]

    return steps


def time_passes(*seconds: float) -> Plan:
    """The clock advances, once or several times."""

    def steps(queue: Settings) -> RequestGenerator:
        for jump in seconds:
            yield [Pause(jump)]

    return steps


def waits_then_works(name: str, only: str = "", times: int = 1) -> Plan:
    """An idle worker: if there is a wake marker it takes it and must then claim; otherwise it keeps waiting."""

    def steps(queue: Settings) -> RequestGenerator:
        for number in range(times):
            for key in queue.keys.wakes_of([only] if only else None):
                (marker,) = yield [plain("ZPOPMIN", key)]
                if marker:
                    yield from works(f"{name}{number}", "complete", only=only)(queue)
                    break

    return steps


def loses_the_promoters_lease() -> Plan:
    """The promoter's lease expires; that depends on Redis's own clock."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [plain("DEL", queue.keys.promoter)]

    return steps


def takes_the_marker_and_is_full() -> Plan:
    """A worker that takes the wake marker when it has no free slot for this queue: it puts the marker back."""

    def steps(queue: Settings) -> RequestGenerator:
        (marker,) = yield [plain("ZPOPMIN", queue.keys.wake)]
        if marker:
            yield [promote.wake(queue)]

    return steps


# -- a worker written from the guide, in plain commands

_GUIDE_COMPLETE = scripts.script(
    "guide_complete",
    """
if redis.call('HGET', KEYS[3], 'claim_token') ~= ARGV[2] then return 0 end
redis.call('LREM', KEYS[1], 1, ARGV[1])
redis.call('HSET', KEYS[3], 'status', 'completed', 'result', '"theirs"', 'completed_at_ms', ARGV[3])
redis.call('HDEL', KEYS[3], 'claim_token')
redis.call('LPUSH', KEYS[2], ARGV[1])
redis.call('HINCRBY', KEYS[4], 'completed_total', 1)
redis.call('EXPIRE', KEYS[3], 300)
return 1
""",
)


def plain(*words: Any) -> Operation[Any]:
    """One command of another program, which never sends a command twice."""
    return Operation("plain", None, (), words, identity, is_repeatable=False)


def gives_a_gate(job_id: str, gate: str, key: str) -> Plan:
    """Another program writes gate and key of a job that is in `pending`."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [plain("HSET", queue.keys.job(job_id), "gate", gate, "key", key)]

    return steps


def foreign_producer(job_id: str) -> Plan:
    """Writes a job and pushes its id, even if the id exists."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [plain("HSET", queue.keys.job(job_id), "payload", '"again"', "status", "pending")]
        yield [plain("LPUSH", queue.keys.pending, job_id)]

    return steps


def foreign_worker(name: str) -> Plan:
    """Moves an id, writes its claim to the hash, works, and completes by its own script."""

    def steps(queue: Settings) -> RequestGenerator:
        keys = queue.keys
        (job_id,) = yield [plain("LMOVE", keys.pending, keys.processing, "RIGHT", "LEFT")]
        if not isinstance(job_id, str):
            return
        now = queue.now_argument()
        key = keys.job(job_id)
        yield [plain("HINCRBY", key, "attempts", 1)]
        yield [plain("HSET", key, "status", "processing", "claim_token", name, "claimed_at_ms", now)]
        yield [
            Operation(
                "guide_complete",
                _GUIDE_COMPLETE,
                (keys.processing, keys.completed, key, keys.stats),
                (job_id, name, now),
                identity,
                is_repeatable=False,
            )
        ]

    return steps
