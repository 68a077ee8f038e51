"""Operations whose work other jobs do, in virtual time: `ctx.call` and `ctx.map`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from schedq import Discard, Fixed, JobFailed, MapFailed, Queue, Snooze, StepFailed, WorkflowContext
from schedq.inspect.export import exported
from schedq.testing import QueueTester
from schedq.workflows import children

HOUR = timedelta(hours=1)


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    """A queue whose retries follow after a minute."""
    return Queue("shop", backoff=Fixed(60))


@pytest.fixture
def done() -> list[Any]:
    """What jobs did."""
    return []


def test_a_call_returns_what_its_job_returned(tester: QueueTester, queue: Queue):
    @queue.task
    def total(amounts: list[int], factor: int = 1) -> int:
        return sum(amounts) * factor

    @queue.workflow
    async def bill(ctx: WorkflowContext) -> list[int]:
        return [await ctx.call(total, [1, 2], factor=10), await ctx.call(total, [3])]

    job = bill.enqueue()
    tester.run_due()

    assert job.result(0) == [30, 3]


def test_a_map_returns_the_results_in_the_order_of_its_items(tester: QueueTester, queue: Queue):
    @queue.task
    def square(number: int) -> int:
        return number * number

    @queue.workflow
    async def squares(ctx: WorkflowContext) -> list[int]:
        found = await ctx.map(square, range(2500), concurrency=100)
        return [each async for each in found]

    job = squares.enqueue()
    tester.run_due()

    assert job.result(0) == [number * number for number in range(2500)]


def test_a_map_of_nothing_is_over_at_once(tester: QueueTester, queue: Queue):
    @queue.task
    def never(number: int) -> None: ...

    @queue.workflow
    async def nothing(ctx: WorkflowContext) -> int:
        return len([each async for each in await ctx.map(never, [])])

    job = nothing.enqueue()
    tester.run_due()

    assert job.result(0) == 0


def test_a_call_that_fails_raises_and_can_be_caught(tester: QueueTester, queue: Queue):
    @queue.task
    def refuse() -> None:
        raise Discard("sold out")

    @queue.workflow
    async def order(ctx: WorkflowContext) -> str:
        try:
            await ctx.call(refuse)
        except StepFailed as error:
            await ctx.sleep(HOUR)
            return str(error)
        return ""

    job = order.enqueue()
    tester.fast_forward()

    assert job.result(0) == "step call refuse: sold out"


def test_a_map_that_fails_says_how_many_and_where_they_are(tester: QueueTester, queue: Queue):
    @queue.task
    def halve(number: int) -> int:
        if number % 2:
            raise Discard(f"{number} is odd")
        return number // 2

    @queue.workflow
    async def halves(ctx: WorkflowContext, tolerate: float) -> list[Any]:
        try:
            found = await ctx.map(halve, [2, 3, 4, 5], tolerate=tolerate)
        except MapFailed as error:
            return [
                error.failed,
                error.total,
                error.error,
                [each.args for each in queue.batch(error.batch_id).failures()],
            ]
        return [each async for each in found]

    strict, lenient = halves.enqueue(1), halves.enqueue(0.5)
    tester.run_due()

    assert strict.result(0) == [2, 4, "2 of 4 jobs failed, first with 3 is odd", [[3], [5]]]
    assert lenient.result(0) == [1, 2]


def test_the_jobs_of_a_requeued_run_that_failed_run_again(tester: QueueTester, queue: Queue, done: list[Any]):
    broken = {3}

    @queue.task
    def load(number: int) -> int:
        done.append(number)
        if number in broken:
            raise Discard("broken")
        return number

    @queue.workflow
    async def import_all(ctx: WorkflowContext) -> int:
        return sum([each async for each in await ctx.map(load, [1, 2, 3, 4])])

    job = import_all.enqueue()
    tester.run_due()
    with pytest.raises(JobFailed, match="1 of 4 jobs failed, first with broken"):
        job.result(0)
    broken.clear()
    queue.requeue(job.id)
    tester.run_due()

    assert job.result(0) == 10
    assert done == [1, 2, 3, 4, 3]


def test_a_requeued_run_gets_the_result_of_a_job_that_completed_although_it_was_called_off(
    tester: QueueTester, queue: Queue, done: list[Any]
):
    @queue.task
    def load(number: int) -> int:
        done.append(number)
        (batch,) = queue.list_batches()
        job.cancel()
        queue.batch(batch.id).cancel()
        return number

    @queue.workflow
    async def import_one(ctx: WorkflowContext) -> int:
        return await ctx.call(load, 7)

    job = import_one.enqueue()
    tester.run_due()
    assert [each.status for each in queue.list_batches()] == ["cancelled"]
    queue.requeue(job.id)
    tester.run_due()

    assert job.result(0) == 7
    assert done == [7]


@pytest.mark.parametrize("completed", [1, 2])
def test_all_jobs_of_a_requeued_run_are_made_if_it_was_cancelled_while_it_made_them(
    tester: QueueTester, queue: Queue, monkeypatch: pytest.MonkeyPatch, completed: int
):
    monkeypatch.setattr(children, "_PAGE", 2)
    is_broken = True

    @queue.task
    def load(number: int) -> int:
        if is_broken and number >= completed:
            raise Snooze(2 * HOUR)
        return number

    def numbers() -> Iterator[int]:
        for number in range(5):
            if number == 3 and is_broken:
                raise ValueError("no numbers")
            yield number

    @queue.workflow
    async def import_all(ctx: WorkflowContext) -> list[int]:
        return [each async for each in await ctx.map(load, numbers())]

    job = import_all.enqueue()
    tester.run_due()
    assert job.cancel() == "cancelled"
    tester.fast_forward(HOUR)
    tester.run_due()
    assert [(each.status, each.total) for each in queue.list_batches()] == [("cancelled", 2)]
    is_broken = False
    queue.requeue(job.id)
    tester.run_due()

    assert job.result(0) == [0, 1, 2, 3, 4]


def test_branches_wait_for_jobs_at_the_same_time(tester: QueueTester, queue: Queue):
    @queue.task
    def echo(text: str) -> str:
        return text

    @queue.workflow
    async def both(ctx: WorkflowContext) -> list[Any]:
        one, two = await ctx.gather(ctx.call(echo, "a"), ctx.call(echo, "b"))
        return [one, two]

    job = both.enqueue()
    tester.run_due()

    assert job.result(0) == ["a", "b"]


def test_a_workflow_may_call_a_workflow(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def inner(ctx: WorkflowContext, hours: int) -> int:
        await ctx.sleep(hours * HOUR)
        return hours

    @queue.workflow
    async def outer(ctx: WorkflowContext) -> int:
        return await ctx.call(inner, 2) + await ctx.call(inner, 3)

    began, job = tester.clock(), outer.enqueue()
    tester.fast_forward()

    assert job.result(0) == 5
    assert tester.clock() - began == pytest.approx(5 * 3600, abs=5)


def test_a_run_continues_when_its_batch_is_cancelled_or_deleted(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def slow(ctx: WorkflowContext, number: int) -> None:
        await ctx.receive("go")

    @queue.workflow
    async def waiting(ctx: WorkflowContext) -> str:
        try:
            await ctx.map(slow, range(2))
        except StepFailed as error:
            return str(error)
        return "done"

    job = waiting.enqueue()
    tester.run_due()
    (batch,) = queue.list_batches()
    queue.batch(batch.id).cancel()
    tester.fast_forward(HOUR)

    assert job.result(0) == "step map slow: its jobs were cancelled"


def test_the_results_of_a_map_are_kept_as_long_as_the_run(tester: QueueTester, queue: Queue):
    @queue.task
    def echo(number: int) -> int:
        return number

    @queue.workflow
    async def month(ctx: WorkflowContext) -> list[int]:
        found = await ctx.map(echo, [1, 2])
        await ctx.sleep(30 * 24 * HOUR)
        return [each async for each in found]

    job = month.enqueue()
    tester.fast_forward()

    assert job.result(0) == [1, 2]


def test_a_run_whose_batch_was_deleted_makes_its_jobs_anew(tester: QueueTester, queue: Queue, done: list[Any]):
    @queue.workflow
    async def slow(ctx: WorkflowContext, number: int) -> int:
        await ctx.options(name="begin").step(done.append, number)
        await ctx.sleep(HOUR)
        return number

    @queue.workflow
    async def waiting(ctx: WorkflowContext) -> list[int]:
        return [each async for each in await ctx.map(slow, [1, 2])]

    job = waiting.enqueue()
    tester.run_due()
    (batch,) = queue.list_batches()
    queue.batch(batch.id).delete()
    tester.fast_forward()

    assert job.result(0) == [1, 2]
    assert done == [1, 2, 1, 2]


def test_the_way_of_a_run_with_jobs_is_replayed(tester: QueueTester, queue: Queue, done: list[Any]):
    @queue.task
    def echo(number: int) -> int:
        done.append(number)
        return number

    @queue.workflow
    async def both(ctx: WorkflowContext) -> list[int]:
        found = [each async for each in await ctx.map(echo, [1, 2])]
        return [*found, await ctx.call(echo, 3)]

    job = both.enqueue()
    tester.run_due()
    tester.assert_replays(job)

    assert job.result(0) == done == [1, 2, 3]


def test_a_call_with_other_arguments_each_time_is_found(tester: QueueTester, queue: Queue):
    @queue.task
    def echo(number: float) -> float:
        return number

    @queue.workflow
    async def clock(ctx: WorkflowContext) -> None:
        await ctx.call(echo, random.random())

    job = clock.enqueue()
    tester.run_due()

    with pytest.raises(AssertionError, match="it gives step call echo"):
        tester.assert_replays(job)


def test_wrong_calls_say_what_is_wrong(tester: QueueTester, queue: Queue):
    @queue.task
    def echo(number: int) -> int:
        return number

    @queue.task
    def none() -> None: ...

    @queue.workflow
    async def wrong(ctx: WorkflowContext, kind: str) -> None:
        if kind == "arguments":
            await ctx.call(echo)  # type: ignore[call-overload]
        if kind == "function":
            await ctx.call(str, 1)  # type: ignore[call-overload]
        if kind == "whole call":
            await ctx.call(echo.with_args(1))  # type: ignore[call-overload]
        if kind == "delay":
            await ctx.call(echo.options(delay=5), 1)
        if kind == "options":
            await ctx.options(timeout=5).call(echo, 1)
        if kind == "items":
            await ctx.map(none, [1])
        if kind == "concurrency":
            await ctx.map(echo, [1], concurrency=0)

    expected = {
        "arguments": "missing",
        "function": "use ctx.step for it",
        "whole call": "pass the task, then its arguments",
        "delay": "can't have delay",
        "options": "only the name counts",
        "items": "task 'none'",
        "concurrency": "concurrency must be",
    }
    jobs = {kind: wrong.options(max_attempts=1).enqueue(kind) for kind in expected}
    tester.run_due()

    for kind, text in expected.items():
        assert text in jobs[kind].record().last_error, kind


def test_why_says_which_jobs_a_run_waits_for(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def slow(ctx: WorkflowContext, number: int) -> None:
        await ctx.sleep(number * HOUR)

    @queue.workflow
    async def waiting(ctx: WorkflowContext, kind: str) -> None:
        if kind == "map":
            await ctx.map(slow, [1, 3])
        else:
            await ctx.call(slow, 2)

    a_map, a_call = waiting.enqueue("map"), waiting.enqueue("call")
    tester.fast_forward(1.5 * HOUR)
    of_map, of_call = a_map.why(), a_call.why()

    assert of_map.reason == of_call.reason == "suspended"
    assert of_map.text.startswith("it has waited 1 h 30 min for the jobs of map slow, batch run-")
    assert of_map.text.endswith(": 1 of 2 have completed")
    assert of_call.text.startswith("it has waited 1 h 30 min for the job of call slow, batch run-")
    assert of_map.facts["waits"][0]["batch"]["completed"] == 1


def test_an_imported_run_makes_its_jobs_again(tester: QueueTester, queue: Queue, done: list[Any]):
    @queue.workflow
    async def slow(ctx: WorkflowContext, number: int) -> int:
        done.append(number)
        await ctx.sleep(HOUR)
        return number

    @queue.workflow
    async def waiting(ctx: WorkflowContext) -> list[int]:
        return [each async for each in await ctx.map(slow, [1, 2])]

    job = waiting.enqueue()
    tester.run_due()
    record = job.record()
    assert record is not None
    queue.purge()
    done.clear()
    queue.inspector.import_jobs([exported(record, "delayed")])
    tester.run_due()

    assert job.status() == "delayed"
    assert done == [1, 2]
