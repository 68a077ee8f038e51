"""Workers count the attempts of each task, and store the counts with their heartbeats."""

from __future__ import annotations

import pytest

from schedq import Discard, Fixed, Snooze
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate, beat_every


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers send ten heartbeats a second."""
    beat_every(0.1, monkeypatch)


def counts(queue: Handle) -> dict[str, tuple[int, int, int, int]]:
    """By task: completed, failed, retried, cancelled."""
    found = queue.inspector.task_stats().ever.tasks
    return {task: (each.completed, each.failed, each.retried, each.cancelled) for task, each in found.items()}


@pytest.mark.usefixtures("hasty")
def test_each_way_to_end_is_counted_for_its_task(make_queue: MakeQueue, crew: Crew, gate: Gate):
    queue = make_queue()
    queue.task(name="good")(lambda: "done")
    snoozed: list[int] = []

    @queue.task(name="bad", max_attempts=2, backoff=Fixed(0))
    def bad() -> None:
        raise ValueError("no use")

    @queue.task(name="refused")
    def refused() -> None:
        raise Discard("never")

    @queue.task(name="later")
    def later() -> None:
        if not snoozed:
            snoozed.append(1)
            raise Snooze(0)

    gate.task(queue)
    queue.handler(lambda payload: None)
    for task in ("good", "good", "bad", "refused", "later"):
        queue.enqueue({"task": task})
    queue.enqueue({"no": "task"})
    crew.start(queue)
    held = queue.enqueue({"task": "hold"})
    gate.until_held()
    queue.cancel(held)

    expected = {
        "good": (2, 0, 0, 0),
        "bad": (0, 1, 1, 0),
        "refused": (0, 1, 0, 0),
        "later": (1, 0, 0, 0),
        "hold": (0, 0, 0, 1),
        "": (1, 0, 0, 0),
    }
    until(lambda: sum(map(sum, counts(queue).values())) >= 8)
    assert counts(queue) == expected


def test_a_worker_that_stops_stores_its_last_counts(make_queue: MakeQueue, crew: Crew):
    queue = make_queue()
    queue.task(name="good")(lambda: "done")
    post = crew.start(queue)
    job = queue.enqueue({"task": "good"})
    queue.result(job, 10)

    post.end()

    assert counts(queue) == {"good": (1, 0, 0, 0)}


def test_run_times_and_lateness_are_counted(make_queue: MakeQueue, crew: Crew, clock: Clock):
    queue = make_queue(clock=clock)
    queue.task(name="good")(lambda: "done")
    job = queue.enqueue({"task": "good"})
    clock.pass_time(5)
    post = crew.start(queue)
    queue.result(job, 10)

    post.end()

    found = queue.inspector.task_stats().ever.tasks["good"]
    assert found.run.count == found.lateness.count == 1
    assert found.latest_ms == 5000
    assert found.lateness.quantile_ms(0.5) == pytest.approx(5000, rel=0.42)
    assert found.longest_ms < 5000


def test_a_queue_whose_figures_are_damaged_is_served(make_queue: MakeQueue, crew: Crew):
    queue = make_queue()
    queue.task(name="good")(lambda: "done")
    queue.redis.set(queue.keys.task_stats, "another program's")
    post = crew.start(queue)

    assert queue.result(queue.enqueue({"task": "good"}), 10) == "done"

    post.end()
    queue.redis.delete(queue.keys.task_stats)
    assert queue.stats()["completed_total"] == 1
