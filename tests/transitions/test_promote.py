"""What `promote_due` moves."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import NewJob, UsageError
from schedq.transitions import heartbeat, promote
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


def test_due_jobs_are_moved_to_pending_and_the_rest_stay(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    later, due = queue.enqueue(1, delay=10), queue.enqueue(2, delay=5)
    clock.pass_time(5)

    assert queue.promote_due() == 1

    assert queue.places() == {"pending": [due], "delayed": [later]}
    assert queue.fields(due)["status"] == "pending"
    assert queue.state().holds("wake", "zset")
    assert queue.promote_due() == 0


def test_a_millisecond_before_its_time_is_not_due(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=5)
    clock.pass_time(4.999)

    assert queue.promote_due() == 0

    assert queue.places() == {"delayed": [job_id]}


def test_the_earliest_come_first_and_equals_in_the_order_in_which_they_were_enqueued(
    make_queue: MakeQueue, clock: Clock
):
    queue = make_queue(clock=clock)
    ids = queue.enqueue_many([NewJob(n, delay=10 if n % 2 else 5) for n in range(300)])
    clock.pass_time(10)

    assert queue.promote_due() == 300

    assert queue.state().ids("pending") == ids[0::2] + ids[1::2]


def test_a_batch_that_was_enqueued_within_a_millisecond_keeps_its_order(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    ids = queue.enqueue_many(range(1000), delay=1)
    clock.pass_time(1)

    queue.promote_due()

    assert [queue.claim(0).payload for _ in range(1000)] == list(range(1000))
    assert queue.state().ids("processing") == ids


def test_at_most_the_limit_is_moved(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    ids = queue.enqueue_many(range(1500), delay=1)
    clock.pass_time(1)

    assert queue.promote_due(limit=3) == 3
    assert queue.places() == {"pending": ids[:3], "delayed": ids[3:]}
    assert queue.promote_due() == 1000
    assert queue.promote_due() == 497


@pytest.mark.parametrize("limit", [0, -1, 1001, 1.0, True, "10", None], ids=repr)
def test_a_limit_that_makes_no_sense_is_refused(queue: Handle, limit: Any):
    with pytest.raises(UsageError, match="limit"):
        queue.promote_due(limit)


def test_nothing_due_changes_nothing(queue: Handle):
    queue.enqueue(1, delay=60)
    before = queue.dump()

    assert queue.promote_due() == 0

    assert queue.dump() == before


def test_waiting_jobs_without_a_marker_get_one(queue: Handle):
    """Another program's producer only pushes; a worker may have died after taking the marker."""
    queue.enqueue(1)
    queue.redis.delete(queue.keys.wake)

    queue.promote_due()

    assert queue.state().holds("wake", "zset")


def test_while_paused_due_jobs_move_but_no_worker_is_woken(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=1)
    queue.pause()
    clock.pass_time(1)

    assert queue.promote_due() == 1

    assert queue.places() == {"pending": [job_id]}
    assert "wake" not in queue.state().keys


# -- bad data


@pytest.mark.breaks("layout", because="the string at a job's key is another program's")
def test_ids_without_data_are_noted_as_broken_and_do_not_stop_the_others(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    gone, odd, good = queue.enqueue_many(range(3), delay=1)
    queue.redis.delete(queue.keys.job(gone), queue.keys.job(odd))
    queue.redis.set(queue.keys.job(odd), "what is this")
    clock.pass_time(1)

    assert queue.promote_due() == 1

    assert queue.places() == {"pending": [good], "broken": [gone, odd]}


@pytest.mark.parametrize("end", ["completed", "cancelled", "processing"])
def test_an_entry_of_a_job_that_is_elsewhere_is_dropped(make_queue: MakeQueue, clock: Clock, end: str):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1)
    if end == "cancelled":
        queue.cancel(job_id)
    else:
        job = queue.claim(0)
        if end == "completed":
            queue.complete(job)
    queue.redis.zadd(queue.keys.delayed, {job_id: 1})

    assert queue.promote_due() == 0

    assert queue.places() == {end: [job_id]}
    assert queue.stats()["strays_total"] == 1


