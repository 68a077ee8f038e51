"""What a handler may raise, and what is stored about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from schedq import Discard, Fixed, Retry, Snooze, UsageError
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import held


def test_an_exception_is_stored_by_type_and_text_with_its_traceback(queue: Handle):
    job = held(queue)
    try:
        raise ValueError("no such user\x1b[31m\ud800")
    except ValueError as error:
        queue.fail(job, error)

    record = queue.get_job(job.id)
    assert record.last_error == "ValueError: no such user�[31m�"
    assert "test_retry_discard_snooze.py" in record.fields["traceback"]


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


def test_retry_without_a_time_uses_the_backoff(make_queue: MakeQueue, clock: Clock):
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
