"""Metrics of a worker and of its queues, as Prometheus reads them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from schedq import JobFailed, NewJob, Queue, Rate
from schedq.inspect import stats
from schedq.metrics import AttemptMetrics, QueueCollector, RedisQueues, merged, page
from schedq.metrics.attempts import MOST_TASKS, NO_TASK, OTHER_TASKS
from schedq.metrics.queues import TOTALS, readings
from schedq.model.records import ClaimedJob
from schedq.observer import AttemptEnd, AttemptFacts
from schedq.transitions import MarkerWait, announce
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.metrics.scrape import OPENMETRICS, Scrape, scraped
from tests.servers import Server
from tests.waiting import until
from tests.worker.crew import Crew, Gate


def look(*queues: Handle, fresh_s: float = 0) -> Scrape:
    """Scrape what one Redis knows about its queues."""
    collector = QueueCollector([RedisQueues.of([queue.queue for queue in queues])], fresh_s)
    try:
        return scraped(page([collector]))
    finally:
        collector.close()


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_attempts_are_counted_and_measured_per_task(queue: Handle, crew: Crew, accept: str) -> None:
    @queue.task
    async def nap() -> None:
        await asyncio.sleep(0.03)

    @queue.task(max_attempts=1)
    def fail() -> None:
        raise RuntimeError("as it must be")

    @queue.task
    def idle() -> None: ...

    registry = CollectorRegistry()
    crew.start(queue, observers=[AttemptMetrics([queue.queue], registry)])
    for job in [nap.enqueue() for _ in range(3)]:
        job.result(60)
    with pytest.raises(JobFailed):
        fail.enqueue().result(60)

    found = scraped(page([registry], accept))
    name = queue.name
    assert found.value("schedq_attempts_total", queue=name, task="nap", outcome="completed") == 3
    assert found.value("schedq_attempts_total", queue=name, task="fail", outcome="failed") == 1
    assert found.value("schedq_attempts_total", queue=name, task="idle", outcome="completed") == 0
    assert found.value("schedq_attempt_duration_seconds_count", queue=name, task="nap") == 3
    assert found.value("schedq_attempt_duration_seconds_sum", queue=name, task="nap") >= 0.09 * 0.9
    assert found.value("schedq_attempt_duration_seconds_bucket", queue=name, task="nap", le="0.025") == 0
    assert found.value("schedq_attempt_lateness_seconds_count", queue=name, task="nap") == 3
    assert found.value("schedq_attempts_in_flight", queue=name, task="nap") == 0
    assert found.value("schedq_worker_up") == 1


def test_what_runs_is_in_flight_until_it_ends(queue: Handle, crew: Crew, gate: Gate) -> None:
    hold = gate.task(queue)

    registry = CollectorRegistry()
    post = crew.start(queue, observers=[AttemptMetrics([queue.queue], registry)])
    jobs = [hold.enqueue(), hold.enqueue()]

    def in_flight() -> float:
        return scraped(page([registry])).value("schedq_attempts_in_flight", queue=queue.name, task="hold")

    until(lambda: in_flight() == 2)
    gate.open()
    for job in jobs:
        job.result(60)
    until(lambda: in_flight() == 0)
    post.stop()
    post.join()

    assert scraped(page([registry])).value("schedq_worker_up") == 0


def test_lateness_is_measured_from_when_a_job_was_due() -> None:
    registry = CollectorRegistry()
    metrics = AttemptMetrics([], registry)
    for lateness in (250, 4000, None):
        metrics.attempt_started(AttemptFacts("q", "w", "t", ClaimedJob("a", None, 1, "r.1"), lateness))

    found = scraped(page([registry]))
    assert found.value("schedq_attempt_lateness_seconds_count", task="t") == 2
    assert found.value("schedq_attempt_lateness_seconds_sum", task="t") == 4.25
    assert found.value("schedq_attempt_lateness_seconds_bucket", task="t", le="0.25") == 1


def test_tasks_without_end_share_one_label() -> None:
    registry = CollectorRegistry()
    metrics = AttemptMetrics([], registry)
    for task in ["", *(f"task-{number}" for number in range(MOST_TASKS + 50))]:
        attempt = AttemptFacts("q", "w", task, ClaimedJob("a", None, 1, "r.1"), 1)
        metrics.attempt_started(attempt)
        metrics.attempt_ended(attempt, AttemptEnd("completed", 0.1))

    found = scraped(page([registry]))
    tasks = {labels["task"] for labels, _ in found.all("schedq_attempt_duration_seconds_count")}
    assert len(tasks) == MOST_TASKS + 1
    assert found.value("schedq_attempts_total", task=NO_TASK, outcome="completed") == 1
    assert found.value("schedq_attempts_total", task=OTHER_TASKS, outcome="completed") == 51
    assert {value for _, value in found.all("schedq_attempts_in_flight")} == {0}


def test_a_queue_shows_its_depths_totals_and_ages(make_queue: MakeQueue, clock: Clock) -> None:
    queue = make_queue(clock=clock)
    first = queue.enqueue(1)
    queue.complete(queue.claim(), None)
    queue.enqueue(2, max_attempts=1)
    queue.fail(queue.claim(), "no")
    clock.pass_time(1)
    queue.enqueue_many([3, 4])
    queue.enqueue(5, delay=10)
    clock.pass_time(12.5)
    queue.pause()

    found = look(queue)

    name = queue.name
    depths = {labels["state"]: value for labels, value in found.all("schedq_jobs", queue=name)}
    assert depths == {
        **dict.fromkeys(("processing", "cancelled", "broken"), 0),
        "pending": 2,
        "delayed": 1,
        "completed": 1,
        "failed": 1,
    }
    assert found.value("schedq_jobs_enqueued_total", queue=name) == 5
    assert found.value("schedq_jobs_completed_total", queue=name) == 1
    assert found.value("schedq_pending_oldest_age_seconds", queue=name) == 12.5
    assert found.value("schedq_next_due_timestamp_seconds", queue=name) == clock.now - 2.5
    assert found.value("schedq_promoter_lag_seconds", queue=name) == 2.5
    assert found.value("schedq_queue_paused", queue=name) == 1
    assert found.value("schedq_queue_readable", queue=name) == 1
    assert found.all("schedq_redis_up")[0][1] == 1
    assert queue.get_job(first) is not None


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        (8, 0.25),
        (0, None),
        (None, None),
        pytest.param("?", None, marks=pytest.mark.breaks("layout", because="settings are of the wrong type")),
    ],
)
def test_the_used_share_of_failed_history_and_what_it_deleted(
    make_queue: MakeQueue, limit: int | str | None, used: float | None
) -> None:
    queue = make_queue(failed_history=None if isinstance(limit, str) else limit)
    for _ in range(2):
        queue.enqueue(1, max_attempts=1)
        queue.fail(queue.claim(), "no")
    queue._ask(announce.announce(queue.settings))
    queue.redis.hset(queue.keys.stats, "failed_dropped_total", 7)
    if limit == "?":
        queue.redis.delete(queue.keys.settings)
        queue.redis.set(queue.keys.settings, limit)

    found = look(queue)

    assert [value for _, value in found.all("schedq_failed_history_used_ratio")] == [used] * (used is not None)
    assert found.value("schedq_failed_dropped_total", queue=queue.name) == 7


def test_paused_tasks_and_their_held_jobs_are_counted(make_queue: MakeQueue, clock: Clock) -> None:
    queue = make_queue(clock=clock)
    queue.enqueue_many([{"task": "send"}] * 2)
    queue.pause(task="send")
    queue.pause(task="resize")
    assert queue.claim(0) is None
    clock.pass_time(60)

    found = look(queue)

    assert found.value("schedq_tasks_paused", queue=queue.name) == 2
    assert found.value("schedq_jobs_held", queue=queue.name) == 2
    assert found.value("schedq_jobs", queue=queue.name, state="pending") == 2
    assert not found.all("schedq_pending_oldest_age_seconds")
    assert found.value("schedq_queue_paused", queue=queue.name) == 0


def test_the_age_of_a_job_that_waited_counts_from_when_it_was_due(make_queue: MakeQueue, clock: Clock) -> None:
    queue = make_queue(clock=clock)
    queue.enqueue(1, delay=60)
    clock.pass_time(60)
    queue.promote_due()
    clock.pass_time(5)

    assert look(queue).value("schedq_pending_oldest_age_seconds", queue=queue.name) == 5


def test_an_empty_queue_has_no_age_no_lag_and_no_next_due(queue: Handle) -> None:
    found = look(queue)

    assert found.value("schedq_pending_oldest_age_seconds", queue=queue.name) == 0
    assert found.value("schedq_promoter_lag_seconds", queue=queue.name) == 0
    assert found.all("schedq_next_due_timestamp_seconds") == []


def test_a_job_that_does_not_say_when_it_came_has_no_age(queue: Handle) -> None:
    queue.redis.hset(queue.keys.job("foreign"), "payload", "1")
    queue.redis.lpush(queue.keys.pending, "foreign")

    found = look(queue)
    queue.redis.delete(queue.keys.job("foreign"), queue.keys.pending)

    assert found.value("schedq_jobs", state="pending") == 1
    assert found.all("schedq_pending_oldest_age_seconds") == []


def test_every_total_has_a_metric() -> None:
    assert {f"{what}_total" for what in TOTALS} == set(stats.TOTALS)


def test_a_damaged_queue_does_not_hide_the_others(make_queue: MakeQueue) -> None:
    good, bad = make_queue(), make_queue()
    good.enqueue(1)
    good.redis.set(bad.keys.failed, "no list")

    found = look(good, bad)
    good.redis.delete(bad.keys.failed)

    assert found.value("schedq_queue_readable", queue=bad.name) == 0
    assert found.value("schedq_queue_readable", queue=good.name) == 1
    assert found.value("schedq_jobs", queue=good.name, state="pending") == 1
    assert found.all("schedq_jobs", queue=bad.name) == []


def test_a_thousand_queues_take_few_round_trips(server: Server) -> None:
    with Queue("many", redis=server.unix_url) as queue, server.client() as client:
        settings = [replace(queue.settings, name=f"many-{number}") for number in range(1000)]
        waiting = [one.keys.pending for one in settings[::7]]
        for key in waiting:
            client.lpush(key, "gone")
        trips, count, found = readings(settings), 0, []
        try:
            step = next(trips)
            while True:
                assert not isinstance(step, MarkerWait)
                count += 1
                step = trips.send(queue._client.execute(step))
        except StopIteration as stop:
            found = stop.value
        client.delete(*waiting)

    assert [reading.queue for reading in found] == [one.name for one in settings]
    assert [reading.stats["pending_depth"] for reading in found] == [int(n % 7 == 0) for n in range(1000)]
    assert count == 10


def test_a_second_scrape_is_served_what_the_first_read(queue: Handle) -> None:
    queue.enqueue(1)
    collector = QueueCollector([RedisQueues.of([queue.queue])], fresh_s=3600)
    first = scraped(page([collector]))
    queue.enqueue(2)
    second = scraped(page([collector]))
    collector.close()

    assert first.samples == second.samples
    assert look(queue).value("schedq_jobs", queue=queue.name, state="pending") == 2


def test_a_redis_that_does_not_respond_is_down_and_the_rest_is_shown(queue: Handle, server: Server) -> None:
    with Server(topology="single") as other:
        away = Queue("away", redis=other.url)
        collector = QueueCollector([RedisQueues.of([queue.queue]), RedisQueues.of([away])], fresh_s=0)
        assert {value for _, value in scraped(page([collector])).all("schedq_redis_up")} == {1}
        other.kill()
        found = scraped(page([collector]))
        collector.close()

    assert found.value("schedq_redis_up", redis=away.address.label) == 0
    assert found.value("schedq_redis_up", redis=queue.address.label) == 1
    assert found.value("schedq_queue_readable", queue=queue.name, redis=queue.address.label) == 1
    assert found.all("schedq_queue_readable", queue="away") == []


def test_a_fleet_is_one_page_with_a_label_for_the_process() -> None:
    texts: dict[int, str | None] = {}
    for number in (1, 2):
        registry = CollectorRegistry()
        metrics = AttemptMetrics([], registry)
        attempt = AttemptFacts("q", "w", "t", ClaimedJob("a", None, 1, "r.1"), 10)
        metrics.worker_started("w", ["q"])
        for _ in range(number):
            metrics.attempt_started(attempt)
            metrics.attempt_ended(attempt, AttemptEnd("completed", 0.1))
        texts[number] = page([registry]).body.decode()

    for accept in ("", OPENMETRICS):
        found = scraped(merged(texts | {3: None}, [], accept))
        for count in (1, 2):
            assert found.value("schedq_attempts_total", outcome="completed", process=str(count)) == count
            assert found.value("schedq_attempt_duration_seconds_count", process=str(count)) == count
        up = {labels["process"]: value for labels, value in found.all("schedq_worker_up")}
        assert up == {"1": 1, "2": 1, "3": 0}


def test_an_applications_own_metrics_are_served_unchanged() -> None:
    registry = CollectorRegistry()
    Counter("mails", "Sent.", registry=registry).inc(3)
    Gauge("orders_created", "A gauge whose name ends as creation times do.", registry=registry).set(4)

    found = scraped(page([registry]))

    assert found.value("mails_total") == 3
    assert found.value("orders_created") == 4
    assert "mails_created" not in found.names


def test_names_and_units_are_as_prometheus_has_them(queue: Handle) -> None:
    queue.task(lambda: None, name="nothing")
    registry = CollectorRegistry()
    AttemptMetrics([queue.queue], registry)
    collector = QueueCollector([RedisQueues.of([queue.queue])])
    families = scraped(page([registry, collector], OPENMETRICS)).families
    collector.close()

    assert all(family.name.startswith("schedq_") and family.documentation.endswith(".") for family in families)
    assert not [family.name for family in families if family.name.endswith(("_ms", "_milliseconds", "_count", "_sum"))]
    assert {sample.name for family in families if family.type == "counter" for sample in family.samples} == {
        f"{family.name}_total" for family in families if family.type == "counter"
    }


@pytest.mark.parametrize("label", ['a"b', "a\nb", "a\\b"])
def test_no_name_can_break_the_page(label: str) -> None:
    registry = CollectorRegistry()
    metrics: Any = AttemptMetrics([SimpleNamespace(name="q", registry=SimpleNamespace(names=(label,)))], registry)  # type: ignore[list-item]

    assert scraped(page([registry])).value("schedq_attempts_in_flight", task=label) == 0
    assert metrics


def test_gates_are_counted_by_name_and_never_by_key(queue: Handle) -> None:
    queue.gates.set("api", concurrency=2)
    queue.gates.set(None, rate=Rate(1000, per=1, burst=100))
    queue.enqueue_many([NewJob(n, gate="api", key=key) for n, key in enumerate("aabbc")])
    assert queue.claim(0)
    queue.gates.pause("api")

    found = look(queue)

    def value(name: str, gate: str = "api") -> float | None:
        return found.value(f"schedq_gate_{name}", queue=queue.name, gate=gate)

    assert (value("waiting"), value("running"), value("limit"), value("keys_ready")) == (4, 1, 2, 3)
    assert (value("paused"), value("paused", ""), value("running", "")) == (1, 0, 1)
    assert found.value("schedq_jobs_limited_total", queue=queue.name) == 0
    assert found.value("schedq_gate_places_mended_total", queue=queue.name) == 0
