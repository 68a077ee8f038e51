"""A suspended run is woken by the first of its waits that is over, before or after, and holds nothing meanwhile."""

from __future__ import annotations

import pytest

from schedq import ClaimedJob, Discard
from schedq.model import outcome
from schedq.model.runs import Memo, Run, RunWait
from schedq.model.times import LAST_INSTANT_MS
from schedq.transitions import requeue, run
from scripts.tools.settling import settle_all
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.run_scenes import HOUR, PAID, begun, message, running, step, suspend, taken, waits_until


@pytest.fixture
def timed(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=3)


# -- suspend


def test_a_suspended_run_waits_for_the_first_of_its_instants_and_costs_no_attempt(timed: Handle, clock: Clock):
    job = running(timed)
    waits = [RunWait("sleep", "1.1/sleep", clock.now_ms + 2 * HOUR), RunWait("sleep", "1.2/sleep", clock.now_ms + HOUR)]

    assert suspend(timed, job, *waits) == "OK"

    fields = timed.fields(job.id)
    assert timed.places() == {"delayed": [job.id]}
    assert int(timed.state().holds("delayed", "zset")[job.id]) == clock.now_ms + HOUR
    assert (fields["attempts"], fields["run"]) == ("0", job.run)
    assert RunWait.read(fields["waits"]) == tuple(waits)
    clock.pass_time(3599.999)
    assert timed.claim(0) is None
    clock.pass_time(0.001)
    woken = timed.claim(0)
    assert (woken.id, woken.attempts, woken.run) == (job.id, 1, job.run)
    assert "waits" not in timed.fields(job.id)


def test_a_run_without_instants_rests_at_the_last_instant(timed: Handle, clock: Clock):
    job = running(timed)

    suspend(timed, job, PAID)

    assert timed.get_job(job.id).run_at_ms == LAST_INSTANT_MS
    clock.pass_time(10_000_000)
    assert timed.claim(0) is None


@pytest.mark.parametrize("waits", [(), (RunWait("sleep", "sleep", 1),)], ids=["no waits", "an instant that has passed"])
def test_a_run_that_need_not_wait_is_next_in_line(queue: Handle, waits: tuple[RunWait, ...]):
    job = running(queue)
    other = queue.enqueue("other")

    assert suspend(queue, job, *waits) == "OK"

    assert queue.places() == {"pending": [job.id, other]}
    assert queue.claim(0).attempts == 1


def test_a_message_that_came_before_the_suspension_wakes_the_run(queue: Handle):
    job = running(queue)
    assert waits_until(queue, job) is None
    assert message(queue, job.id)

    suspend(queue, job, PAID)

    assert queue.places() == {"pending": [job.id]}
    assert taken(queue, queue.claim(0)).value == 7


def test_a_message_that_comes_after_the_suspension_wakes_the_run(queue: Handle):
    job = running(queue)
    suspend(queue, job, PAID)

    assert message(queue, job.id)

    assert queue.places() == {"pending": [job.id]}
    assert queue.state().holds("wake", "zset")
    assert taken(queue, queue.claim(0)).value == 7


@pytest.mark.parametrize("act", ["send", "run now"])
def test_a_move_that_an_error_cut_short_is_made_by_the_next_request(queue: Handle, act: str):
    job = running(queue)
    suspend(queue, job, PAID)
    queue.redis.zrem(queue.keys.delayed, job.id)
    queue.redis.zadd(queue.keys.leases, {job.id: 0})

    assert message(queue, job.id) if act == "send" else queue.run_now(job.id)

    assert queue.places() == {"pending": [job.id]}


def test_a_message_for_another_topic_is_kept_and_wakes_nothing(queue: Handle):
    job = running(queue)
    suspend(queue, job, PAID)

    assert message(queue, job.id, "cancelled")

    assert queue.places() == {"delayed": [job.id]}
    assert "inbox:cancelled" in queue.fields(job.id)


def test_a_suspension_is_done_once(queue: Handle):
    job = running(queue)
    assert suspend(queue, job, PAID) == "OK"
    before = queue.dump()

    assert suspend(queue, job, PAID) == "DUPLICATE"
    assert queue.dump() == before


def test_a_run_that_is_woken_for_nothing_finds_everything_as_it_was(timed: Handle, clock: Clock):
    job = running(timed)
    until = waits_until(timed, job, HOUR)
    suspend(timed, job, RunWait("receive", "receive", until, "paid"))
    before = timed.fields(job.id)
    clock.pass_time(60)

    assert timed.run_now(job.id)
    job = timed.claim(0)
    assert waits_until(timed, job, HOUR) == until
    suspend(timed, job, RunWait("receive", "receive", until, "paid"))

    after = timed.fields(job.id)
    changing = {"promoted_at_ms", "request", "settled_token", "claimed_at_ms", "started_at_ms"}
    assert {name: after[name] for name in after.keys() - changing} == {
        name: before[name] for name in before.keys() - changing
    }


