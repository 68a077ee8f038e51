"""A run with steps to undo goes back to undo them, whichever script would have ended it."""

from __future__ import annotations

import pytest

from schedq import ClaimedJob, Discard, Fixed
from schedq.inspect.export import exported
from schedq.model import outcome
from schedq.model.outcome import Policy
from schedq.model.runs import UNDOING, Memo, Run, undo_name
from schedq.transitions import requeue, run
from scripts.tools.settling import settle_all
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.run_scenes import HOUR, PAID, running, step, suspend

CALL = '[{"task":"refund"},null,null,null]'


@pytest.fixture
def timed(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=3)


def with_undos(queue: Handle, *names: str, job: ClaimedJob | None = None) -> ClaimedJob:
    """A run whose steps of these names are done, and can be undone."""
    job = job or running(queue, timeout_ms=HOUR)
    for name in names or ("charge",):
        job.run = queue._ask(run.add_undo(queue.settings, job, name, CALL)).rest[0]
        queue._ask(run.step(queue.settings, job, name, step("done")))
    return job


def settle(queue: Handle, job: ClaimedJob, error: BaseException | str) -> str:
    policy = Policy(3, Fixed(0), 1000)
    (word,) = queue._drive(settle_all(queue.settings, [outcome.failed(job, error, policy)]))
    found: str = word
    return found


def undo(queue: Handle, job: ClaimedJob, name: str = "charge", word: str = "ok") -> None:
    """Record that an attempt has undone a step, or could not."""
    queue._ask(run.step(queue.settings, job, undo_name(name), step(None, word).replace('"step"', '"undo"')))


def run_of(queue: Handle, job_id: str) -> Run:
    return Run.read(queue.fields(job_id)["run"])


def test_a_failure_goes_back_first_and_ends_when_all_is_undone(timed: Handle):
    job = with_undos(timed)
    assert settle(timed, job, Discard("no")) == "OK"
    assert settle(timed, job, Discard("no")) == "DUPLICATE"

    assert timed.places() == {"pending": [job.id]}
    assert (run_of(timed, job.id).undoing, run_of(timed, job.id).deadline_ms) == (1, None)
    assert timed.fields(job.id)[UNDOING] == "no"
    again = timed.claim(0)
    undo(timed, again)
    again.run = timed.fields(job.id)["run"]
    assert settle(timed, again, Discard("no")) == "OK"
    assert timed.places() == {"failed": [job.id]}
    assert timed.fields(job.id)["last_error"] == "no"


def test_a_stop_goes_back_first_and_then_cancels(timed: Handle):
    job = with_undos(timed)
    assert timed.cancel(job.id) == "asked"
    assert settle(timed, job, "stopped on request") == "OK"

    assert timed.places() == {"pending": [job.id]}
    again = timed.claim(0)
    assert timed.cancel(job.id) == "asked"
    assert "stop" not in timed.fields(job.id)
    undo(timed, again)
    again.run = timed.fields(job.id)["run"]
    settle(timed, again, Discard("stopped on request"))
    assert timed.places() == {"cancelled": [job.id]}
    assert timed.stats().cancelled_total == 1


def test_a_stop_by_an_older_release_does_not_end_the_undoing(timed: Handle):
    job = with_undos(timed)
    settle(timed, job, Discard("no"))
    again = timed.claim(0)
    timed.redis.hset(timed.keys.job(job.id), "stop", 1)

    assert settle(timed, again, "stopped on request") == "OK"

    assert timed.places() == {"pending": [job.id]}
    assert run_of(timed, job.id).undos == 1


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_run_whose_workers_died_too_often_undoes_its_steps(timed: Handle, clock: Clock, is_stopped: bool):
    job = with_undos(timed)
    for _ in range(2 if is_stopped else 3):
        clock.pass_time(700)
        timed.reclaim_stuck()
        clock.pass_time(700)
        timed.promote_due()
        job = timed.claim(0)
        if is_stopped:
            timed.cancel(job.id)
    if is_stopped:
        assert run_of(timed, job.id).undoing == 2
    else:
        assert run_of(timed, job.id).undoing == 1
        assert timed.fields(job.id)[UNDOING] == "lease expired 3 times"
    assert (job.attempts, job.crashes) == (1, 0)


def test_a_worker_that_dies_again_and_again_while_it_undoes_leaves_what_is_left(timed: Handle, clock: Clock):
    job = with_undos(timed)
    settle(timed, job, Discard("no"))
    for _ in range(3):
        clock.pass_time(700)
        timed.promote_due()
        timed.claim(0)
        clock.pass_time(700)
        timed.reclaim_stuck()

    assert timed.places() == {"failed": [job.id]}
    assert run_of(timed, job.id).left
    assert timed.requeue(job.id)
    assert run_of(timed, job.id).undoing == 1
    assert not run_of(timed, job.id).left


