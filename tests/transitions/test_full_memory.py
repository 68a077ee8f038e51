"""A Redis whose memory is full takes no new jobs, but existing jobs continue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from schedq import NewJob, QueueFull
from schedq.model.ids import new_request
from schedq.transitions import announce, claim, heartbeat, promote
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.servers import Server


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    """A separate server with ballast, whose memory limit can be lowered."""
    with Server(maxmemory_policy="noeviction") as server:
        with server.client() as client:
            client.set("ballast", "x" * 1_000_000)
        yield server


@contextmanager
def full(server: Server) -> Iterator[None]:
    """From now on more memory is in use than allowed."""
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 500_000)
        try:
            with pytest.raises(Exception, match="OOM|used memory"):
                client.set("one more", "x")
            yield
        finally:
            client.config_set("maxmemory", 0)


@pytest.fixture
def queue(make_queue: MakeQueue, small: Server, clock: Clock) -> Handle:
    """A queue on that server, which knows all scripts."""
    return make_queue(at=small, clock=clock, max_attempts=3)


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"job_id": "mine"}], ids=["now", "later", "own id"])
def test_a_new_job_is_refused_and_leaves_no_trace(queue: Handle, options: Any):
    queue.enqueue("before")
    before = queue.dump()

    with full(queue.server):
        with pytest.raises(QueueFull, match="memory") as refused:
            queue.enqueue("one more", **options)
        with pytest.raises(QueueFull):
            queue.enqueue_many(range(2500), **({} if "job_id" in options else options))

    assert refused.value.stored == ()
    assert queue.dump() == before


def test_enqueueing_an_existing_job_needs_no_memory(queue: Handle):
    queue.enqueue(1, job_id="mine")

    with full(queue.server):
        assert queue.enqueue(1, job_id="mine") == "mine"
        with pytest.raises(QueueFull) as refused:
            queue.enqueue_many([NewJob(1, job_id="mine"), 2])

    assert refused.value.stored == ()
    assert queue.places() == {"pending": ["mine"]}


def test_jobs_stored_before_memory_was_full_are_reported(queue: Handle):
    """Batches are sent one by one, so the first ones may have been stored."""
    ids: list[str] = []
    queue.enqueue("known")
    flow_error = None
    with queue.server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 1_500_000)
    try:
        queue.enqueue_many(["x" * 100_000] * 300)
    except QueueFull as error:
        flow_error, ids = error, list(error.stored)
    finally:
        queue.redis.config_set("maxmemory", 0)

    assert flow_error is not None
    assert 0 < len(ids) < 300
    assert queue.state().ids("pending")[1:] == ids
    queue.purge()


def test_a_backlog_drains(queue: Handle):
    ids = queue.enqueue_many(range(300))

    with full(queue.server):
        for _ in range(100):
            assert queue.complete(queue.claim(0), "done")
        while found := queue._ask(claim.claim(queue.settings, new_request(), 50)).jobs:
            assert all(queue.complete(job) for job in found)

    assert queue.places() == {"completed": ids}


def test_due_jobs_are_promoted_and_claimed(queue: Handle, clock: Clock):
    ids = queue.enqueue_many(range(150), delay=1)
    clock.pass_time(1)

    with full(queue.server):
        assert queue.promote_due(limit=20) == 20
        jobs = [queue.claim(0) for _ in range(25)]

    assert [job.id for job in jobs] == ids[:25]
    assert queue.state().ids("processing") == ids[:25]


@pytest.mark.parametrize("end", ["complete", "fail", "snooze", "release", "stop", "last fail"])
def test_an_attempt_ends_normally(queue: Handle, end: str):
    job_id = queue.enqueue(1, max_attempts=1 if end == "last fail" else 3)
    job = queue.claim(0)

    with full(queue.server):
        if end == "stop":
            assert queue.cancel(job_id) == "asked"
            assert queue.fail(job)
        elif end == "snooze":
            assert queue.snooze(job, 60)
        else:
            assert getattr(queue, end.split()[-1])(job)

    places = {"complete": "completed", "fail": "delayed", "snooze": "delayed", "release": "pending"}
    places |= {"stop": "cancelled", "last fail": "failed"}
    assert queue.places() == {places[end]: [job_id]}


def test_long_jobs_keep_their_leases(queue: Handle, clock: Clock):
    queue.enqueue(1)
    job = queue.claim(0)

    with full(queue.server):
        for _ in range(5):
            clock.pass_time(9)
            assert queue.renew(job)
            assert queue.reclaim_stuck() == []

    assert queue.complete(job)


def test_lost_jobs_are_taken_back_adopted_and_failed(queue: Handle, clock: Clock):
    ids = queue.enqueue_many(range(4))
    first, second, third, theirs = (queue.claim(0).id for _ in ids)
    queue.redis.zrem(queue.keys.leases, theirs)
    queue.redis.hset(queue.keys.job(second), "crashes", 1)
    queue.redis.hset(queue.keys.job(third), mapping={"crashes": 2, "attempts": 3})
    clock.pass_time(11)

    with full(queue.server):
        taken_back = queue.reclaim_stuck()

    assert sorted(taken_back) == [first, second, third]
    assert queue.places() == {"pending": [first], "delayed": [second], "failed": [third], "processing": [theirs]}


def test_unreadable_payloads_and_ids_without_data_go_where_they_should(queue: Handle):
    no_data, no_payload, good = queue.enqueue_many(range(3))
    queue.redis.delete(queue.keys.job(no_data))
    queue.redis.hdel(queue.keys.job(no_payload), "payload")

    with full(queue.server):
        assert queue.claim(0).id == good

    assert queue.places() == {"broken": [no_data], "failed": [no_payload], "processing": [good]}


def test_operators_keep_control(queue: Handle, clock: Clock):
    waiting, cancelled, failed = queue.enqueue_many(range(3))
    later, sooner = queue.enqueue_many(range(2), delay=60)
    queue.cancel(failed)

    with full(queue.server):
        queue.pause()
        assert queue.claim(0) is None
        assert queue.stats()["paused_since_ms"]
        assert queue.cancel(cancelled) == "cancelled"
        assert queue.reschedule(later, delay=90)
        assert queue.run_now(sooner)
        assert queue.requeue(failed)
        assert queue.resume()
        assert queue._ask(promote.wake(queue.settings))

    assert queue.places() == {
        "pending": [sooner, waiting, failed],
        "delayed": [later],
        "cancelled": [cancelled],
    }
    with full(queue.server):
        assert queue.purge() == 5
    assert queue.places() == {}


def test_a_caller_that_waits_for_a_result_gets_it(queue: Handle):
    job_id = queue.enqueue(1)
    job = queue.claim(0)

    with full(queue.server):
        future = queue.start("result", job_id, 60)
        queue.complete(job, "done")
        assert future.result(60) == "done"


def test_workers_show_that_they_live_and_the_promoter_keeps_its_lease(queue: Handle):
    with full(queue.server):
        assert queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 7}))[:2] == (False, False)
        assert queue._ask(promote.promote(queue.settings, 200, "a")).is_leader
        assert queue._ask(announce.announce(queue.settings))
        assert queue.stats()["workers"] == 1
        assert queue._ask(heartbeat.leave(queue.settings, "w-1", "a"))


def test_a_claim_that_waits_is_woken(queue: Handle):
    job_id = queue.enqueue(1, delay=3600)
    queue.claim(0)
    queue.redis.delete(queue.keys.wake)
    future = queue.start("claim", 60_000)

    with full(queue.server):
        assert queue.run_now(job_id)
        assert future.result(60).id == job_id


def test_a_queue_that_meets_a_full_memory_first_can_still_be_worked(make_queue: MakeQueue, small: Server):
    """Connecting registers the queue's name, which is refused then; that stops no client."""
    make_queue("met-first", at=small).enqueue(1)

    with full(small):
        worker = make_queue("met-first", at=small)
        assert worker.complete(worker.claim(0))