def test_an_attempt_that_lost_its_lease_suspends_nothing(timed: Handle, clock: Clock):
    late = running(timed)
    clock.pass_time(100)
    timed.reclaim_stuck()
    before = timed.dump()

    assert suspend(timed, late, PAID) == "LOST"

    assert timed.dump() == before


def test_a_run_that_was_asked_to_stop_is_cancelled_instead(queue: Handle):
    job = running(queue)
    queue.cancel(job.id)

    suspend(queue, job, PAID)

    assert queue.places() == {"cancelled": [job.id]}


def test_a_month_of_suspensions_leaves_the_history_to_failed_attempts(queue: Handle):
    job = running(queue)
    queue.fail(job, "a hiccup")
    queue.run_now(job.id)
    for _ in range(20):
        suspend(queue, queue.claim(0))

    assert [line["error"] for line in queue.get_job(job.id).history] == ["a hiccup"]


# -- the deadline


def test_a_suspended_run_is_due_at_its_deadline_at_the_latest(timed: Handle, clock: Clock):
    job = running(timed, timeout_ms=HOUR)
    suspend(timed, job, PAID)
    clock.pass_time(3600)

    job = timed.claim(0)

    policy = outcome.Policy.of(timed.settings, job)
    end = outcome.past_deadline(job, policy)
    assert end is not None
    timed._drive(settle_all(timed.settings, [end]))
    assert timed.places() == {"failed": [job.id]}
    assert timed.get_job(job.id).last_error == "the run took longer than its run_timeout"


def test_a_run_that_waits_for_its_next_attempt_is_due_at_its_deadline_at_the_latest(timed: Handle, clock: Clock):
    job = running(timed, timeout_ms=HOUR)
    timed._ask(run.step(timed.settings, job, "charge", '["step","ok",1,1,2,1]'))
    suspend(timed, job)
    job = timed.claim(0)
    timed.snooze(job, 86_400)

    assert timed.get_job(job.id).run_at_ms == job.claimed_at_ms + HOUR


def test_a_run_in_time_has_no_deadline_to_end_it(timed: Handle):
    job = running(timed, timeout_ms=HOUR)

    assert outcome.past_deadline(job, outcome.Policy.of(timed.settings, job)) is None


# -- operators


def test_a_suspended_run_is_cancelled_at_once_and_goes_on_when_it_is_requeued(timed: Handle, clock: Clock):
    job = running(timed, timeout_ms=HOUR)
    timed._ask(run.step(timed.settings, job, "charge", '["step","ok",1,1,2,1]'))
    suspend(timed, job, PAID)

    assert timed.cancel(job.id) == "cancelled"
    clock.pass_time(86_400)
    assert timed.requeue(job.id)

    fields = timed.fields(job.id)
    assert timed.places() == {"pending": [job.id]}
    assert "waits" not in fields
    assert "step:charge" in fields
    assert Run.read(fields["run"]).deadline_ms == clock.now_ms + HOUR


def test_a_suspended_run_has_no_other_due_time_than_its_own(queue: Handle):
    job = running(queue)
    suspend(queue, job, PAID)
    before = queue.dump()

    assert not queue.reschedule(job.id, delay=60)
    assert queue.dump() == before
    assert queue.run_now(job.id)
    assert queue.places() == {"pending": [job.id]}


def test_a_message_to_a_paused_queue_is_accepted_and_the_run_goes_on_when_it_is_resumed(queue: Handle):
    job = running(queue)
    suspend(queue, job, PAID)
    queue.pause()

    assert message(queue, job.id)

    assert queue.claim(0) is None
    assert not queue.state().holds("wake", "zset")
    queue.resume()
    assert queue.claim(0).id == job.id


def test_a_retry_is_not_hastened_by_a_message_that_an_earlier_attempt_waited_for(queue: Handle):
    job = running(queue)
    suspend(queue, job, PAID)
    message(queue, job.id)
    queue.fail(queue.claim(0), "a hiccup")

    message(queue, job.id)

    assert queue.places() == {"delayed": [job.id]}


