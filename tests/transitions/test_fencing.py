"""Only the holder of a job can move it. A caller that has lost it gets False, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from schedq import ClaimedJob, Discard
from schedq.model.records import Settlement
from schedq.transitions import claim, renew
from scripts.tools.settling import settle_all
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import one_door

Act = Callable[[Handle, ClaimedJob], bool]

ACTS: dict[str, Act] = {
    "complete": lambda queue, job: queue.complete(job, "late"),
    "retry": lambda queue, job: queue.fail(job, "late"),
    "fail": lambda queue, job: queue.fail(job, Discard("late")),
    "snooze": lambda queue, job: queue.snooze(job, 60),
    "release": lambda queue, job: queue.release(job),
    "renew": lambda queue, job: queue.renew(job),
}
ENDS = [name for name in ACTS if name != "renew"]


@pytest.fixture(params=ACTS)
def act(request: pytest.FixtureRequest) -> Act:
    return ACTS[request.param]


REFUSED: tuple[bool, dict[str, object]] = (False, {})


def tried(queue: Handle, act: Act, job: ClaimedJob) -> tuple[bool, dict[str, object]]:
    """What the action returns, and the keys that it changes, each with what it then holds."""
    before = queue.dump()
    answer, after = act(queue, job), queue.dump()
    return answer, {key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def test_the_holder_of_the_job_may_move_it(queue: Handle, act: Act):
    queue.enqueue(1)

    assert act(queue, queue.claim(0)) is True


@pytest.mark.parametrize("token", ["", "0123456789abcdef.1", "x" * 1000, "\x00", "a b"], ids=lambda token: token[:8])
def test_a_made_up_token_is_refused(queue: Handle, act: Act, token: str):
    queue.enqueue(1)
    job = queue.claim(0)

    assert tried(queue, act, replace(job, claim_token=token)) == REFUSED

    assert queue.complete(job)


def test_the_token_of_another_job_is_refused(queue: Handle, act: Act):
    queue.enqueue_many([1, 2])
    mine, other = queue.claim(0), queue.claim(0)

    assert tried(queue, act, replace(other, claim_token=mine.claim_token)) == REFUSED


def test_a_token_whose_lease_was_lost_to_another_claim_is_refused(make_queue: MakeQueue, clock: Clock, act: Act):
    queue = make_queue(clock=clock)
    queue.enqueue(1)
    old = queue.claim(0)
    clock.pass_time(11)
    queue.reclaim_stuck()
    assert tried(queue, act, old) == REFUSED

    new = queue.claim(0)

    assert tried(queue, act, old) == REFUSED
    assert queue.complete(new)
    assert tried(queue, act, old) == REFUSED


@pytest.mark.parametrize("word", ["", "pending job has no token"])
def test_every_token_is_refused_before_a_claim(queue: Handle, act: Act, word: str):
    """An empty token must not pass for the token that a waiting job does not have."""
    job_id = queue.enqueue(1)

    assert tried(queue, act, ClaimedJob(job_id, 1, 1, word)) == REFUSED


def test_every_token_is_refused_when_nothing_is_stored_about_the_job(queue: Handle, act: Act):
    assert tried(queue, act, ClaimedJob("gone", 1, 1, "0123456789abcdef.1")) == REFUSED

    assert queue.places() == {}


@pytest.mark.breaks("layout", "places", because="the string at a job's key is another program's")
def test_every_token_is_refused_when_the_jobs_key_is_not_a_hash(queue: Handle, act: Act):
    queue.redis.set(queue.keys.job("odd"), "what is this")

    assert tried(queue, act, ClaimedJob("odd", 1, 1, "0123456789abcdef.1")) == REFUSED


@pytest.mark.parametrize("end", ENDS)
def test_the_same_end_again_is_true_and_changes_nothing(make_queue: MakeQueue, clock: Clock, end: str):
    queue = make_queue(clock=clock)
    queue.enqueue(1)
    job = queue.claim(0)
    assert ACTS[end](queue, job) is True
    before = queue.dump()

    assert ACTS[end](queue, job) is True

    assert queue.dump() == before


@pytest.mark.parametrize(("first", "second"), list(permutations(ENDS, 2)))
def test_another_end_after_the_first_is_false_and_changes_nothing(queue: Handle, first: str, second: str):
    queue.enqueue(1)
    job = queue.claim(0)
    ACTS[first](queue, job)

    assert tried(queue, ACTS[second], job) == REFUSED
    assert tried(queue, ACTS["renew"], job) == REFUSED


@pytest.mark.parametrize("end", ["retry", "snooze", "release"])
def test_an_end_sent_again_after_the_next_claim_is_still_recognized(make_queue: MakeQueue, clock: Clock, end: str):
    queue = make_queue(clock=clock)
    queue.enqueue(1)
    old = queue.claim(0)
    ACTS[end](queue, old)
    clock.pass_time(600)
    new = queue.claim(0)
    before = queue.dump()

    assert ACTS[end](queue, old) is True

    assert queue.dump() == before
    assert queue.complete(new)


def test_an_ended_lease_that_was_not_taken_back_yet_is_still_held(make_queue: MakeQueue, clock: Clock, act: Act):
    queue = make_queue(clock=clock)
    queue.enqueue(1)
    job = queue.claim(0)
    clock.pass_time(3600)

    assert act(queue, job) is True


def test_in_a_batch_each_job_has_its_own_result(queue: Handle):
    ids = queue.enqueue_many(range(5))
    done, mine, lost, odd, again = (queue.claim(0) for _ in ids)
    queue.complete(done)
    queue.release(again)
    queue.redis.delete(queue.keys.job(odd.id))
    queue.redis.set(queue.keys.job(odd.id), "what is this")

    answers = queue._drive(
        settle_all(
            queue.settings,
            [
                Settlement("complete", done.id, done.claim_token, text="1"),
                Settlement("complete", odd.id, odd.claim_token, text="1"),
                Settlement("complete", lost.id, "not mine", text="1"),
                Settlement("release", again.id, again.claim_token),
                Settlement("complete", mine.id, mine.claim_token, text="1"),
                Settlement("complete", "never was", "x", text="1"),
            ],
        )
    )

    assert answers == ["DUPLICATE", "LOST", "LOST", "DUPLICATE", "OK", "LOST"]
    queue.redis.delete(queue.keys.job(odd.id))
    assert queue.places() == {"pending": [again.id], "processing": [lost.id, odd.id], "completed": [done.id, mine.id]}
    queue.redis.zadd(queue.keys.leases, {odd.id: 1})
    queue.reclaim_stuck()
    assert queue.state().ids("broken") == [odd.id]


@one_door
def test_a_batch_in_a_long_list_is_settled_in_small_steps(queue: Handle):
    ids = queue.enqueue_many(range(3000))
    jobs = [job for _ in range(3) for job in queue._ask(claim.claim(queue.settings, "0123456789abcdef", 1000)).jobs]

    with queue.server.requests() as sent:
        answers = queue._drive(
            settle_all(
                queue.settings, [Settlement("complete", job.id, job.claim_token, text="1") for job in jobs[:900]]
            )
        )

    assert answers == ["OK"] * 900
    assert len(sent) > 3
    assert sorted(queue.state().ids("completed")) == ids[:900]
    assert queue.state().ids("processing") == ids[900:]


# -- renew


def test_a_renewed_lease_starts_again(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, visibility_ms=10_000)
    queue.enqueue(1)
    job = queue.claim(0)
    started = clock.now_ms

    for _ in range(5):
        clock.pass_time(9)
        assert queue.renew(job)
        assert queue.reclaim_stuck() == []

    fields = queue.fields(job.id)
    assert queue.state().holds("leases", "zset") == {job.id: str(clock.now_ms + 10_000)}
    assert (fields["started_at_ms"], fields["claimed_at_ms"]) == (str(started), str(clock.now_ms))
    assert fields["attempts"] == "1"


def test_a_renewal_says_that_the_job_was_asked_to_stop(queue: Handle):
    queue.enqueue_many(range(3))
    mine, stopped, lost = (queue.claim(0) for _ in range(3))
    queue.cancel(stopped.id)
    queue.release(lost)

    answers = queue._ask(renew.renew(queue.settings, [(job.id, job.claim_token) for job in (mine, stopped, lost)]))

    assert answers == ["OK", "STOP", "LOST"]
    assert queue.renew(stopped) is True


def test_a_renewal_of_a_thousand_is_one_request(queue: Handle):
    queue.enqueue_many(range(1000))
    jobs = queue._ask(claim.claim(queue.settings, "0123456789abcdef", 1000)).jobs
    queue.renew(jobs[0])

    with queue.server.requests() as sent:
        answers = queue._ask(renew.renew(queue.settings, [(job.id, job.claim_token) for job in jobs]))

    assert (answers, len(sent)) == (["OK"] * 1000, 1)
