"""OpenTelemetry traces from the producer of a job to its worker, across delays, retries and processes; and metrics."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from schedq.errors import UsageError
from schedq.observer import everywhere
from schedq.tracing.metrics import MessagingMetrics
from schedq.transitions.enqueue import counters, tracers

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["MessagingMetrics", "instrument", "instrument_metrics"]


def instrument(provider: TracerProvider | None = None) -> None:
    """Trace the jobs that this process enqueues and runs. Call it before creating workers; further calls do nothing.

    Inside a recording span, each new job gets a span `create QUEUE`; the job's field `trace` carries its context. Each
    attempt is a span `process QUEUE` with that span as its parent, and it is the current span inside the handler.

    Args:
        provider: creates the spans; None for the global provider at the time of the first span.

    Raises:
        UsageError: the extra `tracing` is not installed.
    """
    try:
        from schedq.tracing import spans
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "opentelemetry":
            raise
        raise UsageError("tracing needs an extra: pip install 'schedq[tracing]'") from error
    spans.begin(provider)


def carried() -> str:
    """The context of the current span, as a job's `trace`; '' without tracing or outside a span."""
    if not tracers:
        return ""
    from schedq.tracing import spans

    return spans.current()


def continued(trace: str) -> AbstractContextManager[object]:
    """Make the span of another process, in the form of a job's `trace`, the current one within a block."""
    from schedq.tracing import spans

    return spans.Continued(trace)


def instrument_metrics(provider: MeterProvider | None = None) -> None:
    """Measure the jobs that this process enqueues and runs, as `MessagingMetrics` does; further calls do nothing.

    Call it before creating workers.

    Args:
        provider: creates the instruments; None for the global provider.

    Raises:
        UsageError: the extra `tracing` is not installed.
    """
    if not counters:
        metrics = MessagingMetrics(provider)
        counters.append(metrics.sent)
        everywhere.append(metrics)
