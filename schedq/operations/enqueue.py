"""Storing new jobs: the requests that do it, one job or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from schedq import lua
from schedq.durability import Wait
from schedq.errors import Conflict, NotAcknowledged, QueueFull, SchedqError, StoreUnavailable
from schedq.operations import Argument, Flow, Operation, firm
from schedq.operations.preparing import Prepared
from schedq.settings import Settings

MOST_IDS: Final = 150
"""Jobs in one script: it keeps everybody else waiting, for 4 to 10 µs a job."""
MOST_BYTES: Final = 1_048_576
_ROUND_BYTES: Final = 8 * MOST_BYTES
_ACCEPTED: Final = ("STORED", "EXISTS")


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a batch.

    Attributes:
        answers: one word per job, in order; fewer than jobs means that the rest was not looked at.
        missing: what was not confirmed in time of what was to be; '' if all was.
    """

    answers: tuple[str, ...]
    missing: str = ""


def enqueue(queue: Settings, job: Prepared) -> Operation[str]:
    """Store one job; answers its id.

    Raises (when read):
        Conflict: another payload is stored under this id, or something that is no job.
        QueueFull: `max_pending` jobs wait.
        NotAcknowledged: it is stored; its durability was not confirmed in time.
    """
    return _store(
        queue,
        [job],
        lambda reply: _id_or_error(queue, job, reply[0]),
        _waits(queue, [job]),
        lambda job_id, missing: _unconfirmed(queue, [job], [job_id], missing),
    )


def create(queue: Settings, job: Prepared) -> Operation[tuple[str, bool]]:
    """Store one marked job; answers its id, and whether this request has created it.

    Raises (when read): as `enqueue`.
    """
    return _store(
        queue,
        [job],
        lambda reply: (_id_or_error(queue, job, reply[0]), reply[0] == "STORED"),
        _waits(queue, [job]),
        lambda found, missing: _unconfirmed(queue, [job], [found[0]], missing),
    )


def enqueue_many(queue: Settings, jobs: Sequence[Prepared]) -> Flow[list[str]]:
    """Store jobs, in one round trip up to some megabytes; answers their ids in order.

    Raises:
        QueueFull, NotAcknowledged: with the ids that were stored.
        Conflict: naming the ids; all others are stored.
    """
    yield from create_many(queue, jobs)
    return [job.job_id for job in jobs]


def create_many(queue: Settings, jobs: Sequence[Prepared]) -> Flow[list[bool]]:
    """The same; answers for each, in order, whether this request has created it, as far as it is marked."""
    words: list[str] = []
    stored: list[str] = []
    errors: list[SchedqError] = []
    missing = ""
    waits = _waits(queue, jobs)
    batches = _batches(jobs)
    while batches:
        round_, batches = _next_round(batches)
        requests = [_store_some(queue, batch, waits) for batch in round_]
        left: list[list[Prepared]] = []
        for batch, answer in zip(round_, (yield requests), strict=True):
            if isinstance(answer, SchedqError):
                errors.append(answer)
                continue
            missing = missing or answer.missing
            words += answer.answers
            accepted, refused = _sorted(queue, batch, answer)
            stored += accepted
            errors += refused
            if len(answer.answers) < len(batch):
                left.append(list(batch[len(answer.answers) :]))
        if missing or any(not isinstance(error, Conflict) for error in errors):
            break
        batches = left + batches
    if missing and stored:
        raise _unconfirmed(queue, jobs, stored, missing) from (errors[0] if errors else None)
    if errors:
        known = frozenset(stored)
        raise in_doubt(_worst(errors, stored), [job for job in jobs if job.job_id not in known])
    return [word == "STORED" for word in words]


def in_doubt(error: SchedqError, jobs: Sequence[Prepared]) -> SchedqError:
    """The error; if nobody knows whether these jobs are stored, with their ids."""
    if type(error) is StoreUnavailable:
        error.job_ids = tuple(job.job_id for job in jobs)
    return error


def store_each(queue: Settings, jobs: Sequence[Prepared]) -> Flow[list[str]]:
    """Store jobs batch by batch; answers for each, in order, STORED, EXISTS, or a word that `refusal` explains."""
    words: list[str] = []
    waits = _waits(queue, jobs)
    left = _batches(jobs)
    while left:
        (answer,) = yield [_store_some(queue, left[0], waits)]
        found: Stored = firm(answer)
        words += found.answers
        if found.missing:
            raise _unconfirmed(queue, jobs, [job.job_id for job in jobs[: len(words)]], found.missing)
        rest = left[0][len(found.answers) :]
        left = ([rest] if rest else []) + left[1:]
    return words


def _sorted(queue: Settings, batch: Sequence[Prepared], answer: Stored) -> tuple[list[str], list[Conflict | QueueFull]]:
    """The ids of a batch that are stored, and why others are not."""
    accepted: list[str] = []
    refused: list[Conflict | QueueFull] = []
    for job, word in zip(batch, answer.answers, strict=False):
        if word in _ACCEPTED:
            accepted.append(job.job_id)
        else:
            refused.append(refusal(queue, job, word))
    return accepted, refused


