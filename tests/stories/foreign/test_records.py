"""Reading jobs that other programs created, and acting on them, whatever fields they wrote or left out."""

from __future__ import annotations

import pytest

from schedq import JobFailed
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

PAYLOAD = '{"kind":"email"}'
FORMS = {
    "only a payload": {"payload": PAYLOAD},
    "as the guide has it": {
        "id": "theirs",
        "payload": PAYLOAD,
        "status": "pending",
        "attempts": "0",
        "enqueued_at_ms": "1799999999000",
        "claim_token": "",
    },
    "a large number as Lua writes it": {
        "payload": PAYLOAD,
        "attempts": "0",
        "enqueued_at_ms": "1.799999999e+12",
    },
    "names of their own": {"payload": PAYLOAD, "kind": "email", "prio": "high", "created": "2027-01-15T07:59:59Z"},
}
by_form = pytest.mark.parametrize("fields", FORMS.values(), ids=FORMS)
uncounted = pytest.mark.breaks("totals", because="a program that keeps no totals made the job")


def store(queue: Handle, fields: dict[str, str]) -> None:
    queue.redis.hset(queue.keys.job("theirs"), mapping=fields)


def enqueue(queue: Handle, fields: dict[str, str]) -> None:
    store(queue, fields)
    queue.redis.lpush(queue.keys.pending, "theirs")


def claim(queue: Handle, clock: Clock) -> None:
    """The guide's claim of the only job."""
    assert queue.redis.lmove(queue.keys.pending, queue.keys.processing, "RIGHT", "LEFT") == "theirs"
    note = {"status": "processing", "claimed_at_ms": clock.now_ms, "claim_token": "t1"}
    queue.redis.hset(queue.keys.job("theirs"), mapping=note)
    queue.redis.hincrby(queue.keys.job("theirs"), "attempts", 1)


def end(queue: Handle, status: str, **fields: str) -> None:
    """What the guide's `complete` and `fail` write."""
    queue.redis.lrem(queue.keys.processing, 1, "theirs")
    store(queue, {"status": status, "claim_token": "", **fields})
    queue.redis.expire(queue.keys.job("theirs"), 300)
    queue.redis.lpush(queue.keys.prefix + status, "theirs")


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


@uncounted
@by_form
def test_a_waiting_foreign_job_is_shown_and_can_be_cancelled_and_requeued(queue: Handle, fields: dict[str, str]):
    enqueue(queue, fields)

    (listed,) = queue.list_pending()
    assert listed == queue.get_job("theirs")
    assert (listed.id, listed.payload, listed.attempts) == ("theirs", {"kind": "email"}, 0)
    assert listed.enqueued_at_ms == (1_799_999_999_000 if "enqueued_at_ms" in fields else 0)
    assert listed.fields == fields
    assert queue.stats()["pending_depth"] == 1

    assert queue.cancel("theirs") == "cancelled"
    assert queue.get_job("theirs").status == "cancelled"
    assert queue.requeue("theirs")
    job = queue.claim(0)
    assert (job.payload, job.attempts) == ({"kind": "email"}, 1)
    assert queue.complete(job, "sent")
    assert queue.result("theirs", timeout=0) == "sent"


@uncounted
@by_form
def test_a_delayed_foreign_job_is_shown_with_its_time_and_can_be_rescheduled(
    queue: Handle, clock: Clock, fields: dict[str, str]
):
    store(queue, fields)
    queue.redis.zadd(queue.keys.delayed, {"theirs": clock.now_ms + 60_000})

    (listed,) = queue.list_delayed()
    assert (listed.payload, listed.run_at_ms) == ({"kind": "email"}, clock.now_ms + 60_000)
    assert queue.stats()["next_due_ms"] == clock.now_ms + 60_000
    assert queue.claim(0) is None

    assert queue.reschedule("theirs", delay=30)
    assert queue.get_job("theirs").run_at_ms == clock.now_ms + 30_000
    assert queue.run_now("theirs")
    assert queue.claim(0).id == "theirs"


@uncounted
@by_form
def test_a_job_that_a_guide_worker_runs_is_shown_and_can_be_asked_to_stop(
    queue: Handle, clock: Clock, fields: dict[str, str]
):
    enqueue(queue, fields)
    claim(queue, clock)

    (listed,) = queue.list_processing()
    assert (listed.status, listed.attempts, listed.claimed_at_ms) == ("processing", 1, clock.now_ms)
    assert queue.stats()["processing_depth"] == 1
    # The worker can't notice the request, so it stays in effect: for when the worker dies, or fails the job.
    assert queue.cancel("theirs") == "asked"
    queue.reclaim_stuck()
    clock.pass_time(10)
    assert queue.reclaim_stuck() == ["theirs"]
    assert queue.places() == {"cancelled": ["theirs"]}


@uncounted
def test_a_job_that_a_guide_worker_fails_after_it_was_asked_to_stop_ends_with_the_next_attempt(
    queue: Handle, clock: Clock
):
    enqueue(queue, FORMS["only a payload"])
    claim(queue, clock)
    assert queue.cancel("theirs") == "asked"
    queue.redis.lmove(queue.keys.processing, queue.keys.pending, "RIGHT", "LEFT")
    store(queue, {"status": "pending", "claim_token": ""})

    assert queue.fail(queue.claim(0), "again")

    assert queue.places() == {"cancelled": ["theirs"]}


@uncounted
@by_form
def test_a_job_completed_by_a_guide_worker_has_a_result(queue: Handle, clock: Clock, fields: dict[str, str]):
    enqueue(queue, fields)
    claim(queue, clock)
    end(queue, "completed", result='{"sent":true}', completed_at_ms=str(clock.now_ms))

    (listed,) = queue.list_completed()
    assert (listed.result, listed.completed_at_ms, listed.attempts) == ({"sent": True}, clock.now_ms, 1)
    assert queue.wait("theirs", timeout=0)
    assert queue.result("theirs", timeout=0) == {"sent": True}
    assert not queue.requeue("theirs")
    assert queue.cancel("theirs") == "no"


@uncounted
@by_form
def test_a_job_failed_by_a_guide_worker_can_be_requeued_and_no_longer_expires(
    queue: Handle, clock: Clock, fields: dict[str, str]
):
    enqueue(queue, fields)
    claim(queue, clock)
    end(queue, "failed", last_error="smtp timeout", last_error_at_ms=str(clock.now_ms))

    (listed,) = queue.list_failed()
    assert (listed.last_error, listed.last_error_at_ms) == ("smtp timeout", clock.now_ms)
    with pytest.raises(JobFailed, match="smtp timeout"):
        queue.result("theirs", timeout=0)
    assert queue.requeue_failed() == 1
    assert queue.redis.ttl(queue.keys.job("theirs")) == -1
    job = queue.claim(0)
    assert job.attempts == 1
    assert queue.complete(job)
