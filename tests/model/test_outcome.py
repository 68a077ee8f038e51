"""How an attempt ends: decided without a clock and without Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedq import ClaimedJob, Discard, Exponential, Fixed, Retry, Snooze, UsageError
from schedq.model.outcome import Policy, failed, released, succeeded
from schedq.model.records import Settlement
from schedq.model.settings import Settings
from schedq.model.times import LONGEST_MS

QUEUE = Settings("mail", max_attempts=3, backoff=Fixed(10))


def job(**fields: Any) -> ClaimedJob:
    return replace(ClaimedJob("a", 1, 1, "t"), **fields)


def policy(**options: Any) -> Policy:
    return Policy(3, Fixed(10), 1000)._replace(**options)


# -- whose options apply


def test_a_jobs_own_options_come_first_then_its_tasks_then_the_queues():
    own, tasks = Fixed(1), Fixed(2)

    assert Policy.of(QUEUE, job()) == Policy(3, Fixed(10), QUEUE.max_payload)
    assert Policy.of(QUEUE, job(), 5, tasks) == Policy(5, tasks, QUEUE.max_payload)
    assert Policy.of(QUEUE, job(max_attempts=7, backoff=own), 5, tasks) == Policy(7, own, QUEUE.max_payload)


# -- what the moves are


def test_a_handler_that_returns_has_completed():
    assert succeeded(job(), {"sent": True}, policy()) == Settlement("complete", "a", "t", text='{"sent":true}')


def test_a_worker_that_stops_releases():
    assert released(job()) == Settlement("release", "a", "t")


@pytest.mark.parametrize(("attempts", "move"), [(1, "retry"), (2, "retry"), (3, "fail"), (4, "fail"), (10**9, "fail")])
def test_an_error_is_a_retry_until_the_attempts_are_used_up(attempts: int, move: str):
    found = failed(job(attempts=attempts), "down", policy())

    assert (found.move, found.delay_ms, found.text) == (move, 10_000 if move == "retry" else 0, "down")


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_no_attempt_more_than_there_may_be(attempts: int, most: int):
    found = failed(job(attempts=attempts), "down", policy(max_attempts=most))

    assert found.move == ("retry" if attempts < most else "fail")


@pytest.mark.parametrize(
    ("error", "move", "delay_ms"),
    [
        (Retry(after=7), "retry", 7000),
        (Retry(after=0), "retry", 0),
        (Retry(), "retry", 10_000),
        (Discard("no use"), "fail", 0),
        (Snooze(60), "snooze", 60_000),
        (Snooze(0), "snooze", 0),
        (ValueError("x"), "retry", 10_000),
        (KeyboardInterrupt(), "retry", 10_000),
        (SystemExit(3), "retry", 10_000),
        ("just text", "retry", 10_000),
    ],
    ids=repr,
)
def test_each_error_has_its_move(error: Any, move: str, delay_ms: int):
    found = failed(job(), error, policy())

    assert (found.move, found.delay_ms) == (move, delay_ms)


@pytest.mark.parametrize(("error", "move"), [(Retry(after=7), "fail"), (Snooze(5), "snooze"), (Discard(), "fail")])
def test_on_the_last_attempt_only_a_snooze_is_repeated(error: Any, move: str):
    assert failed(job(attempts=3), error, policy()).move == move


@pytest.mark.parametrize("wish", [Retry, Snooze])
@pytest.mark.parametrize("wait", [-1, "soon", float("nan"), True])
def test_an_invalid_decision_is_refused_where_it_is_made(wish: Any, wait: Any):
    with pytest.raises(UsageError):
        wish(wait)


# -- what is stored of an error


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as found:
        return found


def test_the_traceback_of_an_unexpected_error_is_kept_and_that_of_a_decision_is_not():
    assert "test_outcome.py" in failed(job(), raised(ValueError("x")), policy()).traceback
    for wish in (Retry(), Discard()):
        assert failed(job(), raised(wish), policy()).traceback == ""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such user"), "ValueError: no such user"),
        (ValueError(), "ValueError"),
        (Discard("no use"), "no use"),
        ("smtp timeout", "smtp timeout"),
        (OSError(2, "No such file", "x"), "FileNotFoundError: [Errno 2] No such file: 'x'"),
    ],
    ids=repr,
)
def test_an_error_is_described_by_type_and_text(error: Any, text: str):
    assert failed(job(), error, policy()).text == text


@given(st.text(max_size=10_000))
def test_whatever_an_error_says_can_be_stored_and_shown(text: str):
    found = failed(job(), raised(ValueError(text)), policy())

    for part, most in ((found.text, 8192), (found.note, 500), (found.traceback, 8192)):
        assert len(part) <= most
        assert part.encode().decode() == part
        assert all(c.isprintable() or c in "\n\t" for c in part)


class Rude(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_an_error_whose_text_raises_is_described():
    assert failed(job(), raised(Rude()), policy()).text.startswith("Rude")


# -- a task's own function


def test_a_function_says_how_long_from_attempt_and_error():
    def wait(attempt: int, error: BaseException) -> float:
        assert str(error) == "down"
        return attempt * 1.5

    assert failed(job(attempts=2), RuntimeError("down"), policy(backoff=wait)).delay_ms == 3000
    assert failed(job(attempts=2), "down", policy(backoff=wait)).delay_ms == 3000


@pytest.mark.parametrize(
    "wrong", [lambda: 1, lambda a, e: -1, lambda a, e: "soon", lambda a, e: 1 / 0, lambda a, e: float("inf")]
)
def test_a_function_that_fails_leaves_the_job_with_the_usual_waits(wrong: Any):
    found = failed(job(attempts=2), ValueError("down"), policy(backoff=wrong))

    assert (found.move, found.delay_ms) == ("retry", Exponential().wait(2) * 1000)
    assert found.text == "ValueError: down"


def test_a_function_may_wait_at_most_a_hundred_years():
    assert failed(job(), "x", policy(backoff=lambda a, e: LONGEST_MS / 1000)).delay_ms == LONGEST_MS
