"""Workers written after the Redis guide claim without a lease, and can still share a queue with schedq."""

from __future__ import annotations

import pytest

from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """Leases last 10 s on a stopped clock."""
    return make_queue(clock=clock, visibility_ms=10_000)


def guide_claim(queue: Handle, clock: Clock, token: str) -> str:
    """The guide's claim: BRPOPLPUSH, then HSET and HINCRBY."""
    job_id: str = queue.redis.rpoplpush(queue.keys.pending, queue.keys.processing)
    queue.redis.hset(
        queue.keys.job(job_id),
        mapping={"status": "processing", "claimed_at_ms": clock.now_ms, "claim_token": token},
    )
    queue.redis.hincrby(queue.keys.job(job_id), "attempts", 1)
    return job_id


def guide_end(queue: Handle, job_id: str, status: str) -> None:
    """The guide's complete and fail: LREM, HSET, and a push."""
    queue.redis.lrem(queue.keys.processing, 1, job_id)
    queue.redis.hset(queue.keys.job(job_id), mapping={"status": status, "claim_token": ""})
    queue.redis.lpush(queue.keys.prefix + status, job_id)
    if status == "completed":
        queue.redis.expire(queue.keys.job(job_id), 300)


def test_a_claim_without_a_lease_gets_one_from_first_sight_on(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    guide_claim(queue, clock, "t1")
    clock.pass_time(3600)  # the age of the job is not a reason to reclaim it

    assert queue.reclaim_stuck() == []
    assert queue.state().holds("leases", "zset") == {job_id: str(clock.now_ms + 10_000)}
    assert queue.fields(job_id)["adopted_token"] == "t1"

    clock.pass_time(9.999)
    assert queue.reclaim_stuck() == []
    clock.pass_time(0.001)
    assert queue.reclaim_stuck() == [job_id]
    assert queue.places() == {"pending": [job_id]}


@pytest.mark.breaks("totals", because="a foreign worker completed the job and counts nothing")
def test_a_foreign_worker_may_end_its_job_meanwhile(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    guide_claim(queue, clock, "t1")
    queue.reclaim_stuck()

    guide_end(queue, job_id, "completed")
    clock.pass_time(10)

    assert queue.reclaim_stuck() == []
    assert queue.places() == {"completed": [job_id]}


def test_a_foreign_worker_that_claims_the_job_again_gets_its_own_lease(queue: Handle, clock: Clock):
    """The old lease is left behind, but the hash has another token, so the job is adopted again."""
    job_id = queue.enqueue(1)
    guide_claim(queue, clock, "t1")
    queue.reclaim_stuck()
    clock.pass_time(9)
    guide_end(queue, job_id, "pending")
    guide_claim(queue, clock, "t2")
    clock.pass_time(1)

    assert queue.reclaim_stuck() == []
    assert queue.state().holds("leases", "zset") == {job_id: str(clock.now_ms + 10_000)}
    assert queue.fields(job_id)["adopted_token"] == "t2"
    clock.pass_time(10)
    assert queue.reclaim_stuck() == [job_id]


def test_a_schedq_worker_that_claims_after_a_foreign_one_has_its_own_lease(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    guide_claim(queue, clock, "t1")
    queue.reclaim_stuck()
    guide_end(queue, job_id, "pending")
    job = queue.claim(0)
    assert "adopted_token" not in queue.fields(job_id)

    clock.pass_time(9)
    assert queue.renew(job)
    clock.pass_time(9)

    assert queue.reclaim_stuck() == []
    assert queue.complete(job)


def test_another_programs_reclaimer_may_take_a_job_and_its_worker_gets_lost(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    job = queue.claim(0)
    guide_end(queue, job_id, "pending")

    assert not queue.renew(job)
    assert not queue.complete(job)
    again = queue.claim(0)

    assert again.attempts == 2
    assert queue.complete(again)


def test_a_worker_that_died_between_its_move_and_its_note_is_noticed(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    queue.redis.rpoplpush(queue.keys.pending, queue.keys.processing)

    assert queue.reclaim_stuck() == []
    clock.pass_time(10)

    assert queue.reclaim_stuck() == [job_id]
    assert queue.places() == {"pending": [job_id]}


def test_a_lease_that_was_lost_is_given_again_to_the_holder_of_the_job(queue: Handle, clock: Clock):
    queue.enqueue(1)
    job = queue.claim(0)
    queue.redis.delete(queue.keys.leases)

    assert queue.reclaim_stuck() == []
    clock.pass_time(5)
    assert queue.renew(job)
    clock.pass_time(9)

    assert queue.reclaim_stuck() == []
    assert queue.complete(job)


def test_a_second_entry_of_a_running_job_is_dropped(queue: Handle, clock: Clock):
    queue.enqueue(1)
    job = queue.claim(0)
    queue.redis.lpush(queue.keys.processing, job.id, job.id)

    queue.reclaim_stuck()

    assert queue.places() == {"processing": [job.id]}
    assert queue.complete(job)


def test_an_unleased_entry_without_data_is_noted_as_broken(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    guide_claim(queue, clock, "t1")
    queue.redis.delete(queue.keys.job(job_id))

    assert queue.reclaim_stuck() == []

    assert queue.places() == {"broken": [job_id]}


def test_an_unleased_claim_deep_in_a_long_list_is_found(queue: Handle, clock: Clock):
    theirs = queue.enqueue("theirs")
    guide_claim(queue, clock, "t1")
    queue.enqueue_many(range(700))
    while queue.claim(0):
        pass

    queue.reclaim_stuck()

    assert theirs in queue.state().holds("leases", "zset")


def test_a_guide_worker_drops_what_ours_has_ended(queue: Handle, clock: Clock):
    """`claimed_at_ms`, on which the guide's reclaimer relies, is updated with every renewal."""
    queue.enqueue(1)
    job = queue.claim(0)
    clock.pass_time(7)

    queue.renew(job)

    assert queue.fields(job.id)["claimed_at_ms"] == str(clock.now_ms)
