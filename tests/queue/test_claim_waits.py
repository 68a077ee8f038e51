"""A waiting claim returns at once when there is a job, and sends almost nothing to Redis until then."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from schedq import ClaimedJob, Fixed
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.waiting import until

AT_ONCE_S = 20.0
"""What a busy machine may need, and far less than until the next periodic look where `rare_looks` are in use."""


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting claim, or a wait for a job's end, looks by itself once a minute, so anything earlier was a message."""
    monkeypatch.setattr("schedq.transitions.claim._LONGEST_WAIT_S", 60)
    monkeypatch.setattr("schedq.queue.requests.POLL_S", 60)


def waiting_claim(queue: Handle, timeout_ms: int = 120_000) -> Future[ClaimedJob | None]:
    """A claim that has found nothing and is waiting."""
    future = queue.start("claim", timeout_ms)
    until(lambda: is_blocked(queue), failing="the claim does not wait")
    return future


def is_blocked(queue: Handle) -> bool:
    """Whether a client of this queue is blocked in BZPOPMIN."""
    return any(
        client["name"] == f"schedq-{queue.name}" and client["cmd"] == "bzpopmin" and "b" in client["flags"]
        for client in queue.redis.client_list()
    )


def seconds_until(future: Future[ClaimedJob | None]) -> tuple[ClaimedJob | None, float]:
    began = time.monotonic()
    return future.result(60), time.monotonic() - began


def test_nothing_to_do_takes_as_long_as_was_asked_and_no_longer(queue: Handle):
    began = time.monotonic()

    assert queue.claim(150) is None

    assert 0.15 <= time.monotonic() - began < 5


def test_zero_means_look_once(queue: Handle):
    queue.stats()

    with queue.server.requests() as sent:
        assert queue.claim(0) is None

    assert [request.name for request in sent if request.name != "EVAL"] == ["EVALSHA"]


@pytest.mark.usefixtures("rare_looks")
def test_a_new_job_from_another_connection_is_taken_at_once(make_queue: MakeQueue):
    queue = make_queue("new-job")
    producer = make_queue("new-job")
    future = waiting_claim(queue)

    job_id = producer.enqueue("now")
    job, seconds = seconds_until(future)

    assert job.id == job_id
    assert seconds < AT_ONCE_S


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("give", ["enqueue", "enqueue_many", "reschedule"])
def test_a_job_that_becomes_due_is_taken_at_once_and_never_early(make_queue: MakeQueue, give: str):
    queue = make_queue()
    future = waiting_claim(queue)

    if give == "enqueue":
        queue.enqueue("soon", delay=0.15)
    elif give == "enqueue_many":
        queue.enqueue_many(["soon"], delay=0.15)
    else:
        queue.reschedule(queue.enqueue("soon", delay=900), delay=0.15)
    job = future.result(60)

    assert 0 <= job.claimed_at_ms - job.run_at_ms < AT_ONCE_S * 1000


@pytest.mark.usefixtures("rare_looks")
def test_a_job_that_was_delayed_before_the_wait_is_claimed_when_due(queue: Handle):
    queue.enqueue("soon", delay=0.15)

    job = queue.claim(120_000)

    assert 0 <= job.claimed_at_ms - job.run_at_ms < AT_ONCE_S * 1000


def failed_job(queue: Handle) -> str:
    job_id: str = queue.enqueue("again", max_attempts=1)
    queue.fail(queue.claim(0))
    return job_id


def cancelled_job(queue: Handle) -> str:
    job_id: str = queue.enqueue("again")
    queue.cancel(job_id)
    return job_id


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("made", [failed_job, cancelled_job])
def test_a_requeued_job_is_taken_at_once(queue: Handle, made: Callable[[Handle], str]):
    job_id = made(queue)
    queue.redis.delete(queue.keys.wake)
    future = waiting_claim(queue)

    assert queue.requeue(job_id)
    job, seconds = seconds_until(future)

    assert (job.id, job.attempts) == (job_id, 1)
    assert seconds < AT_ONCE_S


