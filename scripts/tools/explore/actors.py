"""What takes part: the engine's own operations in the order in which workers, promoters and people send them.

An actor is a function from settings to round trips: it yields the operations of one and is sent their results. It is
begun again for every step and sent the results it has had so far, so it must do the same again with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from schedq.errors import SchedqError, StoreUnavailable
from schedq.inspect import bulk
from schedq.inspect.bulk import Purge
from schedq.model import outcome
from schedq.model.records import ClaimedJob, Options, Settlement
from schedq.model.settings import Settings
from schedq.schedules.definition import Definition
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.schedules.records import ScheduleStatus
from schedq.schedules.register import upsert
from schedq.transitions import (
    Operation,
    cancel,
    claim,
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

Steps = Generator[Any, Any, Any]
Plan = Callable[[Settings], Steps]


@dataclass(frozen=True)
class Pause:
    """Not a request: time goes on."""

    seconds: float


def enqueues(job_id: str, delay: float | None = None, payload: object = "work", *, is_fresh: bool = False) -> Plan:
    """Somebody enqueues one job under an id, the caller's own or a fresh one."""

    def steps(queue: Settings) -> Steps:
        job = prepare(queue, payload, Options(delay=delay, job_id=job_id))
        yield [enqueue(queue, job._replace(is_callers_id=not is_fresh))]

    return steps


def works(name: str, *ends: str, renews: int = 0, claims: int = 1) -> Plan:
    """A worker claims, and ends what it got: as each of `ends` says, in turn; several are tried one after the other."""

    def steps(queue: Settings) -> Steps:
        for number in range(claims):
            for job in (yield from _claim(queue, f"{name}{number}", name)):
                for _ in range(renews):
                    (words,) = yield [renew.renew(queue, [(job.id, job.claim_token)])]
                    if unwrap(words) == ["LOST"]:
                        return
                for end in ends:
                    yield from settle_all(queue, [ending(end, job, queue)])

    return steps


def _claim(queue: Settings, request: str, name: str) -> Generator[Any, Any, Sequence[ClaimedJob]]:
    """Claim one job. After a claim without an answer: ask what it got, and if that is nothing, claim anew."""
    (answer,) = yield [claim.claim(queue, request, 1, name)]
    if not isinstance(answer, StoreUnavailable):
        jobs: Sequence[ClaimedJob] = unwrap(answer).jobs
        return jobs
    jobs = yield from claim.recover(queue, request)
    return jobs or (yield from _claim(queue, f"{request}again", name))


def pumps(name: str, *, rounds: int = 2) -> Plan:
    """A worker as it goes round: what has ended and the next claim go out together."""

    def steps(queue: Settings) -> Steps:
        held: Sequence[ClaimedJob] = ()
        for number in range(rounds):
            request = f"{name}{number}"
            operations: list[Operation[Any]] = [settle.settle(queue, [ending("complete", job, queue)]) for job in held]
            *_, answer = yield [*operations, claim.claim(queue, request, 1, name)]
            if isinstance(answer, SchedqError):
                held = yield from claim.recover(queue, request)
            else:
                held = answer.jobs
        for job in held:
            yield [settle.settle(queue, [ending("complete", job, queue)])]

    return steps


def ending(end: str, job: ClaimedJob, queue: Settings) -> Settlement:
    """How an attempt ends: complete, fail (retry or the last), discard, snooze or release."""
    policy = outcome.Policy.of(queue, job)
    if end == "complete":
        return outcome.succeeded(job, "done", policy)
    if end == "release":
        return outcome.released(job)
    if end == "snooze":
        return Settlement("snooze", job.id, job.claim_token, 30_000)
    return outcome.failed(job, outcome.Discard() if end == "discard" else "went wrong", policy)


def reclaims(times: int = 1) -> Plan:
    """A reclaimer looks, so many times."""

    def steps(queue: Settings) -> Steps:
        for _ in range(times):
            yield from reclaim.take_back(queue)

    return steps


