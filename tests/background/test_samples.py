"""The leading promoter stores samples of the queue together with its other requests."""

from __future__ import annotations

from tests.conftest import MakeQueue
from tests.waiting import until
from tests.worker.crew import Crew, asked


def test_a_workers_promoter_takes_samples_without_an_extra_round_trip(make_queue: MakeQueue, crew: Crew):
    queue = make_queue(visibility_ms=5000)
    queue.task(name="ok")(lambda: "ok")
    with queue.server.requests() as requests:
        crew.start(queue)
        until(lambda: queue.redis.llen(queue.keys.samples))
        crew.end()

    looks = len(asked(requests, queue, "promote"))
    assert 1 <= len(asked(requests, queue, "sample")) <= 1 + looks / 9  # one in ten checks, which are a second apart


def test_samples_that_cannot_be_stored_do_not_delay_jobs(make_queue: MakeQueue, crew: Crew):
    queue = make_queue(visibility_ms=5000)
    queue.task(name="ok")(lambda: "ok")
    queue.redis.set(queue.keys.samples, "another program's")
    crew.start(queue)

    assert queue.result(queue.enqueue({"task": "ok"}, delay=1.5), 60) == "ok"

    queue.redis.delete(queue.keys.samples)
