"""Spans of jobs, following OpenTelemetry's semantic conventions for messaging; `schedq.tracing` enables them.

The conventions let the span that processes a message be a child of the span that created it, or link to it. Here it is
a child, so that one trace shows the whole job. A job enqueued outside a span starts a new trace with each attempt.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from schedq.model.outcome import Decision
from schedq.model.payload import size_of
from schedq.model.records import ClaimedJob
from schedq.model.times import wall
from schedq.observer import AttemptEnd, AttemptFacts, Observer, everywhere
from schedq.transitions.enqueue import tracers

_MOST_TEXT: Final = 600
"""Maximum length of a job's `trace`: 55 characters of traceparent, a space, and up to 512 of tracestate."""
_FAILURES: Final = ("retry", "failed", "lost")
_propagator: Final = TraceContextTextMapPropagator()


def begin(provider: trace.TracerProvider | None) -> None:
    """Start tracing; further calls do nothing."""
    if not tracers:
        tracer = trace.get_tracer("schedq", tracer_provider=provider)
        tracers.append(_Producer(tracer).created)
        everywhere.append(_Attempts(tracer))


def to_text(span: trace.Span) -> str:
    """A span's context as a job's `trace`: the W3C traceparent, then a space and the tracestate if there is one."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, context.Context()))
    text = " ".join(part for part in (carrier.get("traceparent"), carrier.get("tracestate")) if part)
    return text if len(text) <= _MOST_TEXT else carrier["traceparent"]


def from_text(text: str) -> context.Context:
    """The context in a job's `trace`; an empty one if the text is invalid, as other programs may have written it."""
    parent, _, state = text[:_MOST_TEXT].partition(" ")
    return _propagator.extract({"traceparent": parent, "tracestate": state}, context.Context())


def current() -> str:
    """The context of the current span in this form; '' outside a span."""
    span = trace.get_current_span()
    return to_text(span) if span.get_span_context().is_valid else ""


class Continued:
    """Makes the span of another process the current one within a block."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._token: Any = None

    def __enter__(self) -> None:
        self._token = context.attach(from_text(self._text))

    def __exit__(self, *_: object) -> None:
        context.detach(self._token)


class _Producer:
    """Creates a span for each new job."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def created(self, queue: str, job_id: str, payload: str) -> str:
        """Record a span for one job, even of a batch, and return its `trace`; '' outside a recording span.

        The span has no duration: the parent span measures the request.
        """
        above = trace.get_current_span()
        known = above.get_span_context()
        # A child process has no span of its own for an attempt, but the context of its worker's span.
        if not (above.is_recording() or (known.is_remote and known.trace_flags.sampled)):
            return ""
        attributes = _attributes("create", queue, job_id) | {"messaging.message.body.size": size_of(payload)}
        span = self._tracer.start_span(f"create {queue}", kind=trace.SpanKind.PRODUCER, attributes=attributes)
        span.end()
        return to_text(span)


class _Attempts(Observer):
    """Creates a span for each attempt."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._spans: dict[AttemptFacts, trace.Span] = {}

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """Start the attempt's span."""
        job = attempt.job
        attributes = _attributes("process", attempt.queue, job.id) | {
            "messaging.client.id": attempt.worker,
            "schedq.task": attempt.task,
            "schedq.attempt": job.attempts,
        }
        if attempt.lateness_ms is not None:
            attributes["schedq.lateness_ms"] = attempt.lateness_ms
        self._spans[attempt] = self._tracer.start_span(
            f"process {attempt.queue}", _parent(job), trace.SpanKind.CONSUMER, attributes
        )

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object] | None:
        """Make the span the current one inside the handler."""
        span = self._spans.get(attempt)
        return None if span is None else _Current(span)

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """Record the outcome, and end the span."""
        span = self._spans.pop(attempt, None)
        if span is None:
            return
        span.set_attribute("schedq.outcome", end.outcome)
        if end.outcome in ("retry", "snoozed"):
            due_ms = int(wall() * 1000) + end.delay_ms
            span.add_event(end.outcome, {"schedq.delay_ms": end.delay_ms, "schedq.due_at_ms": due_ms})
        if end.outcome in _FAILURES:
            span.set_status(trace.StatusCode.ERROR, end.error or end.outcome)
        span.end()


class _Current:
    """Makes a span the current one within a block, and records exceptions raised there; `attempt_ended` ends it."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._inside = trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def __enter__(self) -> None:
        self._inside.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        # The span of an attempt that timed out has already ended.
        if isinstance(error, Exception) and not isinstance(error, Decision) and self._span.is_recording():
            self._span.record_exception(error)
            self._span.set_attribute("error.type", type(error).__qualname__)
        self._inside.__exit__(kind, error, trace_)


def _parent(job: ClaimedJob) -> context.Context:
    return from_text(job.trace) if job.trace else context.Context()


def _attributes(operation: str, queue: str, job_id: str) -> dict[str, str | int]:
    return {
        "messaging.system": "schedq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "messaging.message.id": job_id,
    }
