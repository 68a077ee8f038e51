"""Entry, status and lease that disagree, and damaged data, are repaired in bounded steps."""

from __future__ import annotations

import pytest

from schedq import Conflict, Fixed
from schedq.transitions import reclaim
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import lose, one_door


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """Leases last 10 s on a stopped clock; five attempts, a minute between them."""
    return make_queue(clock=clock, visibility_ms=10_000, max_attempts=5, backoff=Fixed(60))


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
    """Another program's worker died between its move and its HSET."""
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
    """No entry and another status: another program's worker, which knows no leases, ended the job."""
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


def test_a_sweep_takes_back_a_bounded_number_and_says_that_there_are_more(queue: Handle, clock: Clock):
    most = reclaim.MOST_RECLAIMED
    ids = queue.enqueue_many(range(2 * most + most // 2))
    while queue.claim(0):
        pass
    clock.pass_time(11)

    sweeps = [queue._drive(reclaim.sweep(queue.settings)) for _ in range(4)]

    assert [(len(sweep.taken_back), sweep.has_more) for sweep in sweeps] == [
        (most, True),
        (most, True),
        (most // 2, False),
        (0, False),
    ]
    assert sorted(queue.state().ids("pending")) == ids


def test_many_that_need_a_wait_are_taken_back_in_one_pass(queue: Handle, clock: Clock):
    ids = queue.enqueue_many(range(reclaim.MOST_RECLAIMED + 20))
    while queue.claim(0):
        pass
    for job_id in ids:
        queue.redis.hset(queue.keys.job(job_id), "crashes", "1")
    clock.pass_time(11)

    first, second = (queue._drive(reclaim.sweep(queue.settings)) for _ in range(2))

    assert (len(first.taken_back), first.has_more, len(second.taken_back)) == (
        reclaim.MOST_RECLAIMED,
        True,
        20,
    )
    assert sorted(queue.state().ids("delayed")) == ids


def test_after_the_clock_went_back_leases_that_end_too_late_are_shortened(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    queue.claim(0)
    clock.pass_time(-3600)

    queue._drive(reclaim.sweep(queue.settings, shorten=True))

    assert queue.state().holds("leases", "zset") == {job_id: str(clock.now_ms + 10_000)}
    assert queue.places() == {"processing": [job_id]}


def test_a_lease_from_the_future_is_shortened_even_if_no_process_saw_the_clock_go_back(queue: Handle, clock: Clock):
    """Otherwise the job of a dead worker would wait until the clock catches up."""
    dead, renewed = queue.enqueue(1), queue.enqueue(2)
    jobs = {job.id: job for job in (queue.claim(0), queue.claim(0))}
    clock.pass_time(3600)
    queue.renew(jobs[renewed])  # while the clock was ahead
    clock.pass_time(-7200)

    assert queue.reclaim_stuck() == []
    assert set(queue.state().holds("leases", "zset").values()) == {str(clock.now_ms + 10_000)}

    clock.pass_time(5)
    assert queue.renew(jobs[renewed])
    clock.pass_time(5.001)
    assert queue.reclaim_stuck() == [dead]


def test_a_longer_lease_of_a_worker_with_a_longer_visibility_is_not_shortened(
    queue: Handle, make_queue: MakeQueue, clock: Clock
):
    longer = make_queue(queue.name, clock=clock, visibility_ms=60_000)
    job_id = longer.enqueue(1)
    longer.claim(0)
    end = clock.now_ms + 60_000
    clock.pass_time(1)

    assert queue.reclaim_stuck() == []
    assert queue.state().holds("leases", "zset") == {job_id: str(end)}


def test_leases_that_ended_after_the_clock_was_read_are_left_for_the_next_sweep(queue: Handle, clock: Clock):
    first = queue.enqueue(1)
    queue.claim(0)
    clock.pass_time(5)
    second = queue.enqueue(2)
    queue.claim(0)
    clock.pass_time(5)
    looked_at_ms = clock.now_ms
    clock.pass_time(3600)

    found = queue._drive(reclaim.sweep(queue.settings, looked_at_ms=looked_at_ms))

    assert found.taken_back == (first,)
    assert queue.places() == {"pending": [first], "processing": [second]}


@pytest.mark.breaks("layout", because="the string at `failed` is another program's")
def test_a_place_of_the_wrong_type_stops_a_sweep_before_it_has_changed_anything(queue: Handle, clock: Clock):
    queue.enqueue(1)
    lose(queue, clock)
    queue.redis.set(queue.keys.failed, "what is this")
    before = queue.dump()

    with pytest.raises(Conflict, match=queue.keys.failed):
        queue.reclaim_stuck()

    assert queue.dump() == before


# -- a move of ours that an error cut short; every point of every script is tested in scripts/tools/crashes


@one_door
@pytest.mark.parametrize("move", ["release", None])
def test_a_job_in_no_place_is_put_back_also_where_pending_is_too_long_to_be_searched(
    queue: Handle, clock: Clock, move: str | None
):
    """`release` had written only the hash; an operator's move marks the job by a lease that ended at 0."""
    queue.enqueue(1)
    job = queue.claim(0)
    queue.release(job)
    queue.redis.rpop(queue.keys.pending)
    queue.redis.zadd(queue.keys.leases, {job.id: 0 if move is None else clock.now_ms})
    if move is None:
        queue.redis.hdel(queue.keys.job(job.id), "settled_move")
    others = queue.enqueue_many(range(10_001))

    queue.reclaim_stuck()

    assert queue.places() == {"pending": [job.id, *others]}
    assert queue.fields(job.id)["attempts"] == "0"
