"""Cancelling jobs that wait, and asking running ones to stop."""

from __future__ import annotations

import pytest

from schedq import Discard, JobCancelled, UsageError
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import one_door


def test_a_waiting_job_is_cancelled_and_never_run(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    first, second, third = queue.enqueue_many([1, 2, 3])

    assert queue.cancel(second) == "cancelled"

    record = queue.get_job(second)
    assert queue.places() == {"pending": [first, third], "cancelled": [second]}
    assert (record.status, record.fields["cancelled_at_ms"]) == ("cancelled", str(clock.now_ms))
    assert [queue.claim(0).id, queue.claim(0).id, queue.claim(0)] == [first, third, None]
    assert queue.state().totals() == {"enqueued_total": 3, "cancelled_total": 1}
    with pytest.raises(JobCancelled):
        queue.result(second, 0)


def test_a_delayed_job_is_cancelled_and_never_due(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=5)

    assert queue.cancel(job_id) == "cancelled"
    clock.pass_time(10)

    assert queue.claim(0) is None
    assert queue.places() == {"cancelled": [job_id]}


def test_a_running_job_is_asked_to_stop(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.enqueue(1)
    job = queue.claim(0)

    assert queue.cancel(job.id) == "asked"

    assert queue.places() == {"processing": [job.id]}
    assert queue.fields(job.id)["stop"] == str(clock.now_ms)
    assert queue.renew(job)


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "gone"])
def test_a_finished_job_is_not_cancelled(queue: Handle, end: str):
    job_id = queue.enqueue(1)
    if end == "cancelled":
        queue.cancel(job_id)
    elif end == "gone":
        queue.purge()
    else:
        job = queue.claim(0)
        assert queue.complete(job) if end == "completed" else queue.fail(job, Discard())
    before = queue.dump()

    assert queue.cancel(job_id) == "no"

    assert queue.dump() == before


def test_all_entries_of_a_waiting_job_go(queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.lpush(queue.keys.pending, job_id, job_id)

    assert queue.cancel(job_id) == "cancelled"

    assert queue.places() == {"cancelled": [job_id]}


@one_door
def test_processing_is_not_searched_for_a_waiting_job(queue: Handle):
    ids = queue.enqueue_many(range(3))
    held = [queue.claim(0), queue.claim(0)]
    later = queue.enqueue(4, delay=60)
    searches = _searches(queue)

    assert [queue.cancel(ids[2]), queue.cancel(later), queue.cancel(held[0].id)] == ["cancelled", "cancelled", "asked"]

    assert _searches(queue) == searches


def _searches(queue: Handle) -> int:
    found: int = queue.redis.info("commandstats").get("cmdstat_lpos", {}).get("calls", 0)
    return found


@pytest.mark.breaks(
    "status", "tokens", "leases", because="another program has moved the job and not yet written that it runs"
)
@one_door
def test_a_claim_without_a_lease_is_found_though_leases_are_as_many_as_claims(queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.lmove(queue.keys.pending, queue.keys.processing)
    queue.redis.zadd(queue.keys.leases, {"gone": 9e15})

    assert queue.cancel(job_id) == "asked"

    assert queue.state().ids("processing") == [job_id]


@one_door
def test_in_a_very_long_line_the_entry_stays_until_a_claim_meets_it(queue: Handle):
    ids = queue.enqueue_many(range(10_001))

    assert queue.cancel(ids[0]) == "cancelled"

    assert queue.redis.llen(queue.keys.pending) == 10_001
    assert queue.state().ids("cancelled") == [ids[0]]
    assert queue.claim(0).id == ids[1]
    assert queue.redis.llen(queue.keys.pending) == 9_999
    assert queue.stats()["strays_total"] == 1


@one_door
def test_in_a_very_long_line_a_cancelled_job_that_is_requeued_runs_once(queue: Handle):
    ids = queue.enqueue_many(range(10_001))
    queue.cancel(ids[0])
    assert queue.requeue(ids[0])

    assert queue.claim(0).id == ids[0]
    queue.redis.ltrim(queue.keys.pending, 0, 0)  # down to the second entry
    queue.redis.delete(*[queue.keys.job(job_id) for job_id in ids[1:]])
    queue.redis.hset(queue.keys.stats, mapping={"enqueued_total": 1})

    assert queue.claim(0) is None
    assert queue.places() == {"processing": [ids[0]]}


@pytest.mark.breaks("totals", because="another program made the job")
@one_door
def test_a_foreign_job_without_a_status_is_cancelled_in_a_short_line_and_in_a_long_one(queue: Handle):
    for job_id in ("short", "long"):
        queue.redis.hset(queue.keys.job(job_id), mapping={"payload": "1"})
        queue.redis.lpush(queue.keys.pending, job_id)
        if job_id == "long":
            queue.enqueue_many(range(10_001))
        assert queue.cancel(job_id) == "cancelled"

    assert queue.state().ids("cancelled") == ["short", "long"]
    assert queue.claim(0).payload == 0


@pytest.mark.parametrize("job_id", ["", "a:b", None, 7, "x" * 65])
def test_what_cannot_be_an_id_is_refused(queue: Handle, job_id: object):
    with pytest.raises(UsageError, match="job id"):
        queue.cancel(job_id)
