"""OpenTelemetry metrics, by the conventions for messaging: what was enqueued, delivered and processed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from schedq import Conflict, Discard, Fixed, QueueFull, Retry, Snooze, StoreUnavailable, Worker, observer
from schedq.tracing import MessagingMetrics, instrument_metrics
from schedq.transitions import enqueue
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.stories.processes.scene import ROOT
from tests.stories.processes.stage import MakeScene

SENT, CONSUMED = "messaging.client.sent.messages", "messaging.client.consumed.messages"
DURATION, LATENESS = "messaging.process.duration", "schedq.attempt.lateness"
METRICS = "metrics.jsonl"


class Meters:
    """What was measured."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self.reader])

    def read(self) -> dict[str, Any]:
        """The metrics, by name."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        assert {scope.scope.name for scope in scopes} <= {"schedq"}
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def points(self, name: str) -> list[tuple[dict[str, str], Any]]:
        """Attributes and data point of each series of a metric."""
        found = self.read().get(name)
        return [] if found is None else [(dict(point.attributes), point) for point in found.data.data_points]

    def counts(self, name: str, attribute: str) -> dict[str, int]:
        """The number of events of a metric by one attribute, '' where it is missing."""
        return {
            said.get(attribute, ""): getattr(point, "value", None) or point.count for said, point in self.points(name)
        }


@pytest.fixture
def meters() -> Meters:
    return Meters()


@pytest.fixture
def instrumented(meters: Meters) -> Iterator[Meters]:
    """This process is measured during the test."""
    instrument_metrics(meters.provider)
    yield meters
    enqueue.counters.clear()
    observer.everywhere.clear()


def run_all(queue: Handle, *observers: observer.Observer) -> None:
    """Run all jobs of a queue in a worker."""
    asyncio.run(Worker([queue.queue], observers=observers, burst=True, grace=0).run())


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    return make_queue(backoff=Fixed(0), max_attempts=2)


def test_what_is_measured_has_the_names_and_units_of_the_conventions(queue: Handle, instrumented: Meters):
    queue.handler(lambda payload: None)
    queue.enqueue("mail")
    run_all(queue)

    found = {name: (metric.unit, type(metric.data).__name__) for name, metric in instrumented.read().items()}

    assert found == {
        SENT: ("{message}", "Sum"),
        CONSUMED: ("{message}", "Sum"),
        DURATION: ("s", "Histogram"),
        LATENESS: ("s", "Histogram"),
    }
    ((_, point),) = instrumented.points(DURATION)
    assert point.explicit_bounds == (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def test_an_attempt_says_its_queue_its_task_and_how_it_ended(queue: Handle, meters: Meters):
    queue.task(name="send")(lambda: "sent")
    queue.enqueue({"task": "send"})

    run_all(queue, MessagingMetrics(meters.provider))

    common = {
        "messaging.system": "schedq",
        "messaging.operation.name": "process",
        "messaging.destination.name": queue.name,
        "schedq.task": "send",
    }
    assert [said for said, _ in meters.points(DURATION)] == [common | {"schedq.outcome": "completed"}]
    assert [(said, point.value) for said, point in meters.points(CONSUMED)] == [(common, 1)]
    assert [(said, point.count) for said, point in meters.points(LATENESS)] == [(common, 1)]


def raise_(error: Exception) -> Any:
    raise error


def test_failures_have_the_type_of_their_error(queue: Handle, meters: Meters):
    queue.task(name="breaks")(lambda: raise_(LookupError("no")))
    queue.task(name="discards")(lambda: raise_(Discard("no")))
    queue.task(name="retries", max_attempts=1)(lambda: raise_(Retry(after=0)))
    queue.task(name="works")(lambda: None)
    for task in ("breaks", "discards", "retries", "works"):
        queue.enqueue({"task": task})

    run_all(queue, MessagingMetrics(meters.provider))

    found = {
        (said["schedq.task"], said["schedq.outcome"], said.get("error.type")): point.count
        for said, point in meters.points(DURATION)
    }
    assert found == {
        ("breaks", "retry", "LookupError"): 1,
        ("breaks", "failed", "LookupError"): 1,
        ("discards", "failed", "Discard"): 1,
        ("retries", "failed", "Retry"): 1,
        ("works", "completed", None): 1,
    }
    assert sum(meters.counts(CONSUMED, "schedq.task").values()) == 5


def test_a_snooze_is_no_error(queue: Handle, meters: Meters):
    snoozes = iter([True])
    queue.task(name="naps")(lambda: raise_(Snooze(0)) if next(snoozes, False) else None)
    queue.enqueue({"task": "naps"})

    run_all(queue, MessagingMetrics(meters.provider))

    assert meters.counts(DURATION, "schedq.outcome") == {"snoozed": 1, "completed": 1}
    assert meters.counts(DURATION, "error.type").keys() == {""}


def test_a_failure_without_an_exception_is_another_error(queue: Handle, meters: Meters):
    job_id = queue.enqueue("mail", max_attempts=1)
    queue.redis.hset(queue.keys.job(job_id), "payload", "what is this")
    queue.handler(lambda payload: None)

    run_all(queue, MessagingMetrics(meters.provider))

    assert [said["error.type"] for said, _ in meters.points(DURATION)] == ["_OTHER"]
    assert "schedq.task" not in meters.points(DURATION)[0][0]


# -- producers


def test_what_a_process_enqueues_is_counted(queue: Handle, instrumented: Meters):
    task = queue.task(name="send")(lambda: None)
    queue.enqueue("mail")
    queue.enqueue_many(range(1000))
    task.enqueue()
    task.enqueue_many([((), {}), task.with_args()])

    ((said, point),) = instrumented.points(SENT)

    assert point.value == 1004
    assert said == {
        "messaging.system": "schedq",
        "messaging.operation.name": "enqueue",
        "messaging.destination.name": queue.name,
    }


def test_a_job_that_exists_already_was_sent_all_the_same(queue: Handle, instrumented: Meters):
    for _ in range(2):
        queue.enqueue("mail", job_id="mail-1")

    assert instrumented.counts(SENT, "error.type") == {"": 2}


def test_jobs_that_are_refused_are_counted_with_the_error(make_queue: MakeQueue, instrumented: Meters):
    queue = make_queue(max_pending=2)
    queue.enqueue("mail", job_id="mail-1")
    with pytest.raises(Conflict):
        queue.enqueue("other", job_id="mail-1")
    with pytest.raises(QueueFull):
        queue.enqueue_many(range(3))

    assert instrumented.counts(SENT, "error.type") == {"": 2, "Conflict": 1, "QueueFull": 2}


def test_jobs_that_could_not_be_sent_are_counted_with_the_error(
    make_queue: MakeQueue, instrumented: Meters, tmp_path: Path
):
    queue = make_queue(url=f"unix://{tmp_path}/nobody", retry_for=0)
    with pytest.raises(StoreUnavailable):
        queue.enqueue("mail")
    with pytest.raises(StoreUnavailable):
        queue.enqueue_many(range(5))

    assert instrumented.counts(SENT, "error.type") == {"StoreUnavailable": 6}


def test_a_job_that_is_invalid_was_never_sent(queue: Handle, instrumented: Meters):
    for wrong in (object(), float("nan")):
        with pytest.raises(ValueError, match="not JSON"):
            queue.enqueue(wrong)

    assert instrumented.points(SENT) == []


def test_instrumenting_twice_counts_once(queue: Handle, instrumented: Meters):
    instrument_metrics(instrumented.provider)
    queue.handler(lambda payload: None)
    queue.enqueue("mail")
    run_all(queue)

    assert instrumented.counts(SENT, "error.type") == {"": 1}
    assert instrumented.counts(CONSUMED, "messaging.destination.name") == {queue.name: 1}


# -- the command line


@pytest.mark.processes
@pytest.mark.parametrize("words", [("--otel-metrics",), ("--observer", "tests.tracing.measured_app:observer")])
def test_a_worker_measures_by_the_provider_that_its_application_sets(make_scene: MakeScene, words: tuple[str, ...]):
    scene = make_scene()
    scene.add("brief")

    scene.start("worker", "tests.tracing.measured_app:queue", *words, APP_METRICS=METRICS)

    file = scene.folder / METRICS
    scene.until(lambda: file.exists() and DURATION in file.read_text())
    assert CONSUMED in file.read_text()


@pytest.mark.processes
def test_without_the_extra_the_command_that_installs_it_is_named(tmp_path: Path):
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("raise ModuleNotFoundError(name='opentelemetry')")
    program = "import schedq.tracing\nschedq.tracing.instrument_metrics()"

    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    said = "schedq.errors.UsageError: OpenTelemetry metrics need an extra: pip install 'schedq[tracing]'"
    assert ended.stderr.splitlines()[-1] == said
