"""What a monitoring system wants to know of many queues, in few round trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedq.errors import Conflict, SchedqError
from schedq.job import whole
from schedq.operations import Flow, Operation, firm, same
from schedq.operations.views import Stats, stats
from schedq.settings import Settings

AT_ONCE: Final = 200
"""Queues that are asked about in one round trip; each keeps Redis busy for some 20 µs."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One queue at one instant.

    Attributes:
        queue: its name.
        stats: depths and totals; None if the queue can't be read.
        oldest_ms: for how long the pending job that is next could have run; None if none is pending, or its producer
            did not say when it was enqueued.
        problem: why the queue can't be read, or ''.
    """

    queue: str
    stats: Stats | None
    oldest_ms: int | None = None
    problem: str = ""


def readings(queues: Sequence[Settings]) -> Flow[list[Reading]]:
    """Read queues of one server, two round trips for every 200. One that is damaged does not hide the others.

    Raises:
        SchedqError: Redis did not answer, or refused for a reason that is not one queue's.
    """
    found: list[Reading] = []
    for first in range(0, len(queues), AT_ONCE):
        some = queues[first : first + AT_ONCE]
        answers = yield [operation for queue in some for operation in (stats(queue), _next(queue))]
        pairs = list(zip(some, answers[::2], answers[1::2], strict=True))
        waiting = {queue.name: ids[0] for queue, _, ids in pairs if isinstance(ids, list) and ids}
        times = yield [_times(queue, waiting[queue.name]) for queue in some if queue.name in waiting]
        since = dict(zip(waiting, map(_since, times), strict=True))
        found += [_reading(queue, answer, since.get(queue.name, 0)) for queue, answer, _ in pairs]
    return found


def _reading(queue: Settings, answer: Stats | SchedqError, since_ms: int) -> Reading:
    if isinstance(answer, Conflict):
        return Reading(queue.name, None, problem=str(answer))
    found = firm(answer)
    return Reading(queue.name, found, max(0, found["now_ms"] - since_ms) if since_ms else None)


def _next(queue: Settings) -> Operation[list[str]]:
    return Operation("next in line", None, (), ("LRANGE", queue.keys.pending, -1, -1), same)


def _times(queue: Settings, job_id: str) -> Operation[list[Any]]:
    command = ("HMGET", queue.keys.job(job_id), "run_at_ms", "enqueued_at_ms")
    return Operation("next in line", None, (), command, same)


def _since(times: list[Any] | Exception) -> int:
    """When a job could run first, ms; 0 if that is not known, or the job has gone meanwhile."""
    return 0 if isinstance(times, Exception) else whole(times[0]) or whole(times[1])
