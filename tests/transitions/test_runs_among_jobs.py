"""What else may happen to a suspended run: limits, unique keys, expiry, pauses of its task, deletion."""

from __future__ import annotations

import pytest

from schedq import ClaimedJob
from schedq.model.runs import RunWait
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.run_scenes import HOUR, PAID, begun, message, suspend

DURABLE = {"task": "fulfil"}


def taken(queue: Handle) -> ClaimedJob:
    """The next job, as a run."""
    return begun(queue.claim(0))


def test_a_suspended_run_leaves_its_place_in_the_gate_to_others(queue: Handle):
    queue.gate("api", concurrency=1)
    first, second = (queue.enqueue("work", gate="api", key="a") for _ in range(2))
    job = taken(queue)
    assert queue.claim(0) is None

    suspend(queue, job, PAID)

    other = queue.claim(0)
    assert (job.id, other.id) == (first, second)
    assert message(queue, first)
    assert queue.claim(0) is None, "the gate is full again"
    queue.complete(other)
    assert queue.claim(0).id == first


def test_a_run_of_a_gate_that_need_not_wait_is_next_in_its_lane(queue: Handle):
    queue.gate("api", concurrency=1)
    first = queue.enqueue("work", gate="api", key="a")
    queue.enqueue("work", gate="api", key="a")

    suspend(queue, taken(queue))

    assert queue.claim(0).id == first


def test_a_suspended_run_holds_its_unique_key(queue: Handle):
    first = queue.enqueue("work", unique="one")
    suspend(queue, taken(queue), PAID)

    assert queue.enqueue("more work", unique="one") == first


def test_a_run_that_has_begun_does_not_expire(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue("work", expires=60)
    suspend(queue, taken(queue), RunWait("sleep", "sleep", clock.now_ms + HOUR))
    clock.pass_time(3600)

    assert queue.claim(0).id == job_id


def test_a_woken_run_of_a_paused_task_waits_until_it_is_resumed(queue: Handle):
    job_id = queue.enqueue(DURABLE)
    suspend(queue, taken(queue), PAID)
    queue.pause(task="fulfil")

    assert message(queue, job_id)
    assert queue.claim(0) is None

    queue.resume(task="fulfil")
    assert queue.claim(0).id == job_id


@pytest.mark.parametrize("act", ["delete", "purge"])
def test_the_record_goes_with_the_job(make_queue: MakeQueue, clock: Clock, act: str):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue("work")
    message(queue, job_id, "news")
    suspend(queue, taken(queue), PAID)
    clock.pass_time(1)

    if act == "delete":
        assert queue.inspector.act("delete", [job_id]).done == 1
    else:
        queue.purge()

    assert queue.state().jobs() == {}
    assert queue.places() == {}
    assert not message(queue, job_id)


def test_an_id_that_is_used_again_meets_no_old_record(queue: Handle):
    queue.enqueue("work", job_id="order-17")
    job = taken(queue)
    message(queue, job.id)
    suspend(queue, job, PAID)
    queue.complete(queue.claim(0))

    queue.enqueue("work", job_id="order-17", reuse_id=True)

    assert {"run", "inbox:paid", "sent:paid"}.isdisjoint(queue.fields("order-17"))
