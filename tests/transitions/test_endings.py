"""How an attempt ends (complete, fail, snooze, release), and what is stored about it."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Exponential, Fixed, Linear, Steps
from schedq.model import outcome
from scripts.tools.settling import settle_all
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import held

# -- complete


@pytest.mark.parametrize("result", [None, {"sent": True}, [1, 2], "text", 0, False, "", 1e9])
def test_a_completed_job_keeps_its_result(make_queue: MakeQueue, clock: Clock, result: object):
    queue = make_queue(clock=clock)
    job = held(queue)
    clock.pass_time(3)

    assert queue.complete(job, result) is True

    record = queue.get_job(job.id)
    assert queue.places() == {"completed": [job.id]}
    assert (record.result, record.result_error, record.completed_at_ms) == (result, "", clock.now_ms)
    assert queue.state().totals() == {"enqueued_total": 1, "completed_total": 1}


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (object, "<class 'object'>"),
        (float("nan"), "nan"),
        (Rude(), "<Rude, whose repr raised RuntimeError>"),
        ("\ud800", "'\\ud800'"),
    ],
    ids=["type", "nan", "rude", "surrogate"],
)
def test_a_result_that_cannot_be_stored_does_not_undo_the_work(queue: Handle, result: object, shown: str):
    job = held(queue)

    assert queue.complete(job, result) is True

    record = queue.get_job(job.id)
    assert (record.status, record.result) == ("completed", shown)
    assert record.result_error


def test_a_result_that_is_too_large_does_not_undo_the_work(make_queue: MakeQueue):
    queue = make_queue(max_payload=100)
    job = held(queue)

    assert queue.complete(job, "x" * 1000) is True

    assert queue.get_job(job.id).result.startswith("'xxx")
    assert "max_payload" in queue.get_job(job.id).result_error


# -- fail


def test_a_failed_attempt_is_retried_after_its_backoff_and_not_before(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, backoff=Fixed(30))
    job = held(queue)

    assert queue.fail(job, "smtp timeout") is True

    assert queue.places() == {"delayed": [job.id]}
    record = queue.get_job(job.id)
    assert (record.last_error, record.last_error_at_ms) == ("smtp timeout", clock.now_ms)
    assert record.run_at_ms == clock.now_ms + 30_000
    clock.pass_time(29.999)
    assert queue.claim(0) is None
    clock.pass_time(0.001)
    assert queue.claim(0).attempts == 2


def test_after_the_last_attempt_it_has_failed_and_keeps_payload_and_error(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=3, backoff=Fixed(0))
    job_id = queue.enqueue({"to": "ada"})

    for attempt in (1, 2, 3):
        assert queue.fail(queue.claim(0), f"error {attempt}")

    record = queue.get_job(job_id)
    assert queue.places() == {"failed": [job_id]}
    assert (record.payload, record.last_error, record.attempts) == ({"to": "ada"}, "error 3", 3)
    assert queue.state().totals() == {
        "enqueued_total": 1,
        "promoted_total": 2,
        "retried_total": 2,
        "failed_total": 1,
    }


def test_a_jobs_own_limit_of_attempts_comes_before_the_queues(make_queue: MakeQueue):
    queue = make_queue(max_attempts=5)
    job = held(queue, max_attempts=1)

    queue.fail(job)

    assert queue.places() == {"failed": [job.id]}


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (Exponential(base=2, factor=3, cap=20), [2, 6, 18, 20, 20]),
        (Linear(base=1, step=2, cap=6), [1, 3, 5, 6, 6]),
        (Fixed(0.25), [0.25, 0.25, 0.25]),
        (Steps([1, 10, 100]), [1, 10, 100, 100]),
        (Exponential(base=1e9, factor=1e9, cap=86_400 * 365 * 100), [1e9, 86_400 * 365 * 100, 86_400 * 365 * 100]),
    ],
    ids=repr,
)
def test_waits_grow_as_the_plan_says(make_queue: MakeQueue, clock: Clock, backoff: Any, waits: list[float]):
    queue = make_queue(clock=clock, max_attempts=99)
    job_id = queue.enqueue(1, backoff=backoff)

    for wait in waits:
        queue.fail(queue.claim(0))
        due_ms = queue.get_job(job_id).run_at_ms
        assert due_ms == clock.now_ms + round(wait * 1000)
        clock.now = due_ms / 1000


def test_jitter_only_takes_away_and_never_more_than_its_share(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, backoff=Exponential(base=10, cap=10, jitter=0.5))
    queue.enqueue_many(range(200))

    while job := queue.claim(0):
        queue.fail(job)
    waits = [record.run_at_ms - clock.now_ms for record in queue.list_delayed(limit=200)]

    assert min(waits) >= 5_000
    assert max(waits) <= 10_000
    assert len(set(waits)) > 100


def test_a_wait_past_the_last_instant_ends_there(make_queue: MakeQueue):
    clock = Clock(253_402_300_000.0)
    queue = make_queue(clock=clock, backoff=Fixed(86_400))
    job = held(queue)

    queue.fail(job)

    assert queue.get_job(job.id).run_at_ms == 253_402_300_799_999


# -- release


def test_a_released_job_is_next_in_line_and_keeps_its_attempts(queue: Handle):
    first, second = queue.enqueue_many([1, 2])
    job = queue.claim(0)

    assert queue.release(job) is True

    assert queue.places() == {"pending": [first, second]}
    assert queue.fields(first)["attempts"] == "0"
    assert queue.state().holds("wake", "zset")


def test_jobs_released_together_keep_their_order(queue: Handle):
    ids = queue.enqueue_many(range(6))
    jobs = [queue.claim(0) for _ in range(5)]

    answers = queue._drive(settle_all(queue.settings, [outcome.released(jobs[n]) for n in (3, 0, 4)]))

    assert answers == ["OK"] * 3
    assert queue.state().ids("pending") == [ids[0], ids[3], ids[4], ids[5]]


def test_only_the_first_five_releases_cost_nothing(queue: Handle):
    job_id = queue.enqueue(1)

    counted = []
    for _ in range(8):
        job = queue.claim(0)
        counted.append(job.attempts)
        queue.release(job)

    assert counted == [1, 1, 1, 1, 1, 1, 2, 3]
    assert queue.places() == {"pending": [job_id]}


# -- a job that was asked to stop


@pytest.mark.parametrize("end", ["fail", "last fail", "release", "snooze", "complete"])
def test_a_job_asked_to_stop_ends_in_cancelled_unless_it_completes(queue: Handle, end: str):
    job = held(queue, max_attempts=1 if end == "last fail" else 5)
    assert queue.cancel(job.id) == "asked"

    if end == "snooze":
        queue.snooze(job, 5)
    else:
        getattr(queue, end.split()[-1])(job)

    wanted = "completed" if end == "complete" else "cancelled"
    assert queue.places() == {wanted: [job.id]}
    assert "stop" not in queue.fields(job.id)