@pytest.mark.parametrize("damage", ["", "no JSON", "[1]", '[["receive"]]', "{}"])
def test_waits_that_another_program_damaged_stop_no_message(queue: Handle, damage: str):
    job = running(queue)
    suspend(queue, job, PAID)
    queue.redis.hset(queue.keys.job(job.id), "waits", damage)

    assert message(queue, job.id)

    assert "inbox:paid" in queue.fields(job.id)


# -- requeue


def memos(queue: Handle, job: ClaimedJob, *names: str) -> None:
    """Record operations in this order; those with a ! have failed."""
    for name in names:
        word = "error" if name.endswith("!") else "ok"
        queue._ask(run.step(queue.settings, job, name.rstrip("!"), step(None, word)))


@pytest.mark.parametrize(
    ("done", "kept"),
    [
        (["a", "b!"], ["a"]),
        (["a", "b!", "c"], ["a", "b!", "c"]),
        (["a", "1.1/x", "1.2/y!", "1.1/z"], ["a", "1.1/x", "1.1/z"]),
        (["1.1/x!", "1.2/y!"], []),
        (["1.1/x!", "1.2/y", "b"], ["1.1/x!", "1.2/y", "b"]),
        (["1.1/x!", "2.1/y!"], ["1.1/x!"]),
        (["1.1/1.1/x!", "1.1/1.2/y", "1.2/z"], ["1.1/1.2/y", "1.2/z"]),
        (["1.1/1.1/x!", "1.1/y", "1.2/z!"], ["1.1/1.1/x!", "1.1/y"]),
        (["a!", "1.1/x", "1.2/y!"], ["a!", "1.1/x"]),
        (["1.paid/x!", "1.late/y"], ["1.late/y"]),
    ],
)
def test_a_requeued_run_forgets_the_failure_that_ended_it_and_no_other(queue: Handle, done: list[str], kept: list[str]):
    job = running(queue)
    memos(queue, job, *done)
    queue._ask(run.failed_try(queue.settings, job, "later", 1, 1000, "no"))
    queue.fail(job, Discard())

    assert queue.requeue(job.id)

    fields = queue.fields(job.id)
    assert sorted(name for name in fields if ":" in name) == sorted(f"step:{name.rstrip('!')}" for name in kept)
    assert Run.read(fields["run"]).steps == len(kept)
    assert f"errors={sum(name.endswith('!') for name in kept)}" in fields["run"] or "errors" not in fields["run"]


# -- completed


def test_large_memos_of_a_completed_run_lose_their_values_and_keep_the_rest(queue: Handle):
    job = running(queue)
    large, small = "x" * 1100 + '",1,2,3,4,"y"]', "small"
    queue._ask(run.step(queue.settings, job, "large", step(large)))
    queue._ask(run.step(queue.settings, job, "small", step(small)))
    message(queue, job.id, value=large)
    at = taken(queue, job).ended_ms

    queue.complete(job)

    fields = queue.fields(job.id)
    assert Memo.read(fields["step:large"]) == Memo("step", "ok", None, 10, 20, 1, 1)
    assert Memo.read(fields["step:small"]) == Memo("step", "ok", small, 10, 20, 1, 2)
    found = Memo.read(fields["step:receive"])
    assert found is not None
    assert (found.value, found.ended_ms) == (None, at)


def test_a_failed_run_keeps_everything(queue: Handle):
    job = running(queue)
    large = step("x" * 5000)
    queue._ask(run.step(queue.settings, job, "large", large))

    queue.fail(job, Discard())

    assert Memo.read(queue.fields(job.id)["step:large"]) == Memo("step", "ok", "x" * 5000, 10, 20, 1, 1)


def test_many_long_records_are_shortened_in_several_calls(make_queue: MakeQueue):
    queue = make_queue(max_payload=300_000)
    queue.enqueue_many(range(5))
    jobs = [queue.claim(0) for _ in range(5)]
    for job in jobs:
        begun(job)
        queue._ask(run.step(queue.settings, job, "large", step("x" * 200_000)))

    policy = outcome.Policy.of(queue.settings, jobs[0])
    words = queue._drive(settle_all(queue.settings, [outcome.succeeded(job, 1, policy) for job in jobs]))

    assert words == ["OK"] * 5
    assert all(len(queue.fields(job.id)["step:large"]) < 100 for job in jobs)


def test_requests_of_operators_are_recognized(queue: Handle):
    job = running(queue)
    memos(queue, job, "a", "b!")
    queue.fail(job, Discard())
    (request,) = next(requeue.requeue(queue.settings, job.id))  # type: ignore[misc] # it waits for nothing
    first = queue._ask(request)
    before = queue.dump()

    assert queue._ask(request) == first
    assert queue.dump() == before
