"""Callers' own ids, and queues that are full."""

from __future__ import annotations

import pytest

from schedq import Conflict, Discard, Fixed, QueueFull
from tests.conftest import MakeQueue
from tests.doors import Handle

# -- ids of one's own


def test_an_id_of_ones_own_makes_it_idempotent(queue: Handle):
    assert queue.enqueue({"n": 1}, job_id="order-7") == "order-7"
    before = queue.dump()

    assert queue.enqueue({"n": 1}, job_id="order-7") == "order-7"

    assert queue.dump() == before
    assert queue.places() == {"pending": ["order-7"]}


def test_another_payload_under_the_same_id_is_a_conflict(queue: Handle):
    queue.enqueue({"n": 1}, job_id="order-7")
    before = queue.dump()

    with pytest.raises(Conflict, match="order-7"):
        queue.enqueue({"n": 2}, job_id="order-7")

    assert queue.dump() == before


@pytest.mark.parametrize("end", ["running", "completed", "failed", "cancelled", "delayed"])
def test_the_id_of_a_job_is_taken_whatever_its_state(queue: Handle, end: str):
    queue.enqueue(1, job_id="a", max_attempts=2)
    if end == "cancelled":
        queue.cancel("a")
    else:
        job = queue.claim(0)
        if end == "completed":
            queue.complete(job)
        elif end == "delayed":
            queue.fail(job)
        elif end == "failed":
            queue.fail(job, Discard())
    before = queue.dump()

    assert queue.enqueue(1, job_id="a") == "a"
    with pytest.raises(Conflict):
        queue.enqueue(2, job_id="a")

    assert queue.dump() == before


@pytest.mark.breaks("totals", because="the record of the first completion is deleted by hand, as an expiry does")
def test_the_id_of_a_record_that_has_expired_is_free_again(queue: Handle):
    queue.enqueue(1, job_id="a")
    queue.complete(queue.claim(0))
    queue.redis.delete(queue.keys.job("a"))

    assert queue.enqueue(2, job_id="a", delay=60) == "a"

    assert queue.places() == {"delayed": ["a"]}


@pytest.mark.breaks("layout", "places", because="the string at the job's key is another program's")
def test_an_id_whose_key_holds_something_else_is_a_conflict(queue: Handle):
    queue.redis.set(queue.keys.job("a"), "what is this")

    with pytest.raises(Conflict, match=queue.keys.job("a")):
        queue.enqueue(1, job_id="a")

    assert queue.places() == {}


@pytest.mark.breaks("layout", because="the string at `pending` is another program's")
def test_a_queue_key_of_the_wrong_type_is_a_conflict_and_nothing_is_stored(queue: Handle):
    queue.redis.set(queue.keys.pending, "what is this")
    before = queue.dump()

    with pytest.raises(Conflict, match=queue.keys.pending):
        queue.enqueue(1)

    assert queue.dump() == before


# -- how many may wait


def test_a_full_queue_accepts_no_more_until_a_job_is_claimed(make_queue: MakeQueue):
    queue = make_queue(max_pending=2)
    first, second = queue.enqueue(1), queue.enqueue(2)
    before = queue.dump()

    with pytest.raises(QueueFull, match="max_pending=2") as refused:
        queue.enqueue(3)

    assert refused.value.stored == ()
    assert queue.dump() == before
    assert queue.complete(queue.claim(0))
    third = queue.enqueue(3)
    assert queue.places() == {"pending": [second, third], "completed": [first]}


def test_delayed_jobs_do_not_count_as_waiting(make_queue: MakeQueue):
    queue = make_queue(max_pending=1)

    later = [queue.enqueue(n, delay=60) for n in range(3)]
    now = queue.enqueue("now")

    assert queue.places() == {"delayed": later, "pending": [now]}


def test_a_job_that_is_there_already_is_not_refused_by_a_full_queue(make_queue: MakeQueue):
    queue = make_queue(max_pending=1)
    queue.enqueue(1, job_id="a", backoff=Fixed(1))

    assert queue.enqueue(1, job_id="a") == "a"


def test_the_queue_is_in_the_list_of_queues(queue: Handle):
    queue.enqueue(1)

    assert queue.redis.sismember("schedq:queues", queue.name)
