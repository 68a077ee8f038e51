"""Traces: one trace shows a whole job, from its producer through a delay and retries to other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from schedq import UsageError, observer
from schedq.tracing import instrument, spans
from schedq.transitions import enqueue
from tests.stories.processes.scene import FRESH, ROOT, Scene, call
from tests.stories.processes.stage import MakeScene

pytestmark = pytest.mark.processes
SPANS = "spans.jsonl"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """The spans of this process; tracing is off before and after the test."""
    enqueue.tracers.clear()
    observer.everywhere.clear()
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(provider)
    exporter.tracer = trace.get_tracer("test", tracer_provider=provider)  # type: ignore[attr-defined]
    yield exporter
    enqueue.tracers.clear()
    observer.everywhere.clear()


def made_by(exporter: InMemorySpanExporter) -> list[dict[str, Any]]:
    return [json.loads(span.to_json()) for span in exporter.get_finished_spans()]


def written(scene: Scene) -> list[dict[str, Any]]:
    file = scene.folder / SPANS
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be incomplete yet


def named(all_spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return sorted((span for span in all_spans if span["name"] == name), key=lambda span: span["start_time"])


def test_one_trace_shows_a_whole_job(make_scene: MakeScene, exporter: InMemorySpanExporter):
    scene = make_scene(visibility_ms=5000, backoff=0.2)
    with exporter.tracer.start_as_current_span("request"):  # type: ignore[attr-defined]
        job_id = scene.queue.enqueue(call("third_time_lucky"), delay=0.5)

    worker = scene.start("worker", "tests.tracing.traced_app:queue", "--tracing", APP_SPANS=SPANS)
    scene.until(lambda: len(named(written(scene), "process work")) == 4)

    theirs, ours = written(scene), made_by(exporter)
    request, creation = named(ours, "request")[0], named(ours, "create work")[0]
    attempts, last = named(theirs, "process work")[:3], named(theirs, "process work")[3]
    again = named(theirs, "create work")[0]
    assert {span["context"]["trace_id"] for span in ours + theirs} == {request["context"]["trace_id"]}
    assert creation["parent_id"] == request["context"]["span_id"]
    assert [span["parent_id"] for span in attempts] == [creation["context"]["span_id"]] * 3
    inside = [named(theirs, f"inside {number}")[0] for number in (1, 2, 3)]
    assert [span["parent_id"] for span in inside] == [span["context"]["span_id"] for span in attempts]
    assert again["parent_id"] == inside[2]["context"]["span_id"]
    assert last["parent_id"] == again["context"]["span_id"]
    assert named(theirs, "inside a thread")[0]["parent_id"] == last["context"]["span_id"]
    assert {span["pid"] for span in theirs} == {worker.pid} != {os.getpid()}
    check_attributes(creation, attempts, job_id)


def test_one_trace_shows_jobs_that_run_in_child_processes(make_scene: MakeScene, exporter: InMemorySpanExporter):
    scene = make_scene(visibility_ms=5000)
    options, how = ("--tracing", "--pool", "process"), {"command": FRESH}
    worker = scene.start("worker", "tests.tracing.traced_app:queue", *options, APP_SPANS=SPANS, how=how)
    with exporter.tracer.start_as_current_span("request"):  # type: ignore[attr-defined]
        scene.queue.enqueue(call("passes_on"))
    scene.until(lambda: len(named(written(scene), "process work")) == 2)

    theirs, ours = written(scene), made_by(exporter)
    first, last = named(theirs, "process work")
    creation, inside = named(theirs, "create work")[0], named(theirs, "inside a thread")[0]
    assert {span["context"]["trace_id"] for span in ours + theirs} == {first["context"]["trace_id"]}
    assert creation["parent_id"] == first["context"]["span_id"]
    assert last["parent_id"] == creation["context"]["span_id"]
    assert inside["parent_id"] == last["context"]["span_id"]
    assert first["pid"] == last["pid"] == worker.pid
    assert worker.pid not in (creation["pid"], inside["pid"])


def check_attributes(creation: dict[str, Any], attempts: list[dict[str, Any]], job_id: str) -> None:
    for span, operation in ((creation, "create"), *((span, "process") for span in attempts)):
        assert span["kind"] == ("SpanKind.PRODUCER" if operation == "create" else "SpanKind.CONSUMER")
        assert (
            span["attributes"].items()
            >= {
                "messaging.system": "schedq",
                "messaging.operation.type": operation,
                "messaging.operation.name": operation,
                "messaging.destination.name": "work",
                "messaging.message.id": job_id,
            }.items()
        )
    assert [span["attributes"]["schedq.attempt"] for span in attempts] == [1, 2, 3]
    assert [span["attributes"]["schedq.outcome"] for span in attempts] == ["retry", "retry", "completed"]
    assert [span["status"]["status_code"] for span in attempts] == ["ERROR", "ERROR", "UNSET"]
    for span in attempts[:2]:
        assert [event["name"] for event in span["events"]] == ["exception", "retry"]
        assert span["attributes"]["error.type"] == "LookupError"
        assert "not yet" in span["status"]["description"]
        assert span["events"][1]["attributes"]["schedq.delay_ms"] == 200


def test_outside_a_span_and_without_tracing_nothing_is_stored(make_scene: MakeScene, exporter: InMemorySpanExporter):
    scene = make_scene()

    outside = scene.add("brief")
    enqueue.tracers.clear()
    with exporter.tracer.start_as_current_span("request"):  # type: ignore[attr-defined]
        without = scene.add("brief")

    assert "trace" not in scene.job(outside).fields
    assert "trace" not in scene.job(without).fields


def test_the_trace_stays_with_a_job_whatever_happens_to_it(make_scene: MakeScene, exporter: InMemorySpanExporter):
    scene = make_scene(visibility_ms=60_000, max_attempts=1)
    with exporter.tracer.start_as_current_span("request"):  # type: ignore[attr-defined]
        (job_id,) = scene.queue.enqueue_many([call("brief")])
    creation = named(made_by(exporter), "create work")[0]
    stored = scene.job(job_id).fields["trace"]

    claimed = []
    for end in (scene.queue.release, lambda job: scene.queue.snooze(job, 0), scene.queue.fail, scene.queue.complete):
        job = scene.queue.claim(60_000)
        assert job is not None
        claimed.append(job.trace)
        assert end(job)
        scene.queue.requeue(job_id)

    assert stored.startswith(f"00-{creation['context']['trace_id'][2:]}-{creation['context']['span_id'][2:]}-")
    assert claimed == [stored] * 4
    assert scene.job(job_id).fields["trace"] == stored


@pytest.mark.parametrize("text", ["", "x", PARENT[:-3], PARENT + "7" * 50_000, "00-" + "0" * 32 + PARENT[35:], "\0 \n"])
def test_an_invalid_trace_is_ignored(text: str):
    assert trace.get_current_span(spans.from_text(text)).get_span_context().is_valid is False


def test_a_tracestate_follows_the_traceparent():
    found = trace.get_current_span(spans.from_text(f"{PARENT} vendor=1,other=2"))

    assert found.get_span_context().trace_state == {"vendor": "1", "other": "2"}
    assert spans.to_text(found) == f"{PARENT} vendor=1,other=2"


def test_without_the_extra_all_else_works_and_the_error_names_the_command_that_installs_it(tmp_path: Path):
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("raise ModuleNotFoundError(name='opentelemetry')")
    program = "import schedq, schedq.worker, schedq.tracing\nschedq.tracing.instrument()"

    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (
        ended.stderr.splitlines()[-1]
        == f"schedq.errors.{UsageError.__name__}: tracing needs an extra: pip install 'schedq[tracing]'"
    )
