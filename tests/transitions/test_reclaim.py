"""Jobs whose worker is silent past its lease, one test for each case."""

from __future__ import annotations

import pytest

from schedq import Fixed, JobFailed
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import lose


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """Leases last 10 s on a stopped clock; five attempts, a minute between them."""
    return make_queue(clock=clock, visibility_ms=10_000, max_attempts=5, backoff=Fixed(60))


def test_a_job_is_left_alone_until_its_lease_ends(queue: Handle, clock: Clock):
    queue.enqueue(1)
    job = queue.claim(0)
    clock.pass_time(9.999)

    assert queue.reclaim_stuck() == []

    assert queue.places() == {"processing": [job.id]}
    assert queue.complete(job)


def test_a_lost_job_is_taken_back_and_next_in_line(queue: Handle, clock: Clock):
    first, second = queue.enqueue_many([1, 2])
    job = lose(queue, clock)
    queue.redis.delete(queue.keys.wake)

    assert queue.reclaim_stuck() == [first]

    record = queue.get_job(first)
    assert queue.places() == {"pending": [first, second]}
    assert queue.state().holds("wake", "zset")
    assert (record.crashes, record.attempts, record.last_error) == (1, 1, "lease expired 1 time")
    assert record.fields["reclaimed_at_ms"] == str(clock.now_ms)
    assert record.history[0] | {"worker": ""} == {
        "attempt": 1,
        "worker": "",
        "started_at_ms": job.claimed_at_ms,
        "ended_at_ms": clock.now_ms,
        "outcome": "lost",
        "error": "lease expired 1 time",
    }
    assert queue.claim(0).attempts == 2


def test_many_lost_jobs_return_in_the_order_of_their_claims(queue: Handle, clock: Clock):
    ids = queue.enqueue_many(range(8))
    for _ in range(3):
        queue.claim(0)
        clock.pass_time(0.001)
    for _ in range(3):
        queue.claim(0)
    clock.pass_time(11)

    assert sorted(queue.reclaim_stuck()) == ids[:6]

    assert queue.state().ids("pending") == ids


def test_from_its_second_lost_lease_on_a_job_returns_with_backoff(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    lose(queue, clock)
    queue.reclaim_stuck()
    lose(queue, clock)

    assert queue.reclaim_stuck() == [job_id]

    record = queue.get_job(job_id)
    assert queue.places() == {"delayed": [job_id]}
    assert (record.run_at_ms, record.crashes) == (clock.now_ms + 60_000, 2)
    assert record.last_error == "lease expired 2 times"
    clock.pass_time(60)
    assert queue.claim(0).crashes == 2


def test_a_jobs_own_backoff_says_how_long(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1, backoff=Fixed(7))
    for _ in range(2):
        lose(queue, clock)
        queue.reclaim_stuck()

    assert queue.get_job(job_id).run_at_ms == clock.now_ms + 7000


def test_a_job_that_kills_every_worker_has_failed_after_its_attempts(queue: Handle, clock: Clock):
    job_id = queue.enqueue({"poison": True})

    starts = 0
    for _ in range(20):
        if queue.claim(0):
            starts += 1
        clock.pass_time(61)
        queue.reclaim_stuck()

    record = queue.get_job(job_id)
    assert starts == 5
    assert queue.places() == {"failed": [job_id]}
    assert (record.payload, record.last_error) == ({"poison": True}, "lease expired 5 times")
    assert queue.state().totals()["reclaimed_total"] == 5
    with pytest.raises(JobFailed, match="lease expired 5 times"):
        queue.result(job_id, 0)


def test_a_lease_lost_in_the_last_attempt_fails_the_job_even_if_it_is_the_first_lost_one(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1, max_attempts=2, backoff=Fixed(0))
    queue.fail(queue.claim(0))
    lose(queue, clock)

    queue.reclaim_stuck()

    assert queue.places() == {"failed": [job_id]}
    assert queue.get_job(job_id).last_error == "lease expired 1 time"


def test_given_back_attempts_do_not_hide_lost_leases(queue: Handle, clock: Clock):
    """Release and snooze give an attempt back, which must not let a job run forever."""
    job_id = queue.enqueue(1, max_attempts=3)

    for _ in range(3):
        if job := queue.claim(0):
            queue.snooze(job, 0)
        lose(queue, clock)
        queue.reclaim_stuck()
        clock.pass_time(60)

    assert queue.places() == {"failed": [job_id]}
    assert queue.get_job(job_id).last_error == "lease expired 3 times"


def test_a_job_that_was_asked_to_stop_is_cancelled(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    job = queue.claim(0)
    queue.cancel(job_id)
    clock.pass_time(10)

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"cancelled": [job_id]}
    assert not queue.complete(job)


def test_a_lost_job_that_was_asked_to_stop_is_cancelled_even_after_many_lost_leases(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    for _ in range(2):
        lose(queue, clock)
        queue.reclaim_stuck()
        clock.pass_time(60)
    queue.claim(0)
    queue.cancel(job_id)
    clock.pass_time(10)

    queue.reclaim_stuck()

    assert queue.places() == {"cancelled": [job_id]}


def test_while_paused_jobs_are_taken_back_and_no_worker_is_woken(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    lose(queue, clock)
    queue.pause()

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"pending": [job_id]}
