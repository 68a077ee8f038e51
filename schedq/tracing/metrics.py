"""OpenTelemetry metrics of jobs, by the semantic conventions for messaging, version 1.44.0.

Source: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/. `schedq.task`, `schedq.outcome` and
`schedq.attempt.lateness` are additions of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schedq.errors import UsageError
from schedq.observer import AttemptEnd, AttemptFacts, Observer

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Bounds of the buckets that the conventions name."""
_LONGER: Final = (*_SECONDS, 30, 60, 300, 900, 3600)
_FAILURES: Final = ("retry", "failed", "lost")


class MessagingMetrics(Observer):
    """Counts the attempts of a worker, and measures how long they take. Attach it to a worker or a queue.

    `schedq.tracing.instrument_metrics` attaches one to all workers of the process, and also counts what it enqueues.

    Args:
        provider: creates the instruments; None for the global provider.

    Raises:
        UsageError: the extra `tracing` is not installed.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        try:
            from opentelemetry import metrics
        except ModuleNotFoundError as error:
            raise UsageError("OpenTelemetry metrics need an extra: pip install 'schedq[tracing]'") from error
        meter = metrics.get_meter("schedq", meter_provider=provider, schema_url=_SCHEMA)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Number of messages producer attempted to send to the broker.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Number of messages that were delivered to the application.",
        )
        self._duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing operation.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._lateness = meter.create_histogram(
            "schedq.attempt.lateness",
            "s",
            "Time from a job's due time, or its enqueue if it was not delayed, to its claim.",
            explicit_bucket_boundaries_advisory=_LONGER,
        )

    def sent(self, queue: str, count: int, error: str) -> None:
        """Count jobs that this process has enqueued, or tried to; `error` is the class of the error, or ''."""
        attributes = _attributes("enqueue", queue)
        if error:
            attributes["error.type"] = error
        self._sent.add(count, attributes)

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """Count the attempt, and record its lateness."""
        attributes = _of_attempt(attempt)
        self._consumed.add(1, attributes)
        if attempt.lateness_ms is not None:
            self._lateness.record(attempt.lateness_ms / 1000, attributes)

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """Record its duration and outcome."""
        attributes = _of_attempt(attempt) | {"schedq.outcome": end.outcome}
        if end.outcome in _FAILURES:
            attributes["error.type"] = "_OTHER" if end.exception is None else type(end.exception).__qualname__
        self._duration.record(end.duration_s, attributes)


def _attributes(operation: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "schedq",
        "messaging.operation.name": operation,
        "messaging.destination.name": queue,
    }


def _of_attempt(attempt: AttemptFacts) -> dict[str, str]:
    attributes = _attributes("process", attempt.queue)
    if attempt.task:
        attributes["schedq.task"] = attempt.task
    return attributes
