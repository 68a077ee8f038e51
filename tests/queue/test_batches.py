"""Batches: many calls of one task with one end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from schedq import (
    RESULT,
    ArgumentsError,
    BatchCancelled,
    BatchFailed,
    BatchResults,
    Conflict,
    Discard,
    JobGone,
    UsageError,
)
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=1)


@pytest.fixture
def square(queue: Handle) -> Any:
    @queue.task
    def square(number: int) -> int:
        if number < 0:
            raise Discard(f"{number} is negative")
        return number * number

    return square


def run(queue: Handle) -> int:
    return run_due(queue.queue.blocking)


# -- filling and running


def test_the_children_run_and_their_results_come_in_order(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square, concurrency=3) as batch:
        batch.add(range(10))

    assert run(queue) == 10
    assert list(queue.queue.blocking.batch("squares").results) == [n * n for n in range(10)]
    assert batch.progress()[:8] == ("squares", "completed", 10, 10, 0, 0, 0, True)


def test_at_most_so_many_children_are_jobs_at_a_time(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square, concurrency=2) as batch:
        batch.add(range(5))

    assert queue.stats()["pending_depth"] == 2
    queue.complete(queue.claim(0), 0)
    assert queue.stats()["pending_depth"] == 2
    assert batch.progress()[2:7] == (5, 1, 0, 2, 2)


def test_a_child_may_have_several_arguments_and_its_task_options(queue: Handle) -> None:
    @queue.task
    def power(base: int, exponent: int = 1) -> int:
        return int(base**exponent)

    many = power.options(max_attempts=5, timeout=30, headers={"tenant": "a"})
    with queue.batch("powers", many, concurrency=1) as batch:
        batch.add([many.with_args(2, exponent=3), many.with_args(5)])

    fields = queue.fields(queue.places()["pending"][0])
    assert (fields["max_attempts"], fields["timeout_ms"], fields["headers"]) == ("5", "30000", '{"tenant":"a"}')
    run(queue)
    assert list(queue.queue.blocking.batch("powers").results) == [8, 5]


def test_children_wait_in_their_gates(queue: Handle) -> None:
    @queue.task(key="customer", key_concurrency=1)
    def sync(customer: int) -> int:
        return customer

    with queue.batch("all", sync) as batch:
        batch.add([7, 7, 8])

    claimed = [queue.claim(0), queue.claim(0), queue.claim(0)]
    assert [job and job.key for job in claimed] == ["7", "8", None]
    for job in claimed[:2]:
        queue.complete(job, 1)
    queue.complete(queue.claim(0), 1)
    assert batch.progress().status == "completed"


def test_a_batch_without_children_completes_at_once(queue: Handle, square: Any) -> None:
    @queue.task
    def total(results: BatchResults[int]) -> int:
        return sum(results)

    with queue.batch("none", square, then=total) as batch:
        pass

    assert batch.progress().status == "completed"
    assert run(queue) == 1
    assert batch.then_job().result(0) == 0


def test_items_may_come_from_a_generator(queue: Handle, square: Any) -> None:
    def items() -> Iterator[int]:
        yield from range(2500)

    with queue.batch("many", square) as batch:
        assert batch.add(items()) == 2500

    assert batch.total == 2500
    assert queue.stats()["pending_depth"] <= 1000


def test_a_producer_that_died_begins_again(queue: Handle, square: Any) -> None:
    batch = queue.batch("squares", square).__enter__()
    batch.add([1, 2])
    batch.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert not batch.progress().is_closed

    with queue.batch("squares", square) as again:
        assert again.total == 2
        again.add([1, 2])
        again.add([3])

    assert run(queue) == 3
    assert list(queue.queue.blocking.batch("squares").results) == [1, 4, 9]


def test_a_producer_may_go_on_behind_what_is_there(queue: Handle, square: Any) -> None:
    batch = queue.batch("squares", square).__enter__()
    batch.add([1, 2])
    batch.__exit__(ZeroDivisionError, ZeroDivisionError(), None)

    with queue.batch("squares", square) as again:
        again.add([3], at=again.total)

    assert again.progress().total == 3


def test_the_same_batch_again_changes_nothing(queue: Handle, square: Any) -> None:
    for _ in range(2):
        with queue.batch("squares", square) as batch:
            batch.add([1, 2])
        run(queue)

    assert batch.progress()[2:4] == (2, 2)
    assert queue.stats()["completed_total"] == 2


def test_another_batch_under_an_id_is_a_conflict(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square) as batch:
        batch.add([1])

    with pytest.raises(Conflict, match="batch squares of queue .* exists with another task"):
        queue.batch("squares", square, concurrency=7).__enter__().add([1])
    run(queue)


def test_a_gap_in_the_items_is_refused(queue: Handle, square: Any) -> None:
    with pytest.raises(UsageError, match=r"has 0 children, so none can be added at 5; begin at batch\.total"):
        queue.batch("squares", square).__enter__().add([1], at=5)


def test_a_batch_that_is_never_closed_fails(queue: Handle, square: Any, clock: Clock) -> None:
    batch = queue.batch("squares", square, close_within=600).__enter__()
    batch.add([1])
    run(queue)

    clock.pass_time(601)
    run(queue)

    assert batch.progress().status == "failed"
    assert batch.progress().error == "it was never closed: its producer has gone"


# -- its end


def test_a_call_at_the_end_reads_the_results(queue: Handle, square: Any) -> None:
    @queue.task
    def report(album: str, results: BatchResults[int]) -> list[Any]:
        return [album, list(results), list(results.numbered())[-1], results.progress().completed]

    with queue.batch("squares", square, then=report.with_args("holiday", RESULT)) as batch:
        batch.add(range(3))

    assert run(queue) == 4
    assert batch.then_job().result(0) == ["holiday", [0, 1, 4], [2, 4], 3]
    assert list(batch.result(0)) == [0, 1, 4]


def test_an_async_call_at_the_end_reads_the_results(queue: Handle, square: Any) -> None:
    @queue.task
    async def report(results: BatchResults[int]) -> list[int]:
        return [one async for one in results]

    with queue.batch("squares", square, then=report) as batch:
        batch.add(range(1200))

    run(queue)
    assert batch.then_job().result(0) == [n * n for n in range(1200)]


def test_too_many_failures_make_it_fail(queue: Handle, square: Any) -> None:
    @queue.task
    def alert(results: BatchResults[int]) -> list[int]:
        return [failure.number for failure in results.failures()]

    @queue.task
    def never() -> None: ...

    with queue.batch("squares", square, tolerate=1, then=never.with_args(), otherwise=alert) as batch:
        batch.add([1, -1, 2, -2])

    run(queue)
    assert batch.progress()[1:5] == ("failed", 4, 2, 2)
    assert batch.then_job().result(0) == [1, 3]
    assert [(one.number, one.error, one.args) for one in batch.failures()] == [
        (1, "-1 is negative", (-1,)),
        (3, "-2 is negative", (-2,)),
    ]
    with pytest.raises(BatchFailed, match="batch squares failed: 2 of 4 children failed") as error:
        batch.result(0)
    assert (error.value.failed, error.value.total) == (2, 4)


def test_a_batch_that_made_no_call_at_its_end_says_why(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square, then=square) as batch:
        batch.add([1, -1])
    with pytest.raises(UsageError, match="batch squares is running, so it has made no call at its end"):
        batch.then_job()

    run(queue)

    with pytest.raises(UsageError, match="batch squares is failed, .*; 1 of 2 children failed"):
        batch.then_job()


@pytest.mark.parametrize(
    ("tolerate", "status"), [(2, "completed"), (1, "failed"), (0.5, "completed"), (0.49, "failed")]
)
def test_it_tolerates_some_failures(queue: Handle, square: Any, tolerate: float, status: str) -> None:
    with queue.batch("squares", square, tolerate=tolerate) as batch:
        batch.add([1, -1, 2, -2])

    run(queue)
    assert batch.progress().status == status


def test_results_may_be_left_out(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square, results=False) as batch:
        batch.add([1, 2])

    run(queue)
    assert batch.progress().completed == 2
    assert list(queue.queue.blocking.batch("squares").results) == []


def test_one_can_wait_for_the_end_and_hear_of_progress(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square) as batch:
        batch.add([1, 2])
    seen: list[Any] = []

    assert batch.wait(0, on_progress=seen.append) is False
    with pytest.raises(TimeoutError, match="batch squares is running: 0 of 2 have completed"):
        batch.result(0)
    run(queue)
    assert batch.wait(5, on_progress=seen.append) is True
    assert [one.completed for one in seen] == [0, 2]


def test_nothing_is_stored_under_an_unknown_id(queue: Handle) -> None:
    for act in ("progress", "wait", "result", "then_job"):
        with pytest.raises(JobGone, match="has no batch nothing"):
            getattr(queue.batch("nothing"), act)()


# -- what can be done with it


def test_a_cancelled_batch_makes_no_more_jobs(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square, concurrency=3) as batch:
        batch.add(range(9))
    running = queue.claim(0)

    assert batch.cancel()
    queue.promote_due()

    assert queue.stats()["pending_depth"] == 0
    assert queue.fields(running.id)["stop"]
    queue.fail(running, "stopped")
    assert batch.progress()[1:7] == ("cancelled", 9, 0, 3, 0, 6)
    with pytest.raises(BatchCancelled, match="batch squares was cancelled"):
        batch.result(0)
    assert not batch.cancel()


def test_what_failed_can_run_again(queue: Handle, square: Any) -> None:
    broken = {-1, -2}

    @queue.task
    def fixed(number: int) -> int:
        if number in broken:
            raise Discard("not yet")
        return number

    @queue.task
    def total(results: BatchResults[int]) -> int:
        return sum(results)

    with queue.batch("numbers", fixed, then=total, concurrency=2) as batch:
        batch.add([5, -1, -2, 7])
    run(queue)
    assert batch.progress().status == "failed"

    broken.clear()
    assert batch.retry() == 2
    run(queue)

    assert batch.progress()[1:5] == ("completed", 4, 4, 0)
    assert batch.then_job().result(0) == 9
    assert batch.failures() == []
    assert batch.retry() == 0


def test_a_running_batch_is_not_retried(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square) as batch:
        batch.add([1])

    with pytest.raises(UsageError, match="batch squares of queue .* has not ended, so it can't be retried"):
        batch.retry()


def test_a_failed_child_can_be_requeued_while_the_batch_runs(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square) as batch:
        batch.add([1, 2])
    first, second = queue.claim(0), queue.claim(0)
    queue.fail(first, Discard("no"))
    assert batch.progress().failed == 1

    queue.requeue(first.id)
    queue.promote_due()
    assert batch.progress()[3:6] == (0, 0, 2)
    queue.complete(second, 4)
    queue.complete(queue.claim(0), 1)

    assert batch.progress()[1:5] == ("completed", 2, 2, 0)


def test_a_deleted_batch_is_gone(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square) as batch:
        batch.add([1, 2])
    queue.complete(queue.claim(0), 1)

    assert batch.delete()

    queue.complete(queue.claim(0), 4)
    assert not [name for name in queue.state().keys if name.startswith("group")]


def test_a_purge_takes_batches_too(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square, concurrency=1) as batch:
        batch.add(range(5))

    queue.purge()

    assert not [name for name in queue.state().keys if name.startswith("group")]
    assert queue.places() == {}


# -- refusals


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"id": "a b"}, "batch id 'a b' must be 1 to 40 characters"),
        ({"id": "x" * 41}, "must be 1 to 40 characters"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"concurrency": 1001}, "concurrency must be"),
        ({"tolerate": -1}, "tolerate must be how many children may fail"),
        ({"tolerate": 1.5}, "tolerate must be how many children may fail"),
        ({"ttl": 5}, "ttl must be at least 60 seconds"),
        ({"then": "total"}, "then must be a task or task.with_args"),
    ],
)
def test_invalid_options_are_named(queue: Handle, square: Any, options: dict[str, Any], why: str) -> None:
    given = {"id": "squares", "task": square} | options
    with pytest.raises(UsageError, match=why):
        queue.batch(given.pop("id"), given.pop("task"), **given)


def test_a_call_without_arguments_is_written_out(queue: Handle, square: Any) -> None:
    @queue.task
    def bell() -> None: ...

    with pytest.raises(ArgumentsError, match=r"then: .*; write then=bell\.with_args"):
        queue.batch("squares", square, then=bell)


@pytest.mark.parametrize("option", [{"delay": 5}, {"job_id": "mine"}])
def test_children_can_t_have_such_options(queue: Handle, square: Any, option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(option))):
        queue.batch("squares", square.options(**option))


def test_an_item_that_does_not_fit_is_named(queue: Handle, square: Any) -> None:
    with queue.batch("squares", square) as batch:
        with pytest.raises(ArgumentsError, match=r"\(item 1\)"):
            batch.add([1, other_call(queue)])
        with pytest.raises(UsageError, match="item 0 has options of its own"):
            batch.add([square.options(max_attempts=9).with_args(1)])


def other_call(queue: Handle) -> Any:
    @queue.task
    def other() -> None: ...

    return other.with_args()


def test_a_handle_without_a_task_can_t_be_filled(queue: Handle) -> None:
    with pytest.raises(UsageError, match="was opened without its task: write"):
        queue.batch("squares").add([1])


def test_tasks_of_another_queue_are_refused(queue: Handle, make_queue: MakeQueue, square: Any) -> None:
    other = make_queue()
    elsewhere = other.task(name="elsewhere")(lambda results: len(results))
    ours, theirs = queue.settings.name, other.settings.name

    for what, act in {
        "batch b": lambda: queue.batch("b", elsewhere),
        "then": lambda: queue.batch("b", square, then=elsewhere),
        "call 1 of a chain": lambda: queue.chain(square.with_args(2), elsewhere),
    }.items():
        with pytest.raises(
            UsageError, match=f"{what}: task 'elsewhere' is one of queue {theirs}, and all .* in {ours}"
        ):
            act()
