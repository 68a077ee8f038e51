"""What a claim takes, and the state of the job afterwards."""

from __future__ import annotations

import re
from typing import Any

import pytest

from schedq import UsageError
from schedq.model.ids import new_request
from schedq.transitions import claim
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


def claim_some(queue: Handle, limit: int, **options: Any) -> claim.Claim:
    found: claim.Claim = queue._ask(claim.claim(queue.settings, new_request(), limit, **options))
    return found


def test_the_oldest_job_comes_first(queue: Handle):
    ids = [queue.enqueue(n) for n in range(5)]

    assert [queue.claim(0).id for _ in ids] == ids
    assert queue.claim(0) is None
    assert queue.places() == {"processing": ids}


def test_a_claimed_job_is_leased_and_counted(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, visibility_ms=4000)
    job_id = queue.enqueue({"n": 1})
    clock.pass_time(2)

    job = queue.claim(0)

    assert (job.id, job.payload, job.attempts, job.crashes, job.problem) == (job_id, {"n": 1}, 1, 0, "")
    assert (job.enqueued_at_ms, job.claimed_at_ms, job.run_at_ms) == (clock.now_ms - 2000, clock.now_ms, 0)
    assert queue.places() == {"processing": [job_id]}
    assert queue.state().holds("leases", "zset") == {job_id: str(clock.now_ms + 4000)}
    fields = queue.fields(job_id)
    assert fields["claim_token"] == job.claim_token
    assert fields["attempts"] == "1"
    assert fields["claimed_at_ms"] == fields["started_at_ms"] == str(clock.now_ms)


def test_every_claim_has_its_own_token(queue: Handle):
    queue.enqueue_many([1] * 20)

    tokens = {queue.claim(0).claim_token for _ in range(20)}

    assert len(tokens) == 20
    assert all(re.fullmatch(r"[0-9a-f]{16,}\.1", token) for token in tokens)


def test_the_jobs_of_one_request_are_numbered(queue: Handle):
    ids = queue.enqueue_many(range(3))

    found = claim_some(queue, 10, worker="w-1")

    assert [job.id for job in found.jobs] == ids
    request = found.jobs[0].claim_token.partition(".")[0]
    assert [job.claim_token for job in found.jobs] == [f"{request}.{n}" for n in (1, 2, 3)]
    assert {queue.fields(job_id)["worker"] for job_id in ids} == {"w-1"}
    assert queue.places() == {"processing": ids}


def test_an_attempt_more_with_every_claim(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=9)
    queue.enqueue(1)

    for attempt in (1, 2, 3):
        job = queue.claim(0)
        assert job.attempts == attempt
        queue.fail(job)
        clock.pass_time(600)