@pytest.mark.usefixtures("rare_looks")
def test_a_retry_from_another_connection_is_claimed_when_due(make_queue: MakeQueue):
    queue = make_queue("retry", backoff=Fixed(0.15))
    other = make_queue("retry", backoff=Fixed(0.15))
    job_id = other.enqueue("flaky")
    held = other.claim(0)
    queue.redis.delete(queue.keys.wake)
    future = waiting_claim(queue)

    other.fail(held, "not yet")
    job = future.result(60)

    assert (job.id, job.attempts) == (job_id, 2)
    assert 0 <= job.claimed_at_ms - job.run_at_ms < AT_ONCE_S * 1000


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("give", ["release", "snooze", "run_now", "reclaim"])
def test_whatever_brings_a_job_back_wakes_a_waiting_claim(make_queue: MakeQueue, give: str):
    queue = make_queue(visibility_ms=1000)
    job_id = queue.enqueue("again", delay=900 if give == "run_now" else None)
    held = queue.claim(0)
    if give == "reclaim":
        queue.redis.zadd(queue.keys.leases, {job_id: 1})
    queue.redis.delete(queue.keys.wake)
    future = waiting_claim(queue)

    if give == "release":
        queue.release(held)
    elif give == "snooze":
        queue.snooze(held, 0.01)
    elif give == "run_now":
        queue.run_now(job_id)
    else:
        queue.reclaim_stuck()
    job, seconds = seconds_until(future)

    assert job.id == job_id
    assert seconds < AT_ONCE_S


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("kind", ["waiting", "due"])
def test_resume_wakes_a_waiting_claim_if_there_is_work(queue: Handle, kind: str):
    job_id = queue.enqueue(1, delay=0.05 if kind == "due" else None)
    queue.pause()
    future = waiting_claim(queue)
    time.sleep(0.06)  # the delayed job becomes due while paused

    assert queue.resume()
    job, seconds = seconds_until(future)

    assert job.id == job_id
    assert seconds < AT_ONCE_S


def test_while_paused_a_waiting_claim_stays_empty_handed(queue: Handle):
    queue.pause()
    job_id = queue.enqueue(1)

    assert queue.claim(120) is None

    assert queue.places() == {"pending": [job_id]}


def test_each_of_many_jobs_wakes_one_of_many_waiters(make_queue: MakeQueue):
    queues = [make_queue("many-waiters") for _ in range(5)]
    futures = [waiting_claim(queue) for queue in queues]

    ids = queues[0].enqueue_many(range(5))
    found = [future.result(60).id for future in futures]

    assert sorted(found) == ids
    queues[0].purge()


@pytest.mark.breaks("totals", because="another program made the job")
def test_a_waiting_claim_checks_once_a_second_and_finds_foreign_jobs_without_a_marker(queue: Handle):
    queue.enqueue("far away", delay=3600)
    queue.redis.delete(queue.keys.wake)

    with queue.server.requests() as sent:
        future = waiting_claim(queue)
        queue.redis.hset(queue.keys.job("theirs"), mapping={"payload": "[1]"})
        queue.redis.lpush(queue.keys.pending, "theirs")
        job, seconds = seconds_until(future)

    own = [request.name for request in sent if request.name in ("EVAL", "EVALSHA", "BZPOPMIN")]
    # A claim, a wait of two seconds, a claim: one request a second on average.
    waits = len(own) // 2
    assert own == ["EVALSHA"] + ["BZPOPMIN", "EVALSHA"] * waits
    assert 1 <= waits <= 1 + (sent[-1].at - sent[0].at) / 2
    assert job.id == "theirs"
    assert seconds < 10


@pytest.mark.parametrize("score", ["{now}.5", "inf"])
@pytest.mark.breaks("totals", "status", because="another program scheduled the job, in its own manner")
def test_a_foreign_due_instant_with_a_fraction_or_infinite_does_not_make_a_claim_spin(queue: Handle, score: str):
    now_ms = queue.stats()["now_ms"]
    queue.redis.hset(queue.keys.job("theirs"), mapping={"payload": "1"})
    queue.redis.zadd(queue.keys.delayed, {"theirs": score.format(now=now_ms + 60_000)})

    with queue.server.requests() as sent:
        assert queue.claim(150) is None

    assert len([request for request in sent if request.name == "BZPOPMIN"]) <= 1


@pytest.mark.breaks("totals", because="another program made the job")
@pytest.mark.usefixtures("rare_looks")
def test_a_foreign_job_is_taken_at_once_if_its_producer_sets_the_marker(queue: Handle):
    future = waiting_claim(queue)

    queue.redis.hset(queue.keys.job("theirs"), mapping={"payload": "[1]"})
    queue.redis.lpush(queue.keys.pending, "theirs")
    queue.redis.zadd(queue.keys.wake, {"1": 0})
    job, seconds = seconds_until(future)

    assert (job.id, job.payload) == ("theirs", [1])
    assert seconds < AT_ONCE_S


@pytest.mark.breaks("layout", because="the string at `wake` is another program's")
def test_a_damaged_marker_costs_time_but_not_a_storm_of_requests(queue: Handle):
    queue.redis.set(queue.keys.wake, "what is this")
    queue.enqueue(1)
    queue.claim(0)

    with queue.server.requests() as sent:
        assert queue.claim(400) is None

    assert len([request for request in sent if request.name == "BZPOPMIN"]) <= 1


def test_a_clock_of_ones_own_does_not_make_a_claim_spin(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=5)

    with queue.server.requests() as sent:
        assert queue.claim(150) is None
    clock.pass_time(5)

    # One takes the marker that the new instant set, the other waits.
    assert len([request for request in sent if request.name == "BZPOPMIN"]) <= 2
    assert queue.claim(0).id == job_id
