"""Checks the arguments of a worker, and formats its queues for the log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from schedq.errors import UsageError
from schedq.model.checks import whole_number
from schedq.queue.middleware import Middleware, checked_middleware
from schedq.queue.queue import QueueBase

_MOST_NAMED: Final = 20
"""The most tasks of one queue that the first log line names."""


def check_limits(grace: float, max_jobs: int | None, max_time: float | None) -> None:
    """Refuse limits that make no sense.

    Raises:
        UsageError: one of them does.
    """
    if not 0 <= grace <= 86_400:
        raise UsageError(f"grace must be 0 to 86,400 seconds, got {grace!r}")
    if max_jobs is not None:
        whole_number("max_jobs", max_jobs, 1, 10**12)
    if max_time is not None and not 0 < max_time < math.inf:
        raise UsageError(f"max_time must be more than 0 seconds, got {max_time!r}")


def workable(queues: object) -> tuple[QueueBase, ...]:
    """Return the queues of a worker.

    Raises:
        UsageError: there is none, one occurs twice, one has neither task nor handler, or it is not a queue.
    """
    if isinstance(queues, QueueBase):
        raise UsageError(f"a worker takes a list of queues, got queue {queues.name} alone; write Worker([queue])")
    found = tuple(queues) if isinstance(queues, Iterable) and not isinstance(queues, str) else (queues,)
    if not found:
        raise UsageError("a worker needs at least one queue")
    for queue in found:
        if not isinstance(queue, QueueBase):
            raise UsageError(f"a worker takes objects of Queue or AsyncQueue, got {queue!r:.100}")
        if queue.registry.is_empty:
            raise UsageError(
                f"queue {queue.name} has no task and no handler, so a worker could run none of its jobs; "
                "if they are in modules of their own, import these too (schedq worker --import MODULE)"
            )
    if len({(queue.name, queue.address.label) for queue in found}) < len(found):
        raise UsageError(f"a worker takes each queue once, got {', '.join(queue.name for queue in found)}")
    return found


def usable(middleware: object) -> tuple[Middleware, ...]:
    """Return the middleware of a worker.

    Raises:
        UsageError: it is not a list, or something in it is not middleware.
    """
    if not isinstance(middleware, Iterable) or isinstance(middleware, str):
        raise UsageError(f"a worker takes a list of middleware, got {middleware!r:.200}")
    found = tuple(middleware)
    for each in found:
        checked_middleware(each, "middleware=")
    return found


def one_per_queue(weights: Sequence[int] | None, queues: Sequence[QueueBase]) -> list[int]:
    """Return the weights of the queues; all are 1 if none are given.

    Raises:
        UsageError: the number of weights differs from the number of queues.
    """
    found = [1] * len(queues) if weights is None else list(weights)
    if len(found) != len(queues):
        raise UsageError(f"weights must be one per queue, got {len(found)} for {len(queues)} queues")
    return found


def with_tasks(queue: QueueBase) -> str:
    """Return the name of a queue and the tasks that it has here, as text."""
    registry = queue.registry
    names = [*registry.names[:_MOST_NAMED], *(["a handler"] if registry.has_handler else [])]
    more = len(registry.names) - _MOST_NAMED
    return f"{queue.name} ({', '.join([*names, *([f'{more} more tasks'] if more > 0 else [])])})"
