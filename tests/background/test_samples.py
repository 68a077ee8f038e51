"""How the queue stands is written down by whoever holds the promoter lease, along with what it does anyway."""

from __future__ import annotations

from tests.conftest import MakeQueue
from tests.waiting import until
from tests.worker.crew import Crew, asked


def test_a_workers_promoter_takes_them_without_a_round_trip_of_their_own(make_queue: MakeQueue, crew: Crew):
    queue = make_queue(visibility_ms=5000)
    queue.task(name="ok")(lambda: "ok")
    with queue.server.requests() as requests:
        crew.start(queue)
        until(lambda: queue.redis.llen(queue.keys.samples))
        crew.end()

    looks = len(asked(requests, queue, "promote"))
    assert 1 <= len(asked(requests, queue, "sample")) <= 1 + looks / 9  # one in ten looks, each a second apart


def test_samples_that_cannot_be_taken_keep_no_job_waiting(make_queue: MakeQueue, crew: Crew):
    queue = make_queue(visibility_ms=5000)
    queue.task(name="ok")(lambda: "ok")
    queue.redis.set(queue.keys.samples, "another program's")
    crew.start(queue)

    assert queue.result(queue.enqueue({"task": "ok"}, delay=1.5), 60) == "ok"

    queue.redis.delete(queue.keys.samples)