@pytest.mark.breaks("totals", because="another program scheduled the job")
@pytest.mark.parametrize("score", [1, 1.5, "-inf"])
def test_a_foreign_job_is_moved_when_due(queue: Handle, score: Any):
    queue.redis.hset(queue.keys.job("theirs"), mapping={"payload": "1"})
    queue.redis.zadd(queue.keys.delayed, {"theirs": score})

    assert queue.promote_due() == 1

    assert queue.claim(0).id == "theirs"


# -- the promoter's lease


@pytest.fixture(autouse=True)
def _long_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promote, "PROMOTER_LEASE_MS", 60_000)  # it outlasts pauses of the machine


def test_one_process_at_a_time_is_the_promoter(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=5)
    running = queue.enqueue(2)
    queue.claim(0)
    clock.pass_time(2)

    first = queue._ask(promote.promote(queue.settings, 200, "a"))
    second = queue._ask(promote.promote(queue.settings, 200, "b"))

    assert first == promote.Promotion(
        is_leader=True,
        now_ms=clock.now_ms,
        moved=0,
        has_more=False,
        next_due_ms=clock.now_ms + 3000,
        first_lease_end_ms=clock.now_ms + 8000,
        unleased=0,
        workers=0,
        next_slot_ms=None,
    )
    assert not second.is_leader
    assert queue.redis.get(queue.keys.promoter) == "a"
    assert 0 < queue.redis.pttl(queue.keys.promoter) <= promote.PROMOTER_LEASE_MS
    assert queue.places() == {"delayed": [job_id], "processing": [running]}


def test_a_standby_promoter_moves_nothing(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=1)
    queue._ask(promote.promote(queue.settings, 200, "a"))
    clock.pass_time(1)

    assert queue._ask(promote.promote(queue.settings, 200, "b")).moved == 0
    assert queue.places() == {"delayed": [job_id]}
    assert queue._ask(promote.promote(queue.settings, 200, "a")).moved == 1


@pytest.mark.parametrize("how", [{"px": 3_600_000 + promote.PROMOTER_LEASE_MS}, {}])
def test_a_promoter_lease_longer_than_any_valid_one_is_ignored(queue: Handle, how: dict[str, int]):
    # Its holder died and Redis's clock was set back by an hour, or it was written by hand.
    queue.redis.set(queue.keys.promoter, "dead", **how)

    assert queue._ask(promote.promote(queue.settings, 200, "b")).is_leader
    assert not queue._ask(promote.promote(queue.settings, 200, "c")).is_leader


def test_workers_that_spoke_last_before_the_clock_went_back_do_not_count(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    clock.pass_time(3600)
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 7}))
    clock.pass_time(-3600)

    assert queue._ask(promote.promote(queue.settings, 200, "a")).workers == 0
    assert queue.stats()["workers"] == 0
    queue._ask(heartbeat.beat(queue.settings, "w-2", {"pid": 8}))
    assert queue.redis.zrange(queue.keys.workers, 0, -1) == ["w-2"]


def test_with_a_promoter_a_new_earliest_instant_wakes_no_worker(queue: Handle):
    queue._ask(promote.promote(queue.settings, 200, "a"))

    queue.enqueue(1, delay=60)

    assert "wake" not in queue.state().keys


def test_a_promoter_that_leaves_makes_room_at_once(queue: Handle):
    queue._ask(promote.promote(queue.settings, 200, "a"))
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 7, "runs": "one"}))
    assert queue.stats()["workers"] == 1

    queue._ask(heartbeat.leave(queue.settings, "w-1", "b"))
    assert queue.redis.get(queue.keys.promoter) == "a"
    queue._ask(heartbeat.leave(queue.settings, "w-1", "a"))

    assert queue.stats()["workers"] == 0
    assert queue._ask(promote.promote(queue.settings, 200, "b")).is_leader
