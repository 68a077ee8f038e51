"""Add what a worker has counted to the figures of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation

_COUNT: Final = Binding("count_tasks", "this_worker", "number", "counted")
MOST_AT_ONCE: Final = 50
"""The most tasks in one script, which blocks all other clients for about 40 µs each."""


def count_tasks(queue: Settings, worker_id: str, number: int, counted: Mapping[str, str]) -> Operation[bool]:
    """Add a worker's report; False if it was added before.

    Args:
        queue: the queue.
        worker_id: the worker.
        number: the report's, 1 or more; the next one has a higher number, and a repeated one the same.
        counted: by task, at most 50, what was counted.
    """
    words = [word for pair in counted.items() for word in pair]
    this_worker = queue.keys.worker(worker_id)
    return Operation("count", *_COUNT(queue, this_worker=this_worker, number=number, counted=words), bool)


def chunks(counted: Mapping[str, str]) -> list[dict[str, str]]:
    """Split a report into parts for one script each."""
    rest = iter(counted.items())
    return list(iter(lambda: dict(islice(rest, MOST_AT_ONCE)), {}))
