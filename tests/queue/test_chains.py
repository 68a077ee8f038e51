"""Chains: calls of which each begins when the one before has completed."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from schedq import RESULT, BatchFailed, Conflict, Discard, UsageError
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=1)


@pytest.fixture
def add(queue: Handle) -> Any:
    @queue.task
    def add(number: int, more: int = 1) -> int:
        return number + more

    return add


def run(queue: Handle) -> int:
    return run_due(queue.queue.blocking)


def test_each_call_gets_what_the_one_before_returned(queue: Handle, add: Any) -> None:
    chain = queue.chain(add.with_args(1), add, add.with_args(RESULT, 10), add.with_args(100, more=RESULT))

    assert queue.stats()["pending_depth"] == 1
    assert run(queue) == 4
    assert chain.result(0) == 113
    assert chain.progress()[1:5] == ("completed", 4, 4, 0)


def test_the_first_call_may_be_a_task_without_arguments(queue: Handle) -> None:
    @queue.task
    def today() -> date:
        return date(2027, 3, 1)

    @queue.task
    def year(day: date) -> int:
        return day.year

    chain = queue.chain(today, year)

    run(queue)
    assert chain.result(0) == 2027


def test_calls_have_options_of_their_own(queue: Handle, add: Any) -> None:
    queue.chain(add.with_args(1), add.options(max_attempts=7).with_args(RESULT), id="c")
    queue.complete(queue.claim(0), 2)

    assert queue.claim(0).max_attempts == 7


def test_a_call_that_fails_ends_the_chain_and_retry_goes_on_there(queue: Handle, add: Any) -> None:
    is_fixed: list[bool] = []

    @queue.task
    def fragile(number: int) -> int:
        if not is_fixed:
            raise Discard("not yet")
        return number * 2

    chain = queue.chain(add.with_args(1), fragile, add)
    assert run(queue) == 2
    assert chain.progress()[1:7] == ("failed", 3, 1, 1, 0, 1)
    with pytest.raises(BatchFailed, match=rf"chain {chain.id} failed: call 1 \(fragile\): not yet"):
        chain.result(0)
    assert [(failure.task, failure.args) for failure in chain.failures()] == [("fragile", (2,))]

    is_fixed.append(True)
    assert chain.retry() == 1
    assert run(queue) == 2
    assert chain.result(0) == 5


@pytest.mark.parametrize("damage", ["", "x", "1 2", "one 0 no", "9" * 5000 + " 0 no", "1 3 ab"])
def test_a_damaged_note_of_a_failure_hides_no_end(queue: Handle, damage: str) -> None:
    @queue.task
    def refused() -> None:
        raise Discard("no use")

    chain = queue.chain(refused.with_args())
    run(queue)
    queue.redis.lset(queue.keys.group(chain.id) + ":failed", 0, damage)

    with pytest.raises(BatchFailed, match=f"chain {chain.id} failed: call "):
        chain.result(0)
    assert len(chain.failures()) == 1


@pytest.mark.parametrize("damage", ["", "[]", '{"task": 1, "args": 2, "kwargs": 3}', "x"])
def test_a_damaged_payload_hides_no_error(queue: Handle, damage: str) -> None:
    @queue.task
    def refused() -> None:
        raise Discard("no use")

    chain = queue.chain(refused.with_args())
    run(queue)
    (failed,) = queue.list_failed()
    queue.redis.hset(queue.keys.job(failed.id), "payload", damage)

    with pytest.raises(BatchFailed, match="no use"):
        chain.result(0)
    assert [(one.error, one.args) for one in chain.failures()] == [("no use", ())]


def test_a_result_that_can_t_be_stored_ends_the_chain(queue: Handle, add: Any) -> None:
    @queue.task
    def odd() -> object:
        return object()

    chain = queue.chain(odd, add)

    run(queue)
    assert chain.progress()[1:5] == ("failed", 2, 0, 1)


def test_a_cancelled_chain_makes_no_more_calls(queue: Handle, add: Any) -> None:
    chain = queue.chain(add.with_args(1), add, add)
    job = queue.claim(0)

    chain.cancel()
    queue.complete(job, 2)
    queue.promote_due()

    assert chain.progress().status == "cancelled"
    assert queue.claim(0) is None


def test_a_chain_that_is_cancelled_before_it_runs_runs_nothing(queue: Handle, add: Any) -> None:
    chain = queue.chain(add.with_args(1), add)

    chain.cancel()
    queue.promote_due()

    assert chain.progress().status == "cancelled"
    assert queue.claim(0) is None


def test_the_same_chain_again_changes_nothing(queue: Handle, add: Any) -> None:
    for _ in range(2):
        chain = queue.chain(add.with_args(1), add, id="mine")
    assert run(queue) == 2

    again = queue.chain(add.with_args(1), add, id="mine")
    assert again.result(0) == chain.result(0) == 3
    assert run(queue) == 0
    with pytest.raises(Conflict, match="batch mine of queue .* exists with another task"):
        queue.chain(add.with_args(2), add, id="mine")


def test_a_long_chain(queue: Handle, add: Any) -> None:
    chain = queue.chain(add.with_args(0), *[add] * 299)

    assert run(queue) == 300
    assert chain.result(0) == 300


def test_results_may_contain_anything(queue: Handle) -> None:
    text = 'a "quoted" \\ line\nbreak, ünïcode, %d %s'

    @queue.task
    def say(value: Any = text) -> Any:
        return [value]

    chain = queue.chain(say, say)

    run(queue)
    assert chain.result(0) == [[text]]


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        ((), "a chain has 1 to 1000 calls, got 0"),
        (("add",), "call 0 of a chain must be a task or task.with_args"),
    ],
)
def test_invalid_calls_are_named(queue: Handle, calls: tuple[Any, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        queue.chain(*calls)


def test_the_first_call_has_no_result_before_it(queue: Handle, add: Any) -> None:
    with pytest.raises(UsageError, match="the first call of a chain has no RESULT"):
        queue.chain(add.with_args(RESULT), add)


def test_a_call_that_is_made_later_can_t_be_delayed(queue: Handle, add: Any) -> None:
    with pytest.raises(UsageError, match="call 1 of a chain: a call of a batch, a chain or a flow can't have delay"):
        queue.chain(add.with_args(1), add.options(delay=5).with_args(RESULT))
