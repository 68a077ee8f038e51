"""Put finished jobs back into `pending`: to run again, or to undo what they have done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schedq.errors import Conflict
from schedq.model.ids import new_request
from schedq.model.keys import checked_id
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation, RoundTrips, unwrap

_REQUEUE: Final = Binding("requeue", "request", "undoes", "ids")
_PAGE: Final = 250


def requeue(queue: Settings, job_id: str) -> RoundTrips[bool]:
    """Move a failed or cancelled job back to `pending`; returns whether it was failed or cancelled.

    Raises:
        Conflict: another job holds its unique key.
    """
    (word,) = yield from _requeue(queue, [checked_id(job_id)])
    kind, _, holder = word.partition(" ")
    if kind == "UNIQUE":
        raise Conflict(f"job {job_id} of queue {queue.name} can't be requeued: job {holder} holds its unique key")
    return word == "yes"


def requeue_these(queue: Settings, job_ids: Sequence[str]) -> RoundTrips[list[bool]]:
    """Move failed and cancelled jobs back to `pending`; returns for each whether it was moved."""
    words = yield from _requeue(queue, job_ids)
    return [word == "yes" for word in words]


def undo(queue: Settings, job_id: str) -> RoundTrips[bool]:
    """Let a failed or cancelled run undo what it has done; returns whether there is something to undo."""
    (was_moved,) = yield from undo_these(queue, [checked_id(job_id)])
    return was_moved


def undo_these(queue: Settings, job_ids: Sequence[str]) -> RoundTrips[list[bool]]:
    """Let failed and cancelled runs undo what they have done; returns for each whether there is something to undo."""
    words = yield from _requeue(queue, job_ids, undoes=True)
    return [word == "yes" for word in words]


def _requeue(queue: Settings, job_ids: Sequence[str], *, undoes: bool = False) -> RoundTrips[list[str]]:
    request = new_request()
    found: list[str] = []
    while left := job_ids[len(found) :][:_PAGE]:
        (reply,) = yield [Operation("requeue", *_REQUEUE(queue, request=request, undoes=int(undoes), ids=left), list)]
        found += unwrap(reply)
    return found


def requeue_failed(queue: Settings, limit: int) -> RoundTrips[int]:
    """Requeue the `limit` oldest failed jobs; returns how many were requeued."""
    done, left = 0, 0  # entries that stay: their records have expired
    while done < limit:
        words = ("LRANGE", queue.keys.failed, -left - limit + done, -left - 1)
        (reply,) = yield [Operation("requeue_failed", None, (), words, lambda reply: reply[::-1])]
        if not (ids := unwrap(reply)):
            break
        requeued = sum((yield from requeue_these(queue, ids)))
        done += requeued
        left += len(ids) - requeued
    return done
