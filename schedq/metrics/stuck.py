"""Slots of a worker whose handlers do not end, by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

from schedq.metrics.attempts import MOST_TASKS, OTHER_TASKS

with suppress(ImportError):
    from prometheus_client.core import GaugeMetricFamily, Metric

_NAME: Final = "schedq_worker_stuck_slots"
_HELP: Final = "Slots held by handlers that do not end when they are told to."


class Slot(Protocol):
    """What is known of such a slot."""

    @property
    def queue(self) -> str:
        """Name of the job's queue."""
        ...

    @property
    def task(self) -> str:
        """Name of its task."""
        ...


class StuckCollector:
    """A collector for the stuck slots of one worker; every task has a series, at 0 without any.

    Args:
        found: answers the stuck slots now.
        tasks: names of queues and of tasks that are known from the beginning.
    """

    def __init__(self, found: Callable[[], Iterable[Slot]], tasks: Iterable[tuple[str, str]] = ()) -> None:
        self._found = found
        self._known: set[tuple[str, str]] = set(islice(tasks, MOST_TASKS))

    def collect(self) -> Iterator[Metric]:
        """The metric as it is now."""
        counts: Counter[tuple[str, str]] = Counter()
        for slot in self._found():
            key = (slot.queue, slot.task)
            counts[key if key in self._known or len(self._known) < MOST_TASKS else (slot.queue, OTHER_TASKS)] += 1
            self._known.update(counts)
        family = GaugeMetricFamily(_NAME, _HELP, labels=["queue", "task"])
        for key in sorted(self._known):
            family.add_metric(key, counts[key])
        yield family
