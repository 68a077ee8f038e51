"""Workers that exit when everything is done."""

from __future__ import annotations

import time

import pytest

from schedq import Fixed, current_job
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew


def test_a_burst_worker_exits_when_everything_is_done(queue: Handle, crew: Crew) -> None:
    @queue.task(backoff=Fixed(0.1))
    def fails_once() -> str:
        if current_job().attempts == 1:
            raise RuntimeError
        return "done"

    jobs = [
        fails_once.enqueue(),
        fails_once.options(delay=0.3).enqueue(),
    ]
    post = crew.start(queue, burst=True)
    post.join()

    found = queue.places()
    assert found.keys() == {"completed"}
    assert sorted(found["completed"]) == sorted(job.id for job in jobs)


def test_a_burst_worker_waits_for_jobs_that_others_run(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    queue.enqueue({"task": "ok"})
    theirs = queue.claim()
    post = crew.start(queue, burst=True)

    with pytest.raises(AssertionError, match="has not gone"):
        post.join(0.5)
    queue.renew(theirs)
    queue.complete(theirs)
    post.join()

    assert queue.fields(theirs.id)["worker"] == ""


def test_a_burst_worker_logs_which_delayed_job_it_waits_for(queue: Handle, crew: Crew, logs: Logs) -> None:
    task = queue.task(name="ok")(lambda: "ok")
    job = task.options(run_at=4_102_444_800).enqueue()
    post = crew.start(queue, burst=True)

    said = "burst: waits for 1 delayed job; the next one is due at 2100-01-01 00:00:00+00:00"
    until(lambda: any(line.endswith(said) for line in logs()))
    assert queue.run_now(job.id)
    post.join()

    assert sum("burst: waits" in line for line in logs()) == 1


def test_a_burst_worker_exits_from_an_empty_queue_at_once(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    began = time.monotonic()
    post = crew.start(queue, burst=True)

    post.join()

    assert time.monotonic() - began < 25


def test_a_burst_over_two_queues_ends_when_neither_enqueues_in_the_other(make_queue: MakeQueue, crew: Crew) -> None:
    first, second = make_queue(), make_queue()

    @first.task
    def ping(left: int) -> None:
        if left:
            pong.enqueue(left - 1)

    @second.task
    def pong(left: int) -> None:
        if left:
            ping.enqueue(left - 1)

    ping.enqueue(20)
    crew.start(first, second, burst=True).join()

    assert (first.stats()["completed_total"], second.stats()["completed_total"]) == (11, 10)