def test_a_due_job_is_claimed_without_any_promoter_and_says_when_it_was_due(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue("later", delay=60)

    clock.pass_time(59.999)
    assert queue.claim(0) is None
    clock.pass_time(0.001)
    job = queue.claim(0)

    assert (job.id, job.run_at_ms) == (job_id, clock.now_ms)
    assert queue.state().totals() == {"enqueued_total": 1, "promoted_total": 1}


def test_due_jobs_come_in_order_of_their_time_after_those_that_wait(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    late = queue.enqueue(1, delay=2)
    early = queue.enqueue(2, delay=1)
    waiting = queue.enqueue(3)
    clock.pass_time(5)

    assert [queue.claim(0).id for _ in range(3)] == [waiting, early, late]


def test_a_claim_brings_at_most_a_hundred_due_jobs_along(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    ids = queue.enqueue_many(range(150), delay=1)
    clock.pass_time(1)

    job = queue.claim(0)

    assert queue.places() == {"processing": [job.id], "pending": ids[1:100], "delayed": ids[100:]}


def test_a_claim_takes_at_most_its_limit_and_wakes_the_next_worker(queue: Handle):
    ids = queue.enqueue_many(range(5))
    queue.redis.delete(queue.keys.wake)

    found = claim_some(queue, 3)

    assert found.has_more
    assert queue.places() == {"processing": ids[:3], "pending": ids[3:]}
    assert "wake" in queue.state().keys


def test_a_claim_that_empties_pending_wakes_no_worker(queue: Handle):
    queue.enqueue(1)
    queue.redis.delete(queue.keys.wake)

    found = claim_some(queue, 3)

    assert not found.has_more
    assert "wake" not in queue.state().keys


def test_a_claim_carries_at_most_a_megabyte_but_always_one_job(make_queue: MakeQueue):
    queue = make_queue(max_payload=3_000_000)
    big, small, other = queue.enqueue_many(["x" * 2_000_000, "y" * 600_000, "z" * 600_000])

    assert [job.id for job in claim_some(queue, 10).jobs] == [big]
    assert [job.id for job in claim_some(queue, 10).jobs] == [small]
    assert queue.places() == {"processing": [big, small], "pending": [other]}


def test_while_paused_nothing_is_claimed_and_nothing_is_promoted(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    now, later = queue.enqueue(1), queue.enqueue(2, delay=1)
    queue.pause()
    clock.pass_time(2)

    assert queue.claim(0) is None

    assert queue.places() == {"pending": [now], "delayed": [later]}
    assert queue.fields(now)["attempts"] == "0"


def test_a_claim_by_another_queue_object_gets_the_next_job(make_queue: MakeQueue):
    queue, other = make_queue("shared-claim"), make_queue("shared-claim")
    first, second = queue.enqueue_many([1, 2])

    assert (queue.claim(0).id, other.claim(0).id) == (first, second)


# -- a job that lost two leases may have killed its workers


def suspect(queue: Handle) -> str:
    job_id: str = queue.enqueue("suspect", max_attempts=9)
    queue.redis.hset(queue.keys.job(job_id), mapping={"crashes": 2, "attempts": 2})
    return job_id


def test_a_process_that_has_a_suspect_gets_the_others_only(queue: Handle):
    bad = suspect(queue)
    good = queue.enqueue_many([1, 2])

    found = claim_some(queue, 5, suspects=False)

    assert [job.id for job in found.jobs] == good
    assert queue.places() == {"processing": good, "delayed": [bad]}


@pytest.mark.parametrize("left", [{"max_attempts": 1}, {"attempts": 1}])
def test_a_claim_may_leave_only_and_later_attempts_where_they_are(queue: Handle, left: dict[str, int]):
    first, other, last = (queue.enqueue(name) for name in ("first", "other", "last"))
    queue.redis.hset(queue.keys.job(other), mapping=left)
    queue.redis.delete(queue.keys.wake)

    found = claim_some(queue, 3, suspects=False, all_attempts=False)
    assert ([job.id for job in found.jobs], found.has_more) == ([first], True)
    assert queue.places() == {"processing": [first], "pending": [other, last]}
    assert queue.redis.exists(queue.keys.wake)

    found = claim_some(queue, 3, suspects=False)
    assert ([job.id for job in found.jobs], found.has_more) == ([other, last], False)


def test_a_claim_takes_one_suspect_at_a_time(queue: Handle):
    first, second = suspect(queue), suspect(queue)
    good = queue.enqueue("good")

    found = claim_some(queue, 5)

    assert [(job.id, job.crashes) for job in found.jobs] == [(first, 2), (good, 0)]
    assert queue.places() == {"processing": [first, good], "delayed": [second]}


def test_suspects_that_were_passed_over_wake_one_other_process_once(queue: Handle):
    ids = [suspect(queue) for _ in range(3)]
    queue.redis.delete(queue.keys.wake)

    assert claim_some(queue, 5, suspects=False).jobs == ()
    assert queue.redis.delete(queue.keys.wake)
    for _ in range(3):
        assert claim_some(queue, 5, suspects=False).jobs == ()

    assert "wake" not in queue.state().keys
    assert queue.places() == {"delayed": ids}


@pytest.mark.parametrize("count", [50, 600])
def test_however_many_suspects_wait_they_do_not_keep_workers_awake(queue: Handle, count: int):
    ids = [suspect(queue) for _ in range(count)]
    good = queue.enqueue("good")

    looks: list[claim.Claim] = []
    while not looks or looks[-1].has_more:
        looks.append(claim_some(queue, 5, suspects=False))
    queue.redis.delete(queue.keys.wake)

    assert [job.id for look in looks for job in look.jobs] == [good]
    assert len(looks) <= 1 + count // 100
    assert claim_some(queue, 5, suspects=False).jobs == ()
    assert "wake" not in queue.state().keys
    assert sorted(queue.state().ids("delayed")) == ids


def test_a_worker_that_may_hold_a_suspect_gets_the_one_skipped_first(queue: Handle):
    first, second, third = (suspect(queue) for _ in range(3))
    claim_some(queue, 5, suspects=False)
    good = queue.enqueue("good")

    found = [[job.id for job in claim_some(queue, 5).jobs] for _ in range(4)]

    assert found == [[first, good], [second], [third], []]
    assert queue.redis.zcard(queue.keys.suspects) == 0
    assert queue.fields(first)["run_at_ms"] <= queue.fields(first)["started_at_ms"]


def test_suspects_that_were_passed_over_become_due_a_few_a_second(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    for _ in range(50):
        suspect(queue)
    claim_some(queue, 5, suspects=False)

    clock.pass_time(10.05)
    assert len(queue.places()["delayed"]) == 50
    clock.pass_time(1)
    assert queue.promote_due() == 10
    assert len(queue.places()["pending"]) == 10  # as releases without this feature see them


@pytest.mark.parametrize("move", ["cancel", "reschedule", "run_now", "purge"])
def test_a_suspect_that_was_moved_since_it_was_passed_over_is_not_called(queue: Handle, move: str):
    bad = suspect(queue)
    claim_some(queue, 5, suspects=False)

    if move == "purge":
        queue.purge()
    elif move == "reschedule":
        assert queue.reschedule(bad, delay=3600)
    else:
        assert getattr(queue, move)(bad)
    found = [job.id for job in claim_some(queue, 5).jobs]

    assert found == ([bad] if move == "run_now" else [])
    assert queue.redis.pttl(queue.keys.suspects) != -1
    queue.enqueue("later", delay=60)
    claim_some(queue, 5)
    assert queue.redis.zcard(queue.keys.suspects) == 0


def test_a_suspect_does_not_block_the_jobs_behind_it(queue: Handle):
    for _ in range(50):
        suspect(queue)
    good = queue.enqueue("good")

    looks = [claim_some(queue, 1, suspects=False).jobs for _ in range(3)]

    assert [job.id for jobs in looks for job in jobs] == [good]


# -- timeouts


@pytest.mark.parametrize("timeout_ms", [-1, 1.5, True, None, "1", 86_400_001], ids=repr)
def test_a_timeout_that_makes_no_sense_is_refused(queue: Handle, timeout_ms: object):
    with pytest.raises(UsageError, match="timeout_ms"):
        queue.claim(timeout_ms)


def test_a_claim_that_has_no_room_for_a_gates_next_payload_wakes_another_worker(queue: Handle):
    queue.gate("api", concurrency=9)
    *first, last = (queue.enqueue("x" * 250_000, gate="api") for _ in range(5))  # a claim takes at most a megabyte
    queue.redis.delete(queue.keys.wake)

    found = claim_some(queue, 9)

    assert [job.id for job in found.jobs] == first
    assert found.has_more
    assert "wake" in queue.state().keys
    assert [job.id for job in claim_some(queue, 9).jobs] == [last]


def test_jobs_whose_lanes_were_lost_run_in_their_order(queue: Handle):
    queue.gate("api", key_concurrency=1)
    ids = {key: [queue.enqueue(n, gate="api", key=key) for n in range(3)] for key in "ab"}
    queue.redis.delete(queue.keys.lanes)
    ids["a"].append(queue.enqueue("new", gate="api", key="a"))

    started: dict[str, list[str]] = {"a": [], "b": []}
    for _ in range(5):
        queue.promote_due()
        for job in claim_some(queue, 5).jobs:
            started[job.key].append(job.id)
            queue.complete(job)

    assert started == ids


def test_a_gate_that_opens_during_a_claim_comes_behind_what_the_claim_has_served(queue: Handle):
    queue.gate("old", concurrency=9)
    for number in range(5):
        queue.enqueue(number, gate="old")
    stray = queue.enqueue("another program's")
    queue.redis.hset(queue.keys.job(stray), mapping={"gate": "new"})

    claimed = claim_some(queue, 5).jobs

    served = int(queue.redis.hget(queue.keys.gate_turns, "").split()[0])
    assert stray not in {job.id for job in claimed}
    assert served > 0
    assert queue.redis.zscore(queue.keys.open_gates, "new") >= served