def _batches(jobs: Sequence[Prepared]) -> list[list[Prepared]]:
    batches: list[list[Prepared]] = []
    room = ids = 0
    for job in jobs:
        size = job.size()
        if size > room or ids == 0:
            batches.append([])
            room, ids = MOST_BYTES, MOST_IDS
        batches[-1].append(job)
        room -= size
        ids -= 1
    return batches


def _next_round(batches: list[list[Prepared]]) -> tuple[list[list[Prepared]], list[list[Prepared]]]:
    """What to send together: whole batches up to a size.

    One with ids of the caller's goes alone: part of it may have to be sent again, and what is behind it must not
    overtake that.
    """
    count, room = 0, _ROUND_BYTES
    while count < len(batches) and room > 0 and not (count and _has_own_ids(batches[count - 1])):
        room -= sum(job.size() for job in batches[count])
        count += 1
    return batches[:count], batches[count:]


def _has_own_ids(batch: Sequence[Prepared]) -> bool:
    return any(job.is_callers_id for job in batch)


def _whose_ids(batch: Sequence[Prepared]) -> int:
    """As `enqueue.lua` is told: fresh ones 0, the caller's 1, the caller's and some of them to be reused 2."""
    if not _has_own_ids(batch):
        return 0
    return 2 if any(job.wish == "reuse" for job in batch) else 1


def _store(
    queue: Settings,
    batch: Sequence[Prepared],
    read: Any,
    waits: tuple[Wait, ...] = (),
    unconfirmed: Any = lambda answer, _: answer,
) -> Operation[Any]:
    keys = queue.keys
    args: list[Argument] = [
        keys.jobs,
        queue.now_argument(),
        keys.due,
        "" if queue.max_pending is None else queue.max_pending,
        _whose_ids(batch),
    ]
    for job in batch:
        args += job.args()
    return Operation(
        "enqueue",
        lua.load("enqueue"),
        (
            keys.pending,
            keys.delayed,
            keys.completed,
            keys.failed,
            keys.cancelled,
            keys.stats,
            keys.wake,
            keys.paused,
            keys.promoter,
        ),
        tuple(args),
        read,
        waits=waits,
        unconfirmed=unconfirmed,
        repeatable_s=queue.repeatable_s,
    )


def _store_some(queue: Settings, batch: Sequence[Prepared], waits: tuple[Wait, ...]) -> Operation[Any]:
    return _store(queue, batch, _read_stored, waits, lambda answer, missing: replace(answer, missing=missing))


def _waits(queue: Settings, jobs: Sequence[Prepared]) -> tuple[Wait, ...]:
    """What to wait for behind these jobs: all that any of them asks for."""
    asked = dict.fromkeys(job.durability for job in jobs if job.durability != "memory")
    return tuple(Wait.of(each, queue.replicas, queue.retry_for) for each in asked) if asked else ()


def _unconfirmed(queue: Settings, jobs: Sequence[Prepared], stored: Sequence[str], missing: str) -> NotAcknowledged:
    is_one = len(jobs) == 1
    what = f"job {stored[0]} is" if is_one else f"{len(stored)} of {len(jobs)} jobs are"
    again = f"job_id={stored[0]!r}" if is_one else "the ids in `stored`"
    if any(job.wish for job in jobs):
        again += ", without must_create and reuse_id,"
    return NotAcknowledged(
        f"queue {queue.name}: {what} stored on the primary, but {missing}; enqueue again with {again} to wait anew",
        stored,
    )


def _read_stored(reply: list[Any]) -> Stored:
    return Stored(tuple(reply))


def _id_or_error(queue: Settings, job: Prepared, word: str) -> str:
    if word in _ACCEPTED:
        return job.job_id
    raise refusal(queue, job, word)


def refusal(queue: Settings, job: Prepared, word: str) -> Conflict | QueueFull:
    """Why a job was not stored, from the script's word for it."""
    if word == "FULL":
        return QueueFull(f"queue {queue.name}: max_pending={queue.max_pending} jobs wait already")
    if word == "WRONGTYPE":
        return Conflict(f"{queue.keys.job(job.job_id)} is no hash; job {job.job_id} can't be stored there")
    kind, _, status = word.partition(" ")
    if kind == "TAKEN":
        return Conflict(f"job {job.job_id} of queue {queue.name} exists already ({status}), and must_create was given")
    if kind == "BUSY":
        return Conflict(
            f"job {job.job_id} of queue {queue.name} is {status}: reuse_id replaces finished jobs only; "
            "cancel it first, or wait for its end"
        )
    return Conflict(f"job {job.job_id} of queue {queue.name} exists with another payload")


def _worst(errors: Sequence[SchedqError], stored: Sequence[str]) -> SchedqError:
    """The one error of a batch to raise: what stopped it, else the conflicts."""
    for error in errors:
        if isinstance(error, QueueFull):
            return QueueFull(f"{error}; {len(stored)} of the jobs were stored", stored)
    for error in errors:
        if not isinstance(error, Conflict):
            return error
    first = str(errors[0])
    return Conflict(first if len(errors) == 1 else f"{first} (and {len(errors) - 1} more); all others were stored")
