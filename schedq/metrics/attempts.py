"""What one worker process counts and measures: attempts, how late they began, how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from schedq.application import Application
from schedq.metrics.extra import needed
from schedq.observer import AttemptEnd, AttemptFacts, Observer

with suppress(ImportError):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

MOST_TASKS: Final = 200
"""Tasks of one queue that have series of their own: code that registers them without end must not fill a server."""
NO_TASK: Final = "(none)"
OTHER_TASKS: Final = "(other)"
_SECONDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)
_LABELS: Final = ("queue", "task")


class _Series:
    """The series of one task; found once, since looking labels up costs more than counting."""

    __slots__ = ("_attempts", "_key", "_outcomes", "duration", "in_flight", "lateness")

    def __init__(self, made: AttemptMetrics, key: tuple[str, str]) -> None:
        self._attempts, self._key = made.attempts, key
        self._outcomes: dict[str, Counter] = {}
        self.duration = made.duration.labels(*key)
        self.lateness = made.lateness.labels(*key)
        self.in_flight = made.in_flight.labels(*key)
        for outcome in ("completed", "retry", "failed"):  # a rate needs a series that begins at 0
            self.count(outcome, 0)

    def count(self, outcome: str, number: int = 1) -> None:
        found = self._outcomes.get(outcome)
        if found is None:
            found = self._outcomes[outcome] = self._attempts.labels(*self._key, outcome)
        found.inc(number)


class AttemptMetrics(Observer):
    """Counts what a worker of these queues does.

    Args:
        queues: those of the worker; their tasks have series from the beginning.
        registry: where the metrics are registered.

    Raises:
        UsageError: prometheus-client is not installed.
    """

    def __init__(self, queues: Sequence[Application], registry: CollectorRegistry) -> None:
        needed()
        self.attempts = Counter(
            "schedq_attempts", "Attempts that ended in this process.", (*_LABELS, "outcome"), registry=registry
        )
        self.duration = Histogram(
            "schedq_attempt_duration_seconds",
            "From an attempt's start to its end.",
            _LABELS,
            buckets=_SECONDS,
            registry=registry,
        )
        self.lateness = Histogram(
            "schedq_attempt_lateness_seconds",
            "From when a job was due, or enqueued if it never waited, to its claim.",
            _LABELS,
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("schedq_attempts_in_flight", "Attempts under way.", _LABELS, registry=registry)
        self.lost = Counter(
            "schedq_leases_lost",
            "Leases that became another's while this process held them.",
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
        """It is up."""
        self.up.set(1)

    def worker_stopping(self, worker: str) -> None:  # noqa: ARG002
        """It claims no more."""
        self.up.set(0)

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """Count it as under way, and see how late it is."""
        series = self._of(attempt.queue, attempt.task)
        series.in_flight.inc()
        if attempt.lateness_ms is not None:
            series.lateness.observe(attempt.lateness_ms / 1000)

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """Count its outcome, and how long it took."""
        series = self._of(attempt.queue, attempt.task)
        series.in_flight.dec()
        series.duration.observe(end.duration_s)
        series.count(end.outcome)

    def lease_lost(self, queue: str, job_id: str) -> None:  # noqa: ARG002
        """Count it."""
        self.lost.labels(queue).inc()

    def _of(self, queue: str, task: str) -> _Series:
        key = (queue, task or NO_TASK)
        found = self._series.get(key)
        if found is None:
            if task and sum(name == queue for name, _ in self._series) >= MOST_TASKS:
                key = (queue, OTHER_TASKS)
                found = self._series.get(key)
            if found is None:
                found = self._series[key] = _Series(self, key)
        return found
