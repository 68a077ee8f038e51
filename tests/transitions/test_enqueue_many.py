"""What a producer gets from `enqueue_many`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from schedq import Conflict, Fixed, NewJob, QueueFull, UsageError
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import one_door


def scripts(requests: list) -> list[str]:
    return [str(request) for request in requests if request.name in ("EVAL", "EVALSHA")]


def test_ten_thousand_jobs_take_a_few_round_trips_and_keep_their_order(queue: Handle):
    first = queue.enqueue("connected, and the script is known")

    with queue.server.requests() as sent:
        ids = queue.enqueue_many({"n": n} for n in range(10_000))

    assert len(scripts(sent)) == len(sent) == 67
    assert queue.places() == {"pending": [first, *ids]}
    assert ids == sorted(ids)
    assert queue.state().totals() == {"enqueued_total": 10_001}


def test_no_script_carries_more_than_a_megabyte(queue: Handle):
    with queue.server.requests() as sent:
        ids = queue.enqueue_many(["x" * 200_000] * 12)

    assert queue.places() == {"pending": ids}
    assert max(len(request) for request in scripts(sent)) <= 1_100_000
    assert 3 <= len(scripts(sent)) <= 4


def test_jobs_may_have_their_own_options_in_addition_to_the_common_ones(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    own_time = datetime(2030, 1, 1, tzinfo=UTC)

    ids = queue.enqueue_many(
        [
            "as the others",
            NewJob("own time", run_at=own_time),
            NewJob("own delay", delay=0),
            NewJob("own id", job_id="mine", max_attempts=9, backoff=Fixed(4), timeout=2),
        ],
        delay=60,
        max_attempts=5,
        backoff=Fixed(3),
        timeout=1,
    )

    common, at, now, mine = (queue.fields(job_id) for job_id in ids)
    assert queue.places() == {"pending": [ids[2]], "delayed": [ids[0], "mine", ids[1]]}
    assert common["run_at_ms"] == mine["run_at_ms"] == str(clock.now_ms + 60_000)
    assert at["run_at_ms"] == "1893456000000"
    assert [fields["max_attempts"] for fields in (common, at, now, mine)] == ["5", "5", "5", "9"]
    assert [fields["timeout_ms"] for fields in (common, at, now, mine)] == ["1000", "1000", "1000", "2000"]
    assert mine["backoff"] == '{"kind":"fixed","delay":4,"jitter":0}'
    assert common["backoff"] == '{"kind":"fixed","delay":3,"jitter":0}'


def test_an_own_option_that_makes_no_sense_is_not_replaced_by_the_common_one(queue: Handle):
    with pytest.raises(UsageError, match="max_attempts"):
        queue.enqueue_many([NewJob(1, max_attempts=0)], max_attempts=5)

    assert queue.places() == {}


@pytest.mark.parametrize("bad", [float("nan"), NewJob(1, delay=-1), NewJob(1, job_id="a b"), {1: 1}], ids=repr)
def test_one_bad_item_among_many_and_nothing_is_sent(queue: Handle, bad: object):
    with pytest.raises(UsageError), queue.server.requests() as sent:
        queue.enqueue_many([1, 2, bad])

    assert sent == []


@pytest.mark.parametrize("jobs", [[], (), iter(())])
def test_an_empty_list_is_accepted(queue: Handle, jobs: object):
    assert queue.enqueue_many(jobs) == []
    assert queue.places() == {}


def test_the_room_that_is_left_is_used_and_the_stored_ids_are_returned(make_queue: MakeQueue):
    queue = make_queue(max_pending=2500)

    with pytest.raises(QueueFull, match="2500") as refused:
        queue.enqueue_many(range(10_000))

    stored = list(refused.value.stored)
    assert len(stored) == 2500
    assert queue.places() == {"pending": stored}
    assert [record.payload for record in queue.list_pending(limit=3)] == [0, 1, 2]


def test_a_full_queue_still_accepts_delayed_jobs(make_queue: MakeQueue):
    queue = make_queue(max_pending=1)

    with pytest.raises(QueueFull) as refused:
        queue.enqueue_many(["a", "b", NewJob("c", delay=60)])

    now, later = refused.value.stored
    assert queue.places() == {"pending": [now], "delayed": [later]}


def test_a_conflict_names_the_job_and_all_others_are_stored(queue: Handle):
    queue.enqueue("old", job_id="b")

    with pytest.raises(Conflict, match="job b "):
        queue.enqueue_many([NewJob("new", job_id=job_id) for job_id in "abc"])

    assert queue.places() == {"pending": ["b", "a", "c"]}
    assert queue.get_job("b").payload == "old"


@one_door
def test_the_same_batch_again_changes_nothing(queue: Handle):
    batch = [NewJob(n, job_id=f"job-{n}", delay=n % 2 and 60) for n in range(1200)]
    ids = queue.enqueue_many(batch)
    before = queue.dump()

    assert queue.enqueue_many(batch) == ids == [f"job-{n}" for n in range(1200)]

    assert queue.dump() == before


def test_the_same_id_twice_in_a_batch_is_one_job(queue: Handle):
    assert queue.enqueue_many([NewJob(1, job_id="a"), NewJob(1, job_id="a")]) == ["a", "a"]

    assert queue.places() == {"pending": ["a"]}
    assert queue.state().totals() == {"enqueued_total": 1}


@pytest.mark.breaks("totals", because="the records of the first completions are deleted by hand")
@one_door
def test_own_ids_are_searched_in_long_histories_in_small_steps(queue: Handle):
    ids = queue.enqueue_many([NewJob(n, job_id=f"job-{n}") for n in range(1200)])
    while job := queue.claim(0):
        queue.complete(job)
    queue.redis.delete(*[queue.keys.job(job_id) for job_id in ids])

    with queue.server.requests() as sent:
        assert queue.enqueue_many([NewJob(n, job_id=f"job-{n}") for n in range(600)]) == ids[:600]

    assert len(scripts(sent)) > 4
    assert queue.places() == {"pending": ids[:600], "completed": ids[600:]}


@pytest.mark.breaks("layout", "places", because="the list at one job's key is another program's")
def test_an_item_whose_key_holds_something_else_does_not_stop_the_others(queue: Handle):
    queue.redis.rpush(queue.keys.job("b"), "what is this")

    with pytest.raises(Conflict, match=queue.keys.job("b")):
        queue.enqueue_many([NewJob(1, job_id=job_id) for job_id in "abc"])

    assert queue.places() == {"pending": ["a", "c"]}


def test_a_claim_that_waits_wakes_once_for_the_earliest_of_many(make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("schedq.transitions.claim._LONGEST_WAIT_S", 60)
    queue = make_queue()
    waiting = queue.start("claim", 120_000)

    queue.enqueue_many([NewJob(n, delay=0.3 + (n * 7 % 2000)) for n in range(2000)])

    job = waiting.result(60)
    assert job.payload == 0
    assert 0 <= job.claimed_at_ms - job.run_at_ms < 20_000
    queue.complete(job)
