"""Another program's data under a queue's keys, and its effect on other queues. (All cases: tests/stories/bad_input.)"""

from __future__ import annotations

import time

from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew


def test_a_queue_that_rejects_claims_does_not_delay_the_queues_after_it(make_queue: MakeQueue, crew: Crew) -> None:
    first, second = make_queue(), make_queue()
    for queue in (first, second):
        queue.task(name="ok")(lambda: "ok")
    first.redis.set(first.keys.leases, "not a zset")
    crew.start(first, second, concurrency=1)
    first_job = first.enqueue({"task": "ok"})

    for _ in range(20):
        assert second.result(second.enqueue({"task": "ok"}), 30) == "ok"
    assert first.places() == {"pending": [first_job]}
    first.redis.delete(first.keys.leases)
    assert first.result(first_job, 30) == "ok"


def test_a_worker_whose_settlements_are_rejected_claims_no_more_jobs(queue: Handle, crew: Crew, logs: Logs) -> None:
    started = []
    queue.task(name="note")(lambda: started.append(1))
    ids = queue.enqueue_many([{"task": "note"}] * 50)
    queue.redis.set(queue.keys.completed, "not a list")
    crew.start(queue, concurrency=2)

    def said() -> list[str]:
        return [line for line in logs() if f"{queue.name}: jobs can't be settled: " in line and "WRONGTYPE" in line]

    until(said)
    time.sleep(1.2)
    assert 2 <= len(started) <= 6
    assert len(said()) == 1
    queue.redis.delete(queue.keys.completed)
    assert all(queue.wait(job_id, 60) for job_id in ids)
    assert len(started) == 50
