"""What operators do: reschedule, run now, requeue, pause, resume."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from schedq import Discard, UsageError
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.inspect.scenes import failed
from tests.transitions.scenes import failed_jobs, one_door

# -- reschedule


@pytest.mark.parametrize(
    ("when", "due_ms"),
    [
        ({"delay": 5}, 1_800_000_005_000),
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC)}, 1_893_456_000_000),
        ({"run_at": 1_893_456_000}, 1_893_456_000_000),
    ],
    ids=repr,
)
def test_a_delayed_job_gets_another_time(make_queue: MakeQueue, clock: Clock, when: Any, due_ms: int):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=60)

    assert queue.reschedule(job_id, **when) is True

    assert queue.places() == {"delayed": [job_id]}
    assert queue.state().holds("delayed", "zset") == {job_id: str(due_ms)}
    assert queue.get_job(job_id).run_at_ms == due_ms


@pytest.mark.parametrize("way", ["run_now", "past", "zero"])
def test_a_time_that_is_past_is_now_and_next_in_line(make_queue: MakeQueue, clock: Clock, way: str):
    queue = make_queue(clock=clock)
    waiting = queue.enqueue("waiting")
    job_id = queue.enqueue(1, delay=60)
    queue.redis.delete(queue.keys.wake)

    if way == "run_now":
        assert queue.run_now(job_id)
    else:
        assert queue.reschedule(job_id, **({"run_at": 1} if way == "past" else {"delay": 0}))

    assert queue.places() == {"pending": [job_id, waiting]}
    assert queue.fields(job_id)["status"] == "pending"
    assert queue.state().holds("wake", "zset")
    assert queue.claim(0).id == job_id


@pytest.mark.parametrize("place", ["pending", "processing", "completed", "gone"])
def test_only_delayed_jobs_have_a_time(queue: Handle, place: str):
    job_id = queue.enqueue(1)
    if place == "gone":
        queue.purge()
    elif place != "pending":
        job = queue.claim(0)
        if place == "completed":
            queue.complete(job)
    before = queue.dump()

    assert queue.reschedule(job_id, delay=5) is False
    assert queue.run_now(job_id) is False

    assert queue.dump() == before


@pytest.mark.parametrize(
    "when", [{}, {"delay": 1, "run_at": 1}, {"delay": -1}, {"run_at": datetime(2030, 1, 1)}], ids=repr
)
def test_a_time_that_makes_no_sense_is_refused(queue: Handle, when: Any):
    job_id = queue.enqueue(1, delay=60)

    with pytest.raises(UsageError):
        queue.reschedule(job_id, **when)

    assert queue.places() == {"delayed": [job_id]}


def test_a_retry_that_waits_may_be_rescheduled(queue: Handle):
    job_id = queue.enqueue(1)
    queue.fail(queue.claim(0))

    assert queue.run_now(job_id)

    assert queue.claim(0).attempts == 2


# -- requeue


def test_a_failed_job_gets_a_new_life_with_all_its_attempts(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=1)
    job_id = queue.enqueue({"to": "ada"})
    queue.fail(queue.claim(0), "down")
    queue.redis.delete(queue.keys.wake)

    assert queue.requeue(job_id) is True

    record = queue.get_job(job_id)
    assert queue.places() == {"pending": [job_id]}
    assert (record.attempts, record.crashes, record.payload, record.last_error) == (0, 0, {"to": "ada"}, "down")
    assert queue.state().holds("wake", "zset")
    assert queue.claim(0).attempts == 1


def test_a_job_that_lost_its_leases_starts_without_suspicion(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=1)
    job_id = queue.enqueue(1)
    queue.claim(0)
    clock.pass_time(11)
    queue.reclaim_stuck()

    assert queue.requeue(job_id)

    assert queue.claim(0).crashes == 0


def test_a_cancelled_job_gets_a_new_life_and_is_not_asked_to_stop_again(queue: Handle):
    queue.enqueue(1)
    job = queue.claim(0)
    queue.cancel(job.id)
    queue.fail(job)

    assert queue.requeue(job.id)

    again = queue.claim(0)
    assert queue.fail(again, Discard())
    assert queue.places() == {"failed": [job.id]}


@pytest.mark.parametrize("place", ["pending", "delayed", "processing", "completed", "gone"])
def test_only_failed_and_cancelled_jobs_are_requeued(queue: Handle, place: str):
    job_id = queue.enqueue(1, delay=60 if place == "delayed" else None)
    if place == "gone":
        queue.purge()
    elif place in ("processing", "completed"):
        job = queue.claim(0)
        if place == "completed":
            queue.complete(job)
    before = queue.dump()

    assert queue.requeue(job_id) is False

    assert queue.dump() == before


def test_a_failed_job_whose_entry_another_program_trimmed_is_not_lost(queue: Handle):
    (job_id,) = failed_jobs(queue, 1)
    queue.redis.delete(queue.keys.failed)

    assert queue.requeue(job_id) is True

    assert queue.places() == {"pending": [job_id]}


def test_failed_jobs_are_requeued_oldest_first_up_to_a_limit(queue: Handle):
    ids = failed_jobs(queue, 7)
    cancelled = queue.enqueue("cancelled")
    queue.cancel(cancelled)

    assert queue.requeue_failed(limit=3) == 3
    assert queue.places() == {"pending": ids[:3], "failed": ids[3:], "cancelled": [cancelled]}
    assert queue.requeue_failed() == 4
    assert queue.requeue_failed() == 0
    assert queue.state().ids("pending") == ids


@one_door
def test_many_failed_jobs_are_requeued_in_one_call(queue: Handle):
    ids = failed_jobs(queue, 1500)

    assert queue.requeue_failed() == 1000

    assert queue.places() == {"pending": ids[:1000], "failed": ids[1000:]}


@one_door
def test_a_job_is_removed_from_any_position_of_a_long_list(make_queue: MakeQueue, clock: Clock):
    """The list is searched from the end nearer to the job's time; a wrong time does no harm."""
    queue = make_queue(clock=clock)
    ids: list[str] = []
    for _ in range(3):
        ids += failed(queue, list(range(900)))
        clock.pass_time(1)
    queue.redis.hset(queue.keys.job(ids[10]), "last_error_at_ms", clock.now_ms + 10**6)
    queue.redis.hset(queue.keys.job(ids[1200]), "last_error_at_ms", "x")
    chosen = [ids[0], ids[10], ids[1200], ids[1350], ids[-1]]

    assert [queue.requeue(job_id) for job_id in chosen] == [True] * len(chosen)

    assert queue.places() == {"pending": chosen, "failed": [job_id for job_id in ids if job_id not in chosen]}


@pytest.mark.breaks("totals", because="entries of no job are put among the failed by hand")
def test_entries_that_are_not_jobs_do_not_stop_the_others(queue: Handle):
    (good,) = failed_jobs(queue, 1)
    queue.redis.rpush(queue.keys.failed, "never-was", "a:b")

    assert queue.requeue_failed() == 1

    assert queue.state().ids("pending") == [good]


@pytest.mark.parametrize("limit", [0, 1001, None, "all"])
def test_a_limit_that_makes_no_sense_is_refused(queue: Handle, limit: Any):
    with pytest.raises(UsageError, match="limit"):
        queue.requeue_failed(limit)


def test_requeued_jobs_have_no_expiry(queue: Handle):
    (job_id,) = failed_jobs(queue, 1)
    queue.redis.expire(queue.keys.job(job_id), 300)  # the guide's EXPIRE

    queue.requeue(job_id)

    assert queue.redis.ttl(queue.keys.job(job_id)) == -1
