"""Workers that exit after a number of jobs, or after a time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from schedq import Fixed, UsageError, Worker
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, asked


@pytest.mark.usefixtures("long_goodbyes")
@pytest.mark.parametrize(("concurrency", "max_jobs"), [(1, 3), (2, 3), (10, 3), (10, 1)])
def test_a_worker_runs_exactly_its_maximum_of_jobs(queue: Handle, crew: Crew, concurrency: int, max_jobs: int) -> None:
    queue.task(name="ok")(lambda: "ok")
    ids = queue.enqueue_many([{"task": "ok"}] * 5)

    crew.start(queue, concurrency=concurrency, max_jobs=max_jobs).join()

    found = queue.places()
    assert sorted(found["completed"]) == sorted(ids[:max_jobs])  # threads end in any order
    assert found.keys() == {"completed", "pending"}
    assert found["pending"] == ids[max_jobs:]
    assert queue.redis.zcard(queue.keys.workers) == 0


def test_a_job_that_has_ended_gets_no_time_to_finish(queue: Handle, crew: Crew, logs: Logs) -> None:
    queue.task(name="ok")(lambda: "ok")
    queue.enqueue({"task": "ok"})

    crew.start(queue, max_jobs=1).join()

    assert [line for line in logs() if "has reached its limit of jobs" in line]
    assert not [line for line in logs() if "to finish" in line]


def test_of_several_queues_all_jobs_count(make_queue: MakeQueue, crew: Crew) -> None:
    queues = [make_queue(), make_queue()]
    for queue in queues:
        queue.task(name="ok")(lambda: "ok")
        queue.enqueue_many([{"task": "ok"}] * 3)

    crew.start(*queues, concurrency=4, max_jobs=4).join()

    assert sum(len(queue.places().get("completed", ())) for queue in queues) == 4


def test_each_attempt_of_a_job_counts(queue: Handle, crew: Crew) -> None:
    @queue.task(max_attempts=5, backoff=Fixed(0.01))
    def fails() -> None:
        raise RuntimeError

    job = fails.enqueue()

    crew.start(queue, max_jobs=2).join()

    assert job.record().attempts == 2
    assert queue.places().keys() <= {"delayed", "pending"}


def test_jobs_enqueued_later_are_run_too(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue, max_jobs=2)
    first = queue.enqueue({"task": "ok"})
    until(lambda: queue.places() == {"completed": [first]})
    assert post.is_working

    queue.enqueue({"task": "ok"})

    post.join()
    assert len(queue.places()["completed"]) == 2


def test_the_last_jobs_are_not_cut_short_by_the_grace_period(queue: Handle, crew: Crew, gate: Gate) -> None:
    gate.task(queue)
    ids = queue.enqueue_many([{"task": "hold"}] * 2)
    post = crew.start(queue, max_jobs=1, grace=0)
    gate.until_held()

    with pytest.raises(AssertionError, match="has not gone"):
        post.join(0.3)
    gate.open()
    post.join()

    assert queue.places() == {"completed": ids[:1], "pending": ids[1:]}


def test_while_they_run_the_worker_sends_no_claim(queue: Handle, crew: Crew, gate: Gate) -> None:
    gate.task(queue)
    queue.enqueue({"task": "hold"})
    post = crew.start(queue, max_jobs=1, concurrency=5)
    gate.until_held()

    with queue.server.requests() as sent:
        queue.enqueue({"task": "hold"})
        with pytest.raises(AssertionError, match="has not gone"):
            post.join(0.5)

    assert len(asked(sent, queue, "claim", "wake")) <= 2  # one claim may have been in progress
    gate.open()
    post.join()


def test_a_worker_whose_time_is_over_finishes_its_running_jobs(queue: Handle, crew: Crew, gate: Gate) -> None:
    gate.task(queue)
    ids = queue.enqueue_many([{"task": "hold"}] * 2)
    post = crew.start(queue, concurrency=1, grace=0)
    gate.until_held()

    post.do(post.worker.capacity.retire)  # as it does when `max_time` has passed

    with pytest.raises(AssertionError, match="has not gone"):
        post.join(0.3)
    gate.open()
    post.join()
    assert post.worker.is_retired
    assert queue.places() == {"completed": ids[:1], "pending": ids[1:]}


def test_an_idle_worker_exits_when_its_time_is_over(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")

    post = crew.start(queue, max_time=0.05)

    post.join()
    assert post.worker.is_retired


def test_a_worker_that_is_stopped_earlier_is_not_retired(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue, max_jobs=1000, max_time=1000)
    until(lambda: queue.redis.zcard(queue.keys.workers))

    post.stop()

    post.join()
    assert not post.worker.is_retired


@pytest.mark.parametrize(
    "given",
    [{"max_jobs": 0}, {"max_jobs": 1.5}, {"max_time": 0}, {"max_time": math.nan}, {"max_stuck": 0}, {"max_stuck": 16}],
)
def test_invalid_numbers_are_refused(queue: Handle, given: dict[str, Any]) -> None:
    queue.task(name="ok")(lambda: "ok")

    with pytest.raises(UsageError, match=f"{next(iter(given))} must be"):
        Worker([queue.queue], **given)
