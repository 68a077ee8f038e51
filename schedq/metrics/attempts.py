"""Metrics of one worker process: its attempts, their lateness and duration, and its stuck slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from schedq.metrics.exposition import needed
from schedq.observer import AttemptEnd, AttemptFacts, Observer
from schedq.queue.queue import QueueBase
from schedq.worker.stuck import StuckSlot

with suppress(ImportError):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric

MOST_TASKS: Final = 200
"""Maximum number of tasks per queue with their own series, so that endless task names can't overload Prometheus."""
NO_TASK: Final = "(none)"
OTHER_TASKS: Final = "(other)"
_SECONDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)
_LABELS: Final = ("queue", "task")


class _Series:
    """The series of one task; cached, because looking up labels costs more than counting."""

    __slots__ = ("_attempts", "_key", "_outcomes", "duration", "in_flight", "lateness")

    def __init__(self, made: AttemptMetrics, key: tuple[str, str]) -> None:
        self._attempts, self._key = made.attempts, key
        self._outcomes: dict[str, Counter] = {}
        self.duration = made.duration.labels(*key)
        self.lateness = made.lateness.labels(*key)
        self.in_flight = made.in_flight.labels(*key)
        for outcome in ("completed", "retry", "failed"):  # a rate needs a series that starts at 0
            self.count(outcome, 0)

    def count(self, outcome: str, number: int = 1) -> None:
        found = self._outcomes.get(outcome)
        if found is None:
            found = self._outcomes[outcome] = self._attempts.labels(*self._key, outcome)
        found.inc(number)


class AttemptMetrics(Observer):
    """Counts the attempts of a worker of these queues.

    Args:
        queues: the worker's queues; their tasks have series from the start.
        registry: where the metrics are registered.

    Raises:
        UsageError: prometheus-client is not installed.
    """

    def __init__(self, queues: Sequence[QueueBase], registry: CollectorRegistry) -> None:
        needed()
        self.attempts = Counter(
            "schedq_attempts", "Attempts that ended in this process.", (*_LABELS, "outcome"), registry=registry
        )
        self.duration = Histogram(
            "schedq_attempt_duration_seconds",
            "Duration of an attempt.",
            _LABELS,
            buckets=_SECONDS,
            registry=registry,
        )
        self.lateness = Histogram(
            "schedq_attempt_lateness_seconds",
            "Time from a job's due time, or its enqueue if it was not delayed, to its claim.",
            _LABELS,
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("schedq_attempts_in_flight", "Attempts in progress.", _LABELS, registry=registry)
        self.lost = Counter(
            "schedq_leases_lost",
            "Leases that this process lost while running the job.",
            ("queue",),
            registry=registry,
        )
        self.up = Gauge("schedq_worker_up", "1 while this worker claims jobs.", registry=registry)
        self._series: dict[tuple[str, str], _Series] = {}
        for queue in queues:
            self.lost.labels(queue.name)
            for task in queue.registry.names:
                self._of(queue.name, task)

    def worker_started(self, worker: str, queues: Sequence[str]) -> None:  # noqa: ARG002 - of Observer
        """Record that the worker is up."""
        self.up.set(1)

    def worker_stopping(self, worker: str) -> None:  # noqa: ARG002
        """Record that the worker claims no more jobs."""
        self.up.set(0)

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """Count it as in flight, and record its lateness."""
        series = self._of(attempt.queue, attempt.task)
        series.in_flight.inc()
        if attempt.lateness_ms is not None:
            series.lateness.observe(attempt.lateness_ms / 1000)

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """Count its outcome, and record its duration."""
        series = self._of(attempt.queue, attempt.task)
        series.in_flight.dec()
        series.duration.observe(end.duration_s)
        series.count(end.outcome)

    def lease_lost(self, queue: str, job_id: str) -> None:  # noqa: ARG002
        """Count the lost lease."""
        self.lost.labels(queue).inc()

    def _of(self, queue: str, task: str) -> _Series:
        key = (queue, task or NO_TASK)
        if task and key not in self._series and sum(name == queue for name, _ in self._series) >= MOST_TASKS:
            key = (queue, OTHER_TASKS)
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = _Series(self, key)
        return found


class StuckCollector:
    """A collector for the stuck slots of one worker; a task without stuck slots has the value 0.

    Args:
        found: returns the slots that are stuck now.
        tasks: pairs of queue and task that have series from the start.

    Raises:
        UsageError: prometheus-client is not installed.
    """

    def __init__(self, found: Callable[[], Iterable[StuckSlot]], tasks: Iterable[tuple[str, str]] = ()) -> None:
        needed()
        self._found = found
        self._known = set(islice(tasks, MOST_TASKS))

    def collect(self) -> Iterator[Metric]:
        """The current metric."""
        counts = dict.fromkeys(self._known, 0)
        for slot in self._found():
            key = (slot.queue, slot.task)
            if key not in counts and len(counts) >= MOST_TASKS:
                key = (slot.queue, OTHER_TASKS)
            counts[key] = counts.get(key, 0) + 1
        self._known.update(counts)
        text = "Slots held by handlers that do not end when asked to."
        family = GaugeMetricFamily("schedq_worker_stuck_slots", text, labels=_LABELS)
        for key, count in sorted(counts.items()):
            family.add_metric(key, count)
        yield family
