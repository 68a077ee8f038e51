"""A job whose task no worker has is put back for an hour without using up attempts."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from schedq import Fixed
from schedq.model import outcome
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import lose


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """Jobs have one attempt, which workers that can't run them must not spend."""
    return make_queue(clock=clock, max_attempts=1)


def put_back(queue: Handle, **how: Any) -> str:
    """Claim a job for a worker that lacks its task; returns the settlement of that attempt."""
    job = queue.claim(0)
    settlement = outcome.unknown(job, "this worker has no task 'resize'", queue.settings, **how)
    assert queue.settle(settlement)
    return settlement.move


def wait_ms(queue: Handle, clock: Clock, job_id: str) -> int:
    """How long it was put back for."""
    return int(queue.fields(job_id)["run_at_ms"]) - clock.now_ms


def test_its_waits_grow_to_a_minute_and_after_an_hour_it_fails(queue: Handle, clock: Clock):
    job_id = queue.enqueue({"task": "resize"})
    waits = []

    while put_back(queue) == "snooze":
        waits.append(wait_ms(queue, clock, job_id))
        assert (queue.fields(job_id)["attempts"], queue.fields(job_id).get("history")) == ("0", None)
        clock.now = int(queue.fields(job_id)["run_at_ms"]) / 1000 + 0.0002

    assert 800 <= waits[0] <= 1000
    assert all(later <= 2.3 * earlier for earlier, later in pairwise(waits))
    assert all(48_000 <= wait <= 60_000 for wait in waits[10:-1])
    assert sum(waits) == 3_600_000
    record = queue.get_job(job_id)
    assert (record.status, record.attempts) == ("failed", 1)
    assert record.last_error == ("this worker has no task 'resize'; no worker that has it took the job within 3600 s")
    assert "unknown_since_ms" not in record.fields


def test_while_another_live_worker_has_the_task_it_comes_again_after_a_second(queue: Handle, clock: Clock):
    job_id = queue.enqueue({"task": "resize"})
    for _ in range(8):
        put_back(queue, is_known_elsewhere=True)
        assert 800 <= wait_ms(queue, clock, job_id) <= 1000
        clock.pass_time(30)


@pytest.mark.parametrize("unknown_for", [5, timedelta(seconds=5)])
def test_for_how_long_is_a_setting_that_is_written_down(make_queue: MakeQueue, clock: Clock, unknown_for: Any):
    queue = make_queue(clock=clock, unknown_for=unknown_for)
    assert queue.settings.to_fields()["unknown_for"] == "5"
    job_id = queue.enqueue({"task": "resize"})
    put_back(queue)

    clock.pass_time(5)

    assert put_back(queue) == "fail"
    assert queue.places() == {"failed": [job_id]}


def test_with_no_time_at_all_it_fails_at_once(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, unknown_for=0)
    queue.enqueue({"task": "resize"})

    assert put_back(queue) == "fail"


def test_a_worker_with_the_task_starts_it_with_all_attempts_and_the_mark_is_removed(queue: Handle, clock: Clock):
    job_id = queue.enqueue({"task": "resize"})
    put_back(queue)
    clock.pass_time(1)

    job = queue.claim(0)

    assert (job.attempts, job.unknown_since_ms) == (1, clock.now_ms - 1000)
    queue.complete(job)
    assert queue.get_job(job_id).status == "completed"
    assert "unknown_since_ms" not in queue.fields(job_id)


def test_what_an_earlier_attempt_left_stays(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=3, backoff=Fixed(0))
    job_id = queue.enqueue({"task": "resize"})
    queue.fail(queue.claim(0), "out of memory")

    put_back(queue)

    record = queue.get_job(job_id)
    assert (record.attempts, record.last_error, len(record.history)) == (1, "out of memory", 1)


def test_the_hour_starts_again_when_a_worker_had_the_task(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=3, backoff=Fixed(0), unknown_for=100)
    queue.enqueue({"task": "resize"})
    put_back(queue)
    clock.pass_time(90)
    queue.fail(queue.claim(0), "no")
    clock.pass_time(20)

    assert put_back(queue) == "snooze"


def test_a_lost_lease_counts_and_the_hour_starts_again(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=3, unknown_for=100)
    job_id = queue.enqueue({"task": "resize"})
    put_back(queue)
    clock.pass_time(95)
    lose(queue, clock)

    assert queue.reclaim_stuck() == [job_id]

    assert "unknown_since_ms" not in queue.fields(job_id)
    assert (put_back(queue), queue.get_job(job_id).attempts) == ("snooze", 1)


def test_one_that_is_put_back_can_be_cancelled_and_requeued(queue: Handle, clock: Clock):
    job_id = queue.enqueue({"task": "resize"})
    put_back(queue)

    assert queue.cancel(job_id) == "cancelled"
    assert queue.requeue(job_id)

    assert "unknown_since_ms" not in queue.fields(job_id)
    assert queue.places() == {"pending": [job_id]}


def test_one_that_was_asked_to_stop_is_cancelled_instead_of_put_back(queue: Handle):
    job_id = queue.enqueue({"task": "resize"})
    job = queue.claim(0)
    queue.cancel(job_id)

    queue.settle(outcome.unknown(job, "this worker has no task 'resize'", queue.settings))

    assert queue.places() == {"cancelled": [job_id]}


def test_settled_twice_it_is_put_back_once(queue: Handle):
    job_id = queue.enqueue({"task": "resize"})
    job = queue.claim(0)
    settlement = outcome.unknown(job, "this worker has no task 'resize'", queue.settings)
    queue.settle(settlement)
    before = queue.fields(job_id)

    assert queue.settle(settlement)

    assert queue.fields(job_id) == before


def test_run_due_puts_it_back_too(queue: Handle, clock: Clock):
    job_id = queue.enqueue({"task": "resize"})
    queue.task(name="send")(lambda: None)

    assert run_due(queue.queue) == 1

    assert queue.places() == {"delayed": [job_id]}
    assert queue.fields(job_id)["attempts"] == "0"


def test_a_queue_at_a_glance_names_the_tasks_that_are_missing(queue: Handle, clock: Clock):
    ids = queue.enqueue_many([{"task": "resize"}, {"task": "resize"}, {"task": "scan"}, {"kind": "email"}])
    began_ms = clock.now_ms
    for _ in ids:
        put_back(queue)
    queue.enqueue({"task": "resize"}, delay=0.1)

    found = queue.inspector.pulse().unknown

    assert [(row.task, row.jobs, row.since_ms) for row in found] == [
        ("resize", 2, began_ms),
        ("", 1, began_ms),
        ("scan", 1, began_ms),
    ]
    assert found[0].job_id == ids[0]
