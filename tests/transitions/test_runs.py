"""What an attempt records of a workflow's run: each outcome once, and only by the attempt that holds the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schedq import ClaimedJob
from schedq.errors import RecordFull
from schedq.model.runs import MOST_MEMOS, Memo, RunLost, beginning
from schedq.transitions import Operation, run, send
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import held, one_door

DONE = '["step","ok","paid",1,2,1]'
FAILED = '["step","error","no money",1,2,1]'


def running(queue: Handle, **options: Any) -> ClaimedJob:
    """A run that has just begun."""
    job = held(queue, **options)
    return replace(job, run=job.run or beginning(1, job.claimed_at_ms, None))


def again(queue: Handle) -> ClaimedJob:
    """The next attempt of the only run."""
    job: ClaimedJob = queue.claim(0)
    return job


REQUESTS: dict[str, Callable[[Handle, ClaimedJob], Operation[run.Answer]]] = {
    "step": lambda queue, job: run.step(queue.settings, job, "charge", DONE),
    "race": lambda queue, job: run.step(queue.settings, job, "first", '["first","ok","a",1,2,1]', ["1.b/receive"]),
    "failed try": lambda queue, job: run.failed_try(queue.settings, job, "charge", 1, 5000, "no money"),
    "until": lambda queue, job: run.until(queue.settings, job, "sleep", "in", 5000),
    "receive": lambda queue, job: run.receive(queue.settings, job, "receive", "paid", 5000),
    "too late": lambda queue, job: run.receive(queue.settings, job, "receive", "paid", 0),
    "start over": lambda queue, job: run.start_over(queue.settings, job, 1, "[[2],{}]"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_request_again_gets_the_same_answer_and_changes_nothing(
    make_queue: MakeQueue, clock: Clock, name: str
):
    queue = make_queue(clock=clock)
    request = REQUESTS[name](queue, running(queue))
    first = queue._ask(request)
    stored = queue.dump()
    clock.pass_time(1)

    second = queue._ask(REQUESTS[name](queue, again_of(queue)))

    if name != "until":  # which tells the time
        assert second.rest == first.rest
    assert queue.dump() == stored


def again_of(queue: Handle) -> ClaimedJob:
    """The job that is running, as its worker has it."""
    (job_id,) = queue.state().ids("processing")
    fields = queue.fields(job_id)
    return ClaimedJob(job_id, None, 1, fields["claim_token"], run=fields["run"])


@pytest.mark.parametrize("name", REQUESTS)
def test_an_attempt_that_lost_its_lease_records_nothing(make_queue: MakeQueue, clock: Clock, name: str):
    queue = make_queue(clock=clock)
    late = running(queue)
    clock.pass_time(100)
    queue.reclaim_stuck()
    again(queue)
    before = queue.dump()

    with pytest.raises(RunLost):
        queue._ask(REQUESTS[name](queue, late))

    assert queue.dump() == before


@pytest.mark.parametrize("name", REQUESTS)
def test_what_was_done_is_recorded_although_the_job_was_asked_to_stop(queue: Handle, name: str):
    job = running(queue)
    queue.cancel(job.id)

    assert queue._ask(REQUESTS[name](queue, job)).is_stopped

    assert "run" in queue.fields(job.id) or name == "race"


def test_an_outcome_is_recorded_once_and_the_next_attempt_is_told_of_it(queue: Handle):
    job = running(queue)

    queue._ask(run.step(queue.settings, job, "charge", DONE))
    there = queue._ask(run.step(queue.settings, job, "charge", '["step","ok","paid twice",1,2,1]'))

    assert (there.word, Memo.read(there.rest[0])) == ("EXISTS", Memo("step", "ok", "paid", 1, 2, 1, 1))
    queue.release(job)
    assert again(queue).run.startswith("v=1 began=")
    assert Memo.read(queue._ask(run.recall(queue.settings, job))["step:charge"]) == Memo(
        "step", "ok", "paid", 1, 2, 1, 1
    )


def test_progress_resets_what_ends_a_run(make_queue: MakeQueue, clock: Clock):
    """Three workers that die in a month, and many deploys, end no run that makes progress."""
    queue = make_queue(clock=clock, max_attempts=3)
    job = running(queue)
    for number in range(6):
        queue._ask(run.step(queue.settings, job, f"step {number}", DONE))
        clock.pass_time(100)
        queue.reclaim_stuck()
        job = again(queue)
        assert (job.attempts, job.crashes) == (2, 1)

    queue._ask(run.step(queue.settings, job, "last", DONE))

    assert {"crashes", "released"}.isdisjoint(queue.fields(job.id))
    assert queue.fields(job.id)["attempts"] == "1"


def test_without_progress_lost_leases_end_a_run_and_its_record_is_kept(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=2)
    job = running(queue)
    queue._ask(run.step(queue.settings, job, "charge", DONE))
    for _ in range(2):
        clock.pass_time(100)
        queue.reclaim_stuck()
        queue.claim(0)

    assert queue.places() == {"failed": [job.id]}
    assert "step:charge" in queue.fields(job.id)


def test_failed_tries_are_counted_until_the_step_has_an_outcome(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job = running(queue)
    ask = lambda number, **options: queue._ask(  # noqa: E731 - short
        run.failed_try(queue.settings, job, "charge", number, 5000, "no money", **options)
    )

    assert ask(1).rest == ("1", str(clock.now_ms + 5000))
    clock.pass_time(5)
    assert ask(2, counts=False).rest == ("1", str(clock.now_ms + 5000))
    assert ask(3).rest == ("2", str(clock.now_ms + 5000))
    assert queue.fields(job.id)["tries:charge"] == f"2 {clock.now_ms + 5000} 3 no money"

    queue._ask(run.step(queue.settings, job, "charge", FAILED))
    assert "tries:charge" not in queue.fields(job.id)


def test_an_instant_is_fixed_by_the_first_who_asks(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job = running(queue)
    began = clock.now_ms
    first = queue._ask(run.until(queue.settings, job, "sleep", "in", 60_000))
    clock.pass_time(10)

    second = queue._ask(run.until(queue.settings, job, "sleep", "at", 1))

    assert first.rest == (str(began + 60_000), str(began))
    assert second.rest == (str(began + 60_000), str(began + 10_000))


@one_door
def test_a_record_has_room_for_500_outcomes(queue: Handle):
    job = running(queue)
    for number in range(MOST_MEMOS):
        queue._ask(run.step(queue.settings, job, f"step {number}", DONE))
    before = queue.dump()

    for request in ("step", "too late", "race"):
        with pytest.raises(RecordFull, match="500 outcomes"):
            queue._ask(REQUESTS[request](queue, job))

    assert queue.dump() == before
    assert queue._ask(run.step(queue.settings, job, "step 7", DONE)).word == "EXISTS"


@one_door
def test_what_went_wrong_has_room_in_a_record_that_is_full(queue: Handle):
    job = running(queue)
    large = f'["step","ok","{"x" * 262_100}",1,2,1]'
    for number in range(4):
        queue._ask(run.step(queue.settings, job, f"step {number}", large))

    with pytest.raises(RecordFull):
        queue._ask(run.step(queue.settings, job, "next", f'["step","ok","{"x" * 1000}",1,2,1]'))
    assert queue._ask(run.step(queue.settings, job, "next", FAILED)).word == "OK"


# -- starting over


def test_a_run_that_starts_over_has_new_arguments_and_no_memos_but_its_messages(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job = held(queue)
    job.run = beginning(3, job.claimed_at_ms, 60_000)
    queue._ask(run.step(queue.settings, job, "charge", DONE))
    queue._ask(run.until(queue.settings, job, "sleep", "in", 1000))
    queue._ask(run.failed_try(queue.settings, job, "ship", 1, 1000, "no"))
    assert queue._ask(send.send(queue.settings, job.id, "paid", 7))
    clock.pass_time(20)

    queue._ask(run.start_over(queue.settings, job, 1, "[[2],{}]"))

    fields = queue.fields(job.id)
    assert {name for name in fields if ":" in name} == {"inbox:paid", "sent:paid"}
    assert (fields["args"], fields["payload"]) == ("[[2],{}]", '"work"')
    assert fields["run"].startswith("v=3 ")
    assert f"began={clock.now_ms} timeout=60000 deadline={clock.now_ms + 60_000}" in fields["run"]


def test_starting_over_that_was_cut_short_is_finished_by_the_next_attempt(queue: Handle):
    job = running(queue)
    queue._ask(run.step(queue.settings, job, "charge", DONE))
    queue._ask(run.start_over(queue.settings, job, 1, "[[2],{}]"))
    whole = queue.fields(job.id)
    cut = whole["run"].replace("void=0", "void=1")
    queue.redis.hset(queue.keys.job(job.id), mapping={"run": cut, "step:charge": DONE, "tries:ship": "1 1 1 no"})

    queue._ask(run.start_over(queue.settings, job, 1, ""))

    assert queue.fields(job.id) == whole
