"""OpenTelemetry traces, from the producer of a job to its worker, across delays, retries and processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedq.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


def instrument(provider: TracerProvider | None = None) -> None:
    """Trace what this process enqueues and what its workers run. Call it before workers are made; again: no more.

    Within a span that is recorded, each new job gets a span `create QUEUE`, whose context goes along in the job's field
    `trace`. Each attempt is a span `process QUEUE` with that for its parent, and the current one inside the handler.

    Args:
        provider: makes the spans; None: the global one, as it is set when the first span is made.

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
