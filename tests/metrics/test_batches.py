"""What metrics say of batches and of suspended runs."""

from __future__ import annotations

from typing import Any

import pytest

from schedq.inspect.batches import OpenBatches, open_batches
from schedq.metrics import QueueCollector, RedisQueues, page
from schedq.metrics.queues import readings
from schedq.model.runs import RunWait
from schedq.transitions import MarkerWait, groups
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.metrics.scrape import Scrape, scraped
from tests.transitions.run_scenes import HOUR, running, suspend


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=1)


@pytest.fixture
def load(queue: Handle) -> Any:
    @queue.task
    def load(number: int) -> int:
        return number

    return load


def look(queue: Handle) -> Scrape:
    collector = QueueCollector([RedisQueues.of([queue.queue])], 0)
    try:
        return scraped(page([collector]))
    finally:
        collector.close()


def batches(found: Scrape) -> dict[str, float]:
    """The values of the metrics of batches, by the ends of their names."""
    names = ("batches_open", "batch_children_waiting", "batch_children_running", "batch_stalled_seconds")
    return {name: found.value(f"schedq_{name}") for name in names if found.all(f"schedq_{name}")}


def numbers(*values: float) -> dict[str, float]:
    names = ("batches_open", "batch_children_waiting", "batch_children_running", "batch_stalled_seconds")
    return dict(zip(names, values, strict=True))


def promoted(queue: Handle, clock: Clock, seconds: float) -> None:
    """Time passes, and the promoter looks every 10 s."""
    for _ in range(int(seconds / 10)):
        clock.pass_time(10)
        queue.drive(groups.advance_all(queue.settings))


def test_a_queue_without_batches_and_runs_has_no_series_of_them(queue: Handle):
    queue.enqueue(1)

    found = look(queue)

    assert batches(found) == {}
    assert not found.all("schedq_runs_waiting")


def test_children_wait_run_and_end(queue: Handle, load: Any):
    with queue.batch("b", load, concurrency=3) as batch:
        batch.add(range(10))
    task = queue.task(lambda *_: 1, name="link")
    queue.chain(task, task, task)
    assert batches(look(queue)) == numbers(2, 7 + 2, 3 + 1, 0)

    queue.complete(queue.claim(0), 1)
    assert batches(look(queue)) == numbers(2, 6 + 2, 3 + 1, 0)

    while (job := queue.claim(0)) is not None:
        queue.complete(job, 1)
    assert batches(look(queue)) == numbers(0, 0, 0, 0)


def test_a_retry_counts_what_is_made_again(queue: Handle, load: Any):
    with queue.batch("b", load, concurrency=2) as batch:
        batch.add(range(5))
    while (job := queue.claim(0)) is not None:
        queue.fail(job, ValueError("no"))

    batch.retry()
    queue.drive(groups.advance_all(queue.settings))

    assert batches(look(queue))["batch_children_running"] == 2
    assert batches(look(queue))["batch_children_waiting"] == 3


def test_how_long_a_batch_has_made_no_progress(queue: Handle, load: Any, clock: Clock):
    with queue.batch("b", load) as batch:
        batch.add(range(3))
    promoted(queue, clock, 600)
    assert batches(look(queue))["batch_stalled_seconds"] == pytest.approx(600, abs=10)

    queue.complete(queue.claim(0), 1)
    promoted(queue, clock, 10)
    assert batches(look(queue))["batch_stalled_seconds"] <= 10

    promoted(queue, clock, 100)
    assert batches(look(queue))["batch_stalled_seconds"] == pytest.approx(100, abs=10)
    queue.complete(queue.claim(0), 1)
    queue.complete(queue.claim(0), 1)
    assert batches(look(queue)) == numbers(0, 0, 0, 0)


def test_a_batch_that_is_filled_makes_progress(queue: Handle, load: Any, clock: Clock):
    batch = queue.batch("b", load)
    batch.add(range(3))
    promoted(queue, clock, 300)

    batch.add(range(3))

    assert batches(look(queue))["batch_stalled_seconds"] == 0


def test_a_damaged_list_of_batches_is_shown_as_any_damaged_key(queue: Handle):
    queue.redis.sadd(queue.keys.groups, "x")

    assert look(queue).value("schedq_queue_readable") == 0
    queue.redis.delete(queue.keys.groups)


@pytest.mark.parametrize("key", ["group:b", "group:b:items"])
def test_damaged_batches_hide_nothing_else(queue: Handle, load: Any, key: str):
    for name in ("a", "b"):
        with queue.batch(name, load, concurrency=1) as batch:
            batch.add(range(3))
    name = queue.keys.prefix + key
    queue.redis.delete(name)
    queue.redis.sadd(name, "x")

    found = look(queue)

    assert found.value("schedq_jobs", state="pending") == 2
    assert batches(found) == numbers(1, 2, 1, 0)
    queue.redis.delete(name)


def test_of_many_batches_a_page_is_read(queue: Handle, clock: Clock):
    for number in range(300):
        queue.redis.zadd(queue.keys.groups, {f"b{number}": clock.now_ms})
        fields = {"status": "running", "total": 5, "ended": 2, "succeeded": 2, "began_at_ms": clock.now_ms - 9000}
        queue.redis.hset(queue.keys.group(f"b{number}"), mapping=fields)

    found = queue._ask(open_batches(queue.settings))

    assert found == OpenBatches(300, 200, 0, 600, 9000)
    queue.purge()


def test_batches_cost_no_round_trip_of_their_own(queue: Handle, load: Any):
    """They are read with the ages of the next jobs. A queue without batches sends nothing for them."""

    def requests() -> list[list[str]]:
        trips, found, replies = readings([queue.settings]), [], None
        try:
            while True:
                step = trips.send(replies) if replies is not None else next(trips)
                assert not isinstance(step, MarkerWait)
                found.append([operation.name for operation in step])
                replies = queue.execute(step)
        except StopIteration:
            return found

    queue.enqueue(1)
    plain = requests()
    with queue.batch("b", load) as batch:
        batch.add([1])
    batched = requests()

    assert [len(step) for step in plain] == [4, 1]
    assert [len(step) for step in batched] == [4, 2]


def test_suspended_runs_that_wait_for_a_message_or_jobs(queue: Handle, clock: Clock):
    waits = [
        RunWait("receive", "receive", None, "paid"),
        RunWait("receive", "receive", clock.now_ms + HOUR, "paid"),
        RunWait("sleep", "sleep", clock.now_ms + HOUR),
    ]
    for wait in waits:
        suspend(queue, running(queue), wait)

    assert look(queue).value("schedq_runs_waiting") == 1
    assert queue.stats()["waiting_runs"] == 1
