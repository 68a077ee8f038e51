"""Jobs whose worker is silent past its lease: row by row of the design's table."""

from __future__ import annotations

import pytest

from schedq import ClaimedJob, Conflict, Fixed, JobFailed
from schedq.operations import upkeep
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """Leases last 10 s on a clock that stands still; five attempts, a minute between them."""
    return make_queue(clock=clock, visibility_ms=10_000, max_attempts=5, backoff=Fixed(60))


def lose(queue: Handle, clock: Clock) -> ClaimedJob:
    """Claim a job and let its lease end."""
    job: ClaimedJob = queue.claim(0)
    clock.pass_time(10)
    return job


def test_a_job_is_left_alone_until_its_lease_ends(queue: Handle, clock: Clock):
    queue.enqueue(1)
    job = queue.claim(0)
    clock.pass_time(9.999)

    assert queue.reclaim_stuck() == []

    assert queue.places() == {"processing": [job.id]}
    assert queue.complete(job)


def test_it_is_taken_back_and_next_in_line(queue: Handle, clock: Clock):
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


def test_many_come_back_in_the_order_in_which_they_were_claimed(queue: Handle, clock: Clock):
    ids = queue.enqueue_many(range(8))
    for _ in range(3):
        queue.claim(0)
        clock.pass_time(0.001)
    for _ in range(3):
        queue.claim(0)
    clock.pass_time(11)

    assert sorted(queue.reclaim_stuck()) == ids[:6]

    assert queue.state().ids("pending") == ids


def test_from_the_second_lost_lease_on_it_comes_back_with_backoff(queue: Handle, clock: Clock):
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


def test_a_lost_lease_on_the_last_attempt_has_failed_even_if_it_is_the_first_lost_one(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1, max_attempts=2, backoff=Fixed(0))
    queue.fail(queue.claim(0))
    lose(queue, clock)

    queue.reclaim_stuck()

    assert queue.places() == {"failed": [job_id]}
    assert queue.get_job(job_id).last_error == "lease expired 1 time"


def test_given_back_attempts_do_not_hide_lost_leases(queue: Handle, clock: Clock):
    """Release and snooze give an attempt back; a job must not live for ever by that."""
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


def test_asked_to_stop_it_is_cancelled_also_after_many_lost_leases(queue: Handle, clock: Clock):
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


def test_while_paused_jobs_are_taken_back_and_nobody_is_woken(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    lose(queue, clock)
    queue.pause()

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"pending": [job_id]}


# -- entry, status and lease that do not agree


def test_a_lost_entry_of_a_running_job_is_made_good(queue: Handle, clock: Clock):
    """No entry, but status processing: revived."""
    job_id = queue.enqueue(1)
    lose(queue, clock)
    queue.redis.lrem(queue.keys.processing, 0, job_id)

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"pending": [job_id]}


@pytest.mark.parametrize("status", ["pending", None])
def test_an_entry_whose_status_was_never_set_is_taken_back(queue: Handle, clock: Clock, status: str | None):
    """A foreign worker died between its move and its HSET."""
    job_id = queue.enqueue(1)
    lose(queue, clock)
    if status:
        queue.redis.hset(queue.keys.job(job_id), "status", status)
    else:
        queue.redis.hdel(queue.keys.job(job_id), "status")

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"pending": [job_id]}


@pytest.mark.parametrize("end", ["completed", "pending", "delayed", "cancelled"])
def test_a_lease_left_behind_is_dropped_and_the_job_left_alone(queue: Handle, clock: Clock, end: str):
    """No entry and another status: a foreign worker ended the job and knows nothing of leases."""
    job_id = queue.enqueue(1, delay=1 if end == "delayed" else None)
    if end == "completed":
        queue.complete(queue.claim(0))
    elif end == "cancelled":
        queue.cancel(job_id)
    queue.redis.zadd(queue.keys.leases, {job_id: clock.now_ms})
    before = queue.dump()

    assert queue.reclaim_stuck() == []

    assert queue.places() == {end: [job_id]}
    assert queue.dump()[queue.keys.job(job_id)] == before[queue.keys.job(job_id)]


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("leased", [True, False])
def test_an_entry_of_a_finished_job_is_dropped(queue: Handle, clock: Clock, end: str, leased: bool):
    job_id = queue.enqueue(1, max_attempts=1)
    if end == "cancelled":
        queue.cancel(job_id)
    else:
        job = queue.claim(0)
        assert queue.complete(job) if end == "completed" else queue.fail(job)
    queue.redis.lpush(queue.keys.processing, job_id)
    if leased:
        queue.redis.zadd(queue.keys.leases, {job_id: clock.now_ms})

    assert queue.reclaim_stuck() == []

    assert queue.places() == {end: [job_id]}


