"""An application whose processes write their spans to a file."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from schedq import current_job
from schedq.tracing import instrument
from tests.stories.processes.app import FOLDER, made

SPANS = FOLDER / os.environ["APP_SPANS"]
queue = made(os.environ.get("APP_REDIS"), json.loads(os.environ.get("APP_SETTINGS", "{}")))


class ToFile(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with SPANS.open("a") as file:
            for span in spans:
                file.write(json.dumps(json.loads(span.to_json()) | {"pid": os.getpid()}) + "\n")
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
instrument(provider)
tracer = trace.get_tracer("application", tracer_provider=provider)


@queue.task(max_attempts=3)
async def third_time_lucky() -> None:
    """Fails twice; then it enqueues a job from a thread."""
    with tracer.start_as_current_span(f"inside {current_job().attempts}"):
        await asyncio.sleep(0)
        if current_job().attempts < 3:
            raise LookupError("not yet")
        await asyncio.to_thread(in_thread.enqueue)


@queue.task
def passes_on() -> None:
    """Enqueues a job outside any span of its own."""
    in_thread.enqueue()


@queue.task
def in_thread() -> None:
    with tracer.start_as_current_span("inside a thread"):
        pass