def promotes(name: str, times: int = 1) -> Plan:
    """A promoter ticks, so many times."""

    def steps(queue: Settings) -> Steps:
        for _ in range(times):
            yield [promote.promote(queue, 1000, name)]

    return steps


def schedules(definition: Definition) -> Plan:
    """Somebody writes a schedule."""

    def steps(queue: Settings) -> Steps:
        yield from upsert(queue, definition)

    return steps


def fires(knows: Definition | None = None) -> Plan:
    """A scheduler ticks; it may have read a definition before."""

    def steps(queue: Settings) -> Steps:
        memory = DefinitionCache()
        if knows is not None:
            fields = {name: str(value) for name, value in knows.to_fields().items()}
            seen = ScheduleStatus(knows.id, "", fields["definition"], "", "", "", is_paused=False, error="")
            memory.learn(seen, fields)
        yield from fire_due(queue, memory)

    return steps


def cancels(job_id: str) -> Plan:
    """Somebody cancels a job."""

    def steps(queue: Settings) -> Steps:
        yield [cancel.cancel(queue, job_id)]

    return steps


def reschedules(job_id: str, ms: int) -> Plan:
    """Somebody gives a delayed job another time; 0: now."""

    def steps(queue: Settings) -> Steps:
        yield [reschedule.reschedule(queue, job_id, "in", ms)]

    return steps


def requeues(job_id: str) -> Plan:
    """Somebody requeues a failed or cancelled job."""

    def steps(queue: Settings) -> Steps:
        yield from requeue.requeue(queue, job_id)

    return steps


def pauses_and_resumes() -> Plan:
    """Somebody pauses the queue, and lets it go on."""

    def steps(queue: Settings) -> Steps:
        yield [pause.pause(queue)]
        yield [pause.resume(queue)]

    return steps


def deletes(job_id: str, state: str = "") -> Plan:
    """Somebody deletes a job that rests."""

    def steps(queue: Settings) -> Steps:
        yield [bulk.delete(queue, f"delete-{job_id}", [job_id], state)]

    return steps


def purges() -> Plan:
    """Somebody empties the queue."""

    def steps(queue: Settings) -> Steps:
        yield from Purge(queue).steps()

    return steps


def time_passes(*seconds: float) -> Plan:
    """The clock goes on, once or several times."""

    def steps(queue: Settings) -> Steps:
        for jump in seconds:
            yield [Pause(jump)]

    return steps


def waits_then_works(name: str) -> Plan:
    """An idle worker: it takes the marker if there is one, and then owes a claim; without one it goes on waiting."""

    def steps(queue: Settings) -> Steps:
        (marker,) = yield [plain("ZPOPMIN", queue.keys.wake)]
        if marker:
            yield from works(name, "complete")(queue)

    return steps


def loses_the_promoters_lease() -> Plan:
    """The promoter's lease runs out; that goes by Redis's own clock."""

    def steps(queue: Settings) -> Steps:
        yield [plain("DEL", queue.keys.promoter)]

    return steps


def takes_the_marker_and_is_full() -> Plan:
    """A worker that has no slot for a job of this queue by the time it gets the marker: it puts it back."""

    def steps(queue: Settings) -> Steps:
        (marker,) = yield [plain("ZPOPMIN", queue.keys.wake)]
        if marker:
            yield [promote.wake(queue)]

    return steps


# -- a worker written after the guide, in plain commands

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
    """One command of another program, which sends nothing twice."""
    return Operation("plain", None, (), words, identity, is_repeatable=False)


def foreign_producer(job_id: str) -> Plan:
    """Writes a job and pushes its id, whatever was there under that id."""

    def steps(queue: Settings) -> Steps:
        yield [plain("HSET", queue.keys.job(job_id), "payload", '"again"', "status", "pending")]
        yield [plain("LPUSH", queue.keys.pending, job_id)]

    return steps


def foreign_worker(name: str) -> Plan:
    """Moves an id, notes its claim in the hash, works, completes by its own script."""

    def steps(queue: Settings) -> Steps:
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
