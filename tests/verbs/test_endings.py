"""How an attempt ends: complete, fail, snooze, release; and what is written of it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from schedq import ClaimedJob, Discard, Exponential, Fixed, Linear, Retry, Snooze, Steps, UsageError, outcome
from schedq.operations import attempts
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


def held(queue: Handle, **options: Any) -> ClaimedJob:
    queue.enqueue("work", **options)
    job: ClaimedJob = queue.claim(0)
    return job


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


def test_a_failed_attempt_comes_back_after_its_backoff_and_not_before(make_queue: MakeQueue, clock: Clock):
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


# -- what a handler may raise


def test_an_exception_is_told_by_kind_and_text_and_its_traceback_is_kept(queue: Handle):
    job = held(queue)
    try:
        raise ValueError("no such user\x1b[31m\ud800")
    except ValueError as error:
        queue.fail(job, error)

    record = queue.get_job(job.id)
    assert record.last_error == "ValueError: no such user�[31m�"
    assert "test_endings.py" in record.fields["traceback"]


def test_a_very_long_error_is_cut(queue: Handle):
    job = held(queue)

    queue.fail(job, "x" * 100_000)

    assert 8000 <= len(queue.get_job(job.id).last_error) <= 8192
    assert len(queue.get_job(job.id).history[0]["error"]) <= 500


def test_an_error_whose_text_raises_is_still_an_error(queue: Handle):
    class RudeError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    job = held(queue)

    assert queue.fail(job, RudeError())

    assert queue.get_job(job.id).last_error.startswith("RudeError")


@pytest.mark.parametrize("after", [7, timedelta(seconds=7)])
def test_retry_says_when(make_queue: MakeQueue, clock: Clock, after: Any):
    queue = make_queue(clock=clock)
    job = held(queue)

    queue.fail(job, Retry(after=after, reason="rate limited"))

    record = queue.get_job(job.id)
    assert (record.run_at_ms, record.last_error) == (clock.now_ms + 7000, "rate limited")
    assert queue.places() == {"delayed": [job.id]}


def test_retry_without_a_time_goes_by_the_backoff(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, backoff=Fixed(11))
    job = held(queue)

    queue.fail(job, Retry())

    assert queue.get_job(job.id).run_at_ms == clock.now_ms + 11_000


def test_retry_on_the_last_attempt_has_failed(queue: Handle):
    job = held(queue, max_attempts=1)

    queue.fail(job, Retry(after=1))

    assert queue.places() == {"failed": [job.id]}


def test_discard_has_failed_whatever_attempts_are_left(queue: Handle):
    job = held(queue, max_attempts=50)

    queue.fail(job, Discard("unknown customer"))

    assert queue.places() == {"failed": [job.id]}
    assert queue.get_job(job.id).last_error == "unknown customer"


@pytest.mark.parametrize("way", ["verb", "raised"])
def test_snooze_costs_no_attempt(make_queue: MakeQueue, clock: Clock, way: str):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, max_attempts=1)

    for _ in range(12):
        job = queue.claim(0)
        assert job.attempts == 1
        assert queue.snooze(job, 60) if way == "verb" else queue.fail(job, Snooze(60))
        assert queue.places() == {"delayed": [job_id]}
        clock.pass_time(60)

    assert queue.state().totals() == {"enqueued_total": 1, "promoted_total": 11, "snoozed_total": 12}


@pytest.mark.parametrize("delay", [-1, float("nan"), True, "soon"])
def test_a_snooze_that_makes_no_sense_is_refused(queue: Handle, delay: Any):
    job = held(queue)

    with pytest.raises(UsageError):
        queue.snooze(job, delay)

    assert queue.places() == {"processing": [job.id]}


# -- release


def test_a_released_job_is_next_in_line_and_has_its_attempt_back(queue: Handle):
    first, second = queue.enqueue_many([1, 2])
    job = queue.claim(0)

    assert queue.release(job) is True

    assert queue.places() == {"pending": [first, second]}
    assert queue.fields(first)["attempts"] == "0"
    assert queue.state().holds("wake", "zset")


def test_jobs_released_together_keep_their_order(queue: Handle):
    ids = queue.enqueue_many(range(6))
    jobs = [queue.claim(0) for _ in range(5)]

    answers = queue._drive(attempts.settle_all(queue.settings, [outcome.released(jobs[n]) for n in (3, 0, 4)]))

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


# -- history


def test_every_ended_attempt_leaves_a_line(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=3, backoff=Fixed(0))
    job_id = queue.enqueue(1)
    began = clock.now_ms

    for end in (lambda job: queue.fail(job, 'bad "quotes"\n\ttwo lines'), queue.release, queue.complete):
        job = queue.claim(0)
        clock.pass_time(2)
        end(job)

    assert queue.get_job(job_id).history == (
        {
            "attempt": 1,
            "worker": "",
            "started_at_ms": began,
            "ended_at_ms": began + 2000,
            "outcome": "retry",
            "error": 'bad "quotes"\n\ttwo lines',
        },
        {"attempt": 2, "worker": "", "started_at_ms": began + 2000, "ended_at_ms": began + 4000, "outcome": "released"},
        {
            "attempt": 2,
            "worker": "",
            "started_at_ms": began + 4000,
            "ended_at_ms": began + 6000,
            "outcome": "completed",
        },
    )


def test_the_last_ten_attempts_are_kept(make_queue: MakeQueue):
    queue = make_queue(max_attempts=100, backoff=Fixed(0))
    job_id = queue.enqueue(1)

    for _ in range(25):
        queue.fail(queue.claim(0), "again")

    lines = queue.fields(job_id)["history"].split("\n")
    assert [json.loads(line)["attempt"] for line in lines] == list(range(16, 26))


def test_the_audit_stream_has_every_end_and_is_capped(make_queue: MakeQueue):
    queue = make_queue(log_size=10)
    ids = queue.enqueue_many(range(300))
    for _ in ids:
        queue.complete(queue.claim(0))

    entries = [fields for _, fields in queue.redis.xrange(queue.keys.log)]

    assert (entries[-1]["move"], entries[-1]["id"], entries[-1]["attempts"]) == ("completed", ids[-1], "1")
    assert 10 <= len(entries) <= 210


def test_an_audit_stream_of_no_size_is_not_written(make_queue: MakeQueue):
    queue = make_queue(log_size=0)
    queue.complete(held(queue))

    assert not queue.redis.exists(queue.keys.log)