def test_an_entry_of_a_delayed_job_is_dropped(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1, delay=60)
    queue.redis.lpush(queue.keys.processing, job_id)
    queue.redis.zadd(queue.keys.leases, {job_id: clock.now_ms})

    assert queue.reclaim_stuck() == []

    assert queue.places() == {"delayed": [job_id]}


@pytest.mark.breaks("totals", because="the lease of a job that never was is made by hand")
def test_a_lease_of_nothing_is_noted_as_broken(queue: Handle, clock: Clock):
    queue.redis.zadd(queue.keys.leases, {"never-was": clock.now_ms})

    assert queue.reclaim_stuck() == []

    assert queue.places() == {"broken": ["never-was"]}


# -- in bounded steps, whatever is in the way


@pytest.mark.breaks("layout", "totals", because="the data of some running jobs is replaced")
def test_bad_data_never_stops_a_sweep(queue: Handle, clock: Clock):
    ids = queue.enqueue_many(range(12), max_attempts=2)
    for _ in ids:
        queue.claim(0)
    key = queue.keys.job
    queue.redis.delete(key(ids[0]), key(ids[1]))
    queue.redis.set(key(ids[1]), "what is this")
    for job_id, fields in {
        ids[2]: {"claimed_at_ms": "garbage", "started_at_ms": "garbage"},
        ids[3]: {"attempts": "nan", "crashes": "1e999"},
        ids[4]: {"max_attempts": "-1", "backoff": "garbage"},
        ids[5]: {"history": "\x00" * 50, "worker": "\xff"},
        ids[6]: {"claim_token": "no number.x", "stop": ""},
        ids[7]: {"crashes": "1", "attempts": "1", "backoff": '{"kind":"steps","delays":[]}'},
        ids[8]: {"claim_token": "." + "9" * 400},
    }.items():
        queue.redis.hset(key(job_id), mapping=fields)
    queue.redis.zadd(queue.keys.leases, {"a:b": 1, "*": 2})
    queue.redis.lpush(queue.keys.processing, "a:b", ids[9], ids[9])
    clock.pass_time(11)

    taken_back = queue.reclaim_stuck()
    queue.reclaim_stuck()

    assert sorted(taken_back) == ids[2:]
    places = queue.places()
    assert sorted(places.pop("broken")) == sorted(["a:b", "*", ids[0], ids[1]])
    assert sorted(places.pop("pending") + places.pop("failed", []) + places.pop("cancelled", [])) == ids[2:]
    assert places == {}


def test_a_sweep_takes_back_at_most_a_hundred_and_says_that_there_are_more(queue: Handle, clock: Clock):
    ids = queue.enqueue_many(range(250))
    while queue.claim(0):
        pass
    clock.pass_time(11)

    sweeps = [queue._drive(upkeep.sweep(queue.settings)) for _ in range(4)]

    assert [(len(sweep.taken_back), sweep.has_more) for sweep in sweeps] == [
        (100, True),
        (100, True),
        (50, False),
        (0, False),
    ]
    assert sorted(queue.state().ids("pending")) == ids


def test_many_that_need_a_wait_are_taken_back_in_one_pass(queue: Handle, clock: Clock):
    ids = queue.enqueue_many(range(120))
    while queue.claim(0):
        pass
    for job_id in ids:
        queue.redis.hset(queue.keys.job(job_id), "crashes", "1")
    clock.pass_time(11)

    first, second = (queue._drive(upkeep.sweep(queue.settings)) for _ in range(2))

    assert (len(first.taken_back), first.has_more, len(second.taken_back)) == (100, True, 20)
    assert sorted(queue.state().ids("delayed")) == ids


def test_after_the_clock_went_back_leases_that_end_too_late_are_shortened(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    queue.claim(0)
    clock.pass_time(-3600)

    queue._drive(upkeep.sweep(queue.settings, shorten=True))

    assert queue.state().holds("leases", "zset") == {job_id: str(clock.now_ms + 10_000)}
    assert queue.places() == {"processing": [job_id]}


@pytest.mark.breaks("layout", because="the string at `failed` is another program's")
def test_a_place_of_the_wrong_type_stops_a_sweep_before_it_has_changed_anything(queue: Handle, clock: Clock):
    queue.enqueue(1)
    lose(queue, clock)
    queue.redis.set(queue.keys.failed, "what is this")
    before = queue.dump()

    with pytest.raises(Conflict, match=queue.keys.failed):
        queue.reclaim_stuck()

    assert queue.dump() == before
