"""A scene: the contents of Redis, and the request that is then interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schedq import ClaimedJob, Discard, Queue
from schedq.transitions import Operation
from tests.doors import Clock


@dataclass(frozen=True)
class Staged:
    """A scene that has been set up.

    Attributes:
        operation: the request to interrupt.
        accepted: ids of jobs accepted before; each must finish.
        accepts: ids that the operation adds to them when it succeeds.
        may_go: ids that it may delete or, if they are new, may leave recorded in `broken`.
        reply: its reply when it is sent again; None for any reply.
        goes_on: such requests are sent all the time, so it is never the last one.
    """

    operation: Operation[Any]
    accepted: Sequence[str] = ()
    accepts: Sequence[str] = ()
    may_go: Sequence[str] = ()
    reply: Any = None
    goes_on: bool = False


@dataclass(frozen=True)
class Scene:
    """A transition and the situation in which it takes place.

    Attributes:
        name: the transition and, after a comma, the situation.
        stage: sets it up in an empty queue.
        settings: the queue's settings.
    """

    name: str
    stage: Callable[[Queue, Clock], Staged]
    settings: dict[str, Any] = field(default_factory=dict)


def command(queue: Queue, *words: str | int) -> Any:
    return queue._ask(Operation("a test's own", None, (), words, lambda reply: reply))


def claimed_job(queue: Queue, **options: Any) -> ClaimedJob:
    queue.enqueue("work", **options)
    job = queue.claim(0)
    assert job is not None
    return job


def held_jobs(queue: Queue, count: int = 3) -> list[str]:
    """Jobs of the paused task "send", which a claim has put out of the way of others."""
    queue.pause(task="send")
    ids = queue.enqueue_many([{"task": "send"}] * count)
    assert queue.claim(0) is None
    return ids


def failed_job(queue: Queue) -> str:
    job = claimed_job(queue)
    queue.fail(job, Discard())
    return job.id


def mark_job(queue: Queue, job_id: str, *pairs: str | int) -> None:
    command(queue, "HSET", queue.settings.keys.job(job_id), *pairs)


def wipe_job(queue: Queue, job_id: str) -> None:
    command(queue, "DEL", queue.settings.keys.job(job_id))
