"""What `promote_due` moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schedq import Fixed, NewJob, Rate, UsageError
from schedq.inspect import bulk
from schedq.transitions import heartbeat, promote
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.waiting import until


def test_due_jobs_are_moved_to_pending_and_the_rest_stay(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    later, due = queue.enqueue(1, delay=10), queue.enqueue(2, delay=5)
    clock.pass_time(5)

    assert queue.promote_due() == 1

    assert queue.places() == {"pending": [due], "delayed": [later]}
    assert queue.fields(due)["status"] == "pending"
    assert queue.state().holds("wake", "zset")
    assert queue.promote_due() == 0


def test_the_record_of_a_delayed_job_has_its_id_from_when_a_worker_may_take_it(make_queue: MakeQueue, clock: Clock):
    """Programs in other languages may read it there."""
    queue = make_queue(clock=clock)
    due, early, cancelled = queue.enqueue_many([1, 2, 3], delay=5)
    assert not any("id" in queue.fields(job_id) for job_id in (due, early, cancelled))

    assert queue.run_now(early)
    assert queue.cancel(cancelled) == "cancelled"
    assert queue.requeue(cancelled)
    clock.pass_time(5)
    assert queue.promote_due() == 1

    assert [queue.fields(job_id)["id"] for job_id in (due, early, cancelled)] == [due, early, cancelled]


def test_a_delayed_job_costs_redis_no_more_than_its_facts_do(make_queue: MakeQueue):
    queue = make_queue()
    job_id = queue.enqueue({"task": "send", "kwargs": {"to": "user@example.com", "n": 12345}}, delay=3600)

    # Redis allocates 160 bytes for its fields, not the next size of 192. The rest is the dump's frame.
    assert len(queue.redis.dump(queue.keys.job(job_id))) <= 160 + 13


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


def test_a_promoter_learns_the_time_to_the_microsecond(queue: Handle):
    before = queue.redis.time()
    found = queue._ask(promote.promote(queue.settings, 200, "a"))
    after = queue.redis.time()

    assert 0 <= found.micros < 1000
    assert before <= divmod(found.now_ms * 1000 + found.micros, 1_000_000) <= after


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


# -- a promoter that rests


def rest(queue: Handle, holder: str = "a") -> promote.Promotion:
    """A look of a promoter that would rest for 20 s."""
    found: promote.Promotion = queue._ask(promote.promote(queue.settings, 200, holder, rest_ms=20_000))
    return found


@pytest.mark.parametrize("delay", [None, 3600])
def test_the_promoter_of_an_unused_queue_may_rest_and_keeps_its_lease(queue: Handle, delay: float | None):
    queue.gates.set("api", concurrency=1)
    queue.redis.delete(queue.keys.wake)  # an idle worker has taken it
    rest(queue)
    if delay is not None:
        queue.enqueue(1, delay=delay)

    found = rest(queue)

    assert found.wait_ms == 20_000
    assert (found.next_due_ms is None) is (delay is None)
    assert 79_000 < queue.redis.pttl(queue.keys.promoter) <= 80_000
    assert queue.redis.hgetall(queue.keys.asleep) == {"channel": queue.keys.due}
    assert not rest(queue, "b").is_leader
    assert queue._ask(promote.promote(queue.settings, 200, "a")).wait_ms == 0
    assert queue.redis.pttl(queue.keys.promoter) <= 60_000


def _has_a_job_in_a_paused_gate(queue: Handle) -> None:
    queue.gates.set("api", concurrency=1)
    queue.gates.pause("api")
    queue.enqueue(1, gate="api")


def _has_a_job_behind_a_rate(queue: Handle) -> None:
    queue.gates.set("api", rate=Rate(1, per=3600))
    queue.enqueue_many([1, 2], gate="api")
    queue.complete(queue.claim(0), 1)


def _has_a_job_of_a_paused_task(queue: Handle) -> None:
    queue.pause(task="send")
    queue.enqueue({"task": "send"})
    assert queue.claim(0) is None


def _has_a_batch(queue: Handle) -> None:
    square = queue.task(name="square", backoff=Fixed(3600))(lambda number: number)
    with queue.batch("squares", square) as batch:
        batch.add([1])
    queue.fail(queue.claim(0), "not yet")


@pytest.mark.parametrize(
    "use", [_has_a_job_in_a_paused_gate, _has_a_job_behind_a_rate, _has_a_job_of_a_paused_task, _has_a_batch]
)
def test_it_may_rest_while_all_jobs_wait_for_something(queue: Handle, use: Callable[[Handle], None]):
    use(queue)
    queue.redis.delete(queue.keys.wake)  # an idle worker has taken it
    rest(queue)

    found = rest(queue)

    assert found.wait_ms == 20_000
    if use is _has_a_batch:
        assert found.next_group_ms is not None
    if use is _has_a_job_behind_a_rate:
        assert found.next_due_ms is not None


def _cancels(queue: Handle, job_id: str) -> None:
    queue.cancel(job_id)


def _deletes(queue: Handle, job_id: str) -> None:
    queue.execute([bulk.delete(queue.settings, "request", [job_id], "")])


def _purges(queue: Handle, job_id: str) -> None:
    del job_id
    queue.purge()


@pytest.mark.parametrize("leave", [_cancels, _deletes, _purges])
def test_a_job_that_leaves_its_key_calls_a_promoter_that_rests(queue: Handle, leave: Callable[[Handle, str], None]):
    queue.gates.set("api", concurrency=1)
    queue.gates.pause("api")
    job = queue.enqueue(1, gate="api")
    queue.redis.delete(queue.keys.wake)
    heard = queue.redis.pubsub()
    heard.subscribe(queue.keys.due)
    heard.get_message(timeout=10)
    rest(queue)
    assert rest(queue).wait_ms > 0

    leave(queue, job)

    assert heard.get_message(timeout=10) is not None
    heard.close()


@pytest.mark.parametrize("leave", [_cancels, _deletes, _purges])
def test_a_job_that_leaves_its_batch_calls_a_promoter_that_rests(queue: Handle, leave: Callable[[Handle, str], None]):
    _has_a_batch(queue)
    (job,) = queue.places()["delayed"]
    queue.redis.delete(queue.keys.wake)
    rest(queue)
    assert rest(queue).wait_ms > 0
    heard = queue.redis.pubsub()
    heard.subscribe(queue.keys.due)
    heard.get_message(timeout=10)

    leave(queue, job)

    assert heard.get_message(timeout=10) is not None
    assert rest(queue).wait_ms == 0 or leave is _purges, "a purge deletes the batch, too"
    heard.close()


def _is_running(queue: Handle) -> None:
    queue.enqueue(1)
    queue.claim(0)


def _is_paused_with_jobs(queue: Handle) -> None:
    queue.pause()
    queue.enqueue(1)


def _has_a_key_that_may_start(queue: Handle) -> None:
    _has_a_job_in_a_paused_gate(queue)
    queue.gates.resume("api")
    queue.redis.delete(queue.keys.wake)


def _has_a_group_to_look_at(queue: Handle) -> None:
    _has_a_batch(queue)
    queue.redis.zadd(queue.keys.groups, {"squares": 0})


def _has_a_schedule(queue: Handle) -> None:
    queue.schedules.upsert("hourly", cron="0 * * * *", payload=1)


def _has_a_marker(queue: Handle) -> None:
    queue.redis.zadd(queue.keys.wake, {"1": 0})


def _has_due_jobs(queue: Handle) -> None:
    queue.enqueue(1, delay=0.001)
    until(lambda: queue.redis.time()[1] > 0 and queue.stats()["now_ms"] > queue.stats()["next_due_ms"])


@pytest.mark.parametrize(
    "use",
    [
        _is_running,
        _is_paused_with_jobs,
        _has_a_key_that_may_start,
        _has_a_group_to_look_at,
        _has_a_schedule,
        _has_a_marker,
        _has_due_jobs,
    ],
)
def test_it_does_not_rest_while_something_may_need_it(queue: Handle, use: Callable[[Handle], None]):
    use(queue)

    assert rest(queue).wait_ms == 0
    assert not queue.redis.exists(queue.keys.asleep)


def test_whoever_wakes_a_worker_calls_a_promoter_that_rests(queue: Handle):
    heard = queue.redis.pubsub()
    heard.subscribe(queue.keys.due)
    heard.get_message(timeout=10)
    rest(queue)

    queue.enqueue_many([1, 2])

    found = heard.get_message(timeout=10)
    assert found is not None
    assert found["data"] == "awake"
    assert not queue.redis.exists(queue.keys.asleep)
    assert heard.get_message(timeout=0.01) is None, "once is enough"
    heard.close()


def test_a_rest_is_never_longer_than_a_minute(queue: Handle):
    found = queue._ask(promote.promote(queue.settings, 200, "a", rest_ms=3_600_000))

    assert found.wait_ms == 60_000
