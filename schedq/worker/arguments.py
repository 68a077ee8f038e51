"""Checks the arguments of a worker, and formats its queues for the log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from schedq.errors import UsageError
from schedq.model.checks import whole_number
from schedq.model.graph import FLOW_TASK
from schedq.queue.middleware import Middleware, checked_middleware
from schedq.queue.queue import QueueBase
from schedq.worker.worker_context import Only

_MOST_NAMED: Final = 20
"""The most tasks of one queue that the first log line names."""


def check_limits(
    concurrency: int, grace: float, max_jobs: int | None, max_time: float | None, max_stuck: int | None
) -> None:
    """Refuse limits that make no sense.

    Raises:
        UsageError: one of them does.
    """
    whole_number("concurrency", concurrency, 1, 10_000)
    if not 0 <= grace <= 86_400:
        raise UsageError(f"grace must be 0 to 86,400 seconds, got {grace!r}")
    if max_jobs is not None:
        whole_number("max_jobs", max_jobs, 1, 10**12)
    if max_time is not None and not 0 < max_time < math.inf:
        raise UsageError(f"max_time must be more than 0 seconds, got {max_time!r}")
    if max_stuck is not None:  # half of the slots can be replaced, so no more can be stuck
        whole_number("max_stuck", max_stuck, 1, concurrency + concurrency // 2)


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


class Selection:
    """The tasks that a worker is limited to.

    Args:
        only: the names of the tasks to run; empty for all.
        excluded: the names of the tasks not to run.
        queues: the queues of the worker.

    Raises:
        UsageError: both are given, something in them is not the name of a task, or no task is left for a queue.
    """

    def __init__(self, only: Iterable[str], excluded: Iterable[str], queues: Sequence[QueueBase]) -> None:
        self._only, self._excluded = _names("only", only), _names("exclude", excluded)
        if self._only and self._excluded:
            raise UsageError(
                "a worker takes only= or exclude= (on the command line --only or --except), not both: "
                f"got {', '.join(self._only)} and {', '.join(self._excluded)}"
            )
        known = dict.fromkeys(name for queue in queues for name in queue.registry.served)
        if missing := [name for name in (*self._only, *self._excluded) if name not in known]:
            there = ", ".join(known) or "none"
            raise UsageError(f"there is no task {', '.join(map(repr, missing))}; the tasks are: {there}")
        for queue in queues:
            if self.of(queue) == ():
                raise UsageError(
                    f"queue {queue.name} has no task that this worker may run, only {', '.join(queue.registry.names)}; "
                    "leave the queue out, or choose another task"
                )

    def of(self, queue: QueueBase) -> Only:
        """Return the tasks of a queue whose jobs the worker takes."""
        names = queue.registry.served
        if self._only:
            return tuple(name for name in names if name in self._only)
        if self._excluded:
            left = [*(name for name in names if name not in self._excluded), *([""] * queue.registry.has_handler)]
            return () if left == [FLOW_TASK] else tuple(left)
        return None


def _names(argument: str, names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"{argument} must be a list of names of tasks, got {names!r:.200}")
    found = tuple(names)
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise UsageError(f"{argument} must be a list of names of tasks, got {wrong[0]!r:.200} in it")
    return tuple(dict.fromkeys(found))


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


def described(queues: Sequence[QueueBase], selection: Selection) -> str:
    """Return the names of the queues, where they are, and the tasks that the worker runs, as text."""
    by_place: dict[str, list[str]] = {}
    for queue in queues:
        by_place.setdefault(queue.address.label, []).append(_with_tasks(queue, selection.of(queue)))
    return "; ".join(f"{', '.join(names)} at {place}" for place, names in by_place.items())


def _with_tasks(queue: QueueBase, only: Only) -> str:
    registry = queue.registry
    tasks = registry.names if only is None else [name for name in only if name and name != FLOW_TASK]
    has_handler = registry.has_handler if only is None else "" in only
    names = [*tasks[:_MOST_NAMED], *(["a handler"] if has_handler else [])]
    more = len(tasks) - _MOST_NAMED
    return f"{queue.name} ({', '.join([*names, *([f'{more} more tasks'] if more > 0 else [])])})"
