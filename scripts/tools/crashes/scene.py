"""What a scene is: what is in Redis, and the request that is then cut short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schedq import ClaimedJob, Discard, Queue
from schedq.transitions import Operation
from tests.doors import Clock


@dataclass(frozen=True)
class Staged:
    """A scene that has been set.

    Attributes:
        operation: what is to be cut.
        accepted: ids of jobs that were accepted before; each must end.
        accepts: ids that the operation adds to them once it is answered.
        may_go: ids that it may delete, or, new ones, leave a note of in `broken`.
        answer: what it answers when it is sent again; None for anything.
        goes_on: whoever sends it sends the like of it all the time, so it is never the last one.
    """

    operation: Operation[Any]
    accepted: Sequence[str] = ()
    accepts: Sequence[str] = ()
    may_go: Sequence[str] = ()
    answer: Any = None
    goes_on: bool = False


@dataclass(frozen=True)
class Scene:
    """How a move finds things.

    Attributes:
        name: the move, and after a comma how it stood.
        stage: sets it, in an empty queue.
        settings: of the queue.
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


def failed_job(queue: Queue) -> str:
    job = claimed_job(queue)
    queue.fail(job, Discard())
    return job.id


def mark_job(queue: Queue, job_id: str, *pairs: str | int) -> None:
    command(queue, "HSET", queue.settings.keys.job(job_id), *pairs)


def wipe_job(queue: Queue, job_id: str) -> None:
    command(queue, "DEL", queue.settings.keys.job(job_id))