def ended_by_an_older_cancel(queue: Handle, job: ClaimedJob) -> None:
    suspend(queue, job, PAID)
    queue.redis.zrem(queue.keys.delayed, job.id)
    queue.redis.hset(queue.keys.job(job.id), mapping={"status": "cancelled", "cancelled_at_ms": 1})
    queue.redis.lpush(queue.keys.cancelled, job.id)


@pytest.mark.breaks("totals", because="the older cancel is made by hand")
def test_what_an_older_release_has_cancelled_is_found_and_undone(timed: Handle, clock: Clock):
    job = with_undos(timed)
    ended_by_an_older_cancel(timed, job)
    clock.pass_time(31)

    timed.reclaim_stuck()

    assert timed.places() == {"pending": [job.id]}
    again = timed.claim(0)
    undo(timed, again)
    again.run = timed.fields(job.id)["run"]
    settle(timed, again, Discard("x"))
    assert timed.places() == {"failed": [job.id]}


@pytest.mark.parametrize(("text", "is_undone"), [("StepFailed: step charge: no", True), ("NameError: x", False)])
def test_what_an_older_worker_has_failed_is_undone_unless_it_may_be_a_mistake(
    timed: Handle, clock: Clock, text: str, is_undone: bool
):
    job = with_undos(timed)
    job.run = ""
    settle(timed, job, Discard(text))
    stored = timed.keys.job(job.id)
    timed.redis.hset(stored, "run", timed.fields(job.id)["run"].replace(" left=1", ""))
    clock.pass_time(31)

    timed.reclaim_stuck()

    assert timed.places() == ({"pending": [job.id]} if is_undone else {"failed": [job.id]})
    assert run_of(timed, job.id).left is not is_undone


def test_the_list_of_runs_with_undos_forgets_those_that_need_no_look(timed: Handle, clock: Clock):
    done, gone = with_undos(timed), with_undos(timed)
    timed.complete(done)
    settle(timed, gone, NameError("x"))
    settle(timed, gone, NameError("x"))
    for _ in range(2):
        settle(timed, timed.claim(0), NameError("x"))
        timed.promote_due()
    clock.pass_time(31)
    assert set(timed.state().holds("undos", "zset")) == {gone.id}, "one that has completed leaves at once"
    assert run_of(timed, done.id).undos == 0
    timed.inspector.act("delete", [gone.id])

    timed.reclaim_stuck()

    assert timed.state().holds("undos", "zset") == {}
    assert timed.stats()["undos_dropped_total"] == 1


def test_what_was_kept_is_not_open_and_an_undo_always_has_room(timed: Handle):
    job = with_undos(timed, "a", "b")
    timed._ask(run.step(timed.settings, job, "keep", '["keep","ok",null,1,2,1]'))
    assert run_of(timed, job.id).undos == 0
    job.run = timed.fields(job.id)["run"]
    job = with_undos(timed, "c", job=job)

    settle(timed, job, Discard("no"))

    assert run_of(timed, job.id).undos == 1
    again = timed.claim(0)
    timed.redis.hset(timed.keys.job(job.id), "run", timed.fields(job.id)["run"].replace("steps=4", "steps=500"))
    undo(timed, again, "c")
    assert run_of(timed, job.id).undos == 0
    timed.redis.hset(timed.keys.job(job.id), "run", timed.fields(job.id)["run"].replace("steps=501", "steps=5"))


def test_a_run_that_is_imported_is_listed_with_its_undos(make_queue: MakeQueue, clock: Clock):
    old, new = make_queue(clock=clock), make_queue(clock=clock)
    job = with_undos(old)
    suspend(old, job, PAID)
    record = old.get_job(job.id)

    assert new.inspector.import_jobs([exported(record, record.status)]).stored == 1

    assert set(new.state().holds("undos", "zset")) == {job.id}
    assert new.cancel(job.id) == "asked"
    assert Memo.read(new.fields(job.id)["step:charge"]) is not None


def test_undoing_by_hand_is_for_runs_that_have_ended_with_open_undos(timed: Handle):
    job = with_undos(timed)
    assert timed._drive(requeue.undo(timed.settings, job.id)) is False
    for _ in range(3):
        settle(timed, job, NameError("x"))
        timed.promote_due()
        job = timed.claim(0) or job

    assert timed.undo(job.id) is True
    assert timed.places() == {"pending": [job.id]}
    assert timed.fields(job.id)[UNDOING] == "NameError: x"
    assert timed.undo(job.id) is False
