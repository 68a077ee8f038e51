"""Workflows as an application tests them: all of their time in a moment, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schedq import Depends, Fixed, JobFailed, Queue, UsageError, WorkflowContext, current_job
from schedq.model.runs import Memo
from schedq.testing import QueueTester, eager

DAY = timedelta(days=1)


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    """A queue whose retries follow after a minute."""
    return Queue("shop", backoff=Fixed(60))


@pytest.fixture
def done() -> list[str]:
    """What steps did."""
    return []


def test_thirty_days_in_a_moment(tester: QueueTester, queue: Queue, done: list[str]):
    def send(user: int, letter: str) -> None:
        done.append(f"{letter} to {user} on day {(tester.clock() - began) / 86_400:.0f}")

    @queue.workflow
    async def drip(ctx: WorkflowContext, user: int) -> str:
        for day, letter in ((0, "welcome"), (3, "tips"), (10, "story"), (30, "offer")):
            await ctx.sleep_until(ctx.started_at + day * DAY)
            await ctx.options(name=letter).step(send, user, letter)
        return "done"

    began = tester.clock()
    job = drip.enqueue(7)
    attempts = tester.fast_forward()

    assert job.result(0) == "done"
    assert done == ["welcome to 7 on day 0", "tips to 7 on day 3", "story to 7 on day 10", "offer to 7 on day 30"]
    assert attempts == 4


def test_messages_before_and_during_a_wait(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def expense(ctx: WorkflowContext) -> list[Any]:
        first = await ctx.receive("verdict")
        try:
            await ctx.receive("verdict", timeout=2 * DAY)
        except TimeoutError:
            return [first, await ctx.receive("late")]
        return []

    job = expense.enqueue()
    assert job.send("verdict", {"by": "ada"})
    tester.fast_forward()
    assert job.status() == "delayed"
    assert job.send("late", 3)
    tester.run_due()

    assert job.result(0) == [{"by": "ada"}, 3]
    assert not job.send("verdict", 1)


def test_the_winner_of_a_race_stays_the_winner(tester: QueueTester, queue: Queue, done: list[str]):
    @queue.workflow
    async def order(ctx: WorkflowContext) -> list[Any]:
        winner, _ = await ctx.first(paid=ctx.receive("paid"), late=ctx.sleep(2 * DAY))
        await ctx.options(name=f"on {winner}").step(done.append, winner)
        await ctx.sleep(5 * DAY)
        return [winner, await ctx.receive("paid", timeout=1)]

    job = order.enqueue()
    tester.fast_forward(3 * DAY)
    job.send("paid", "3 days late")
    tester.fast_forward()

    assert job.result(0) == ["late", "3 days late"]
    assert done == ["late"]


async def receive(ctx: WorkflowContext) -> Any:
    return await ctx.receive("paid")


async def receive_two(ctx: WorkflowContext) -> Any:
    return await ctx.gather(ctx.receive("paid"), ctx.receive("sent"))


async def receive_and_clean_up(ctx: WorkflowContext) -> Any:
    try:
        return await ctx.receive("paid")
    finally:
        await ctx.options(name="clean up").step(str)


@pytest.mark.parametrize("wait", [receive, receive_two, receive_and_clean_up])
def test_a_message_that_comes_after_a_race_was_over_is_left_for_later(
    tester: QueueTester, queue: Queue, wait: Callable[[WorkflowContext], Any]
):
    @queue.workflow
    async def order(ctx: WorkflowContext) -> list[Any]:
        winner, _ = await ctx.first(paid=wait(ctx), late=ctx.sleep(2 * DAY))
        return [winner, await ctx.receive("paid", timeout=1)]

    job = order.enqueue()
    tester.run_due()
    queue.pause()
    tester.fast_forward(3 * DAY)
    job.send("paid", "by card")  # both are over when a worker looks
    queue.resume()
    tester.fast_forward(DAY)

    assert job.result(0) == ["late", "by card"]
    tester.assert_replays(job)


def test_a_message_that_was_taken_within_a_branch_that_loses_goes_back(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def order(ctx: WorkflowContext) -> list[Any]:
        winner, _ = await ctx.first(both=receive_two(ctx), late=ctx.sleep(2 * DAY))
        return [winner, await ctx.receive("paid", timeout=1)]

    job = order.enqueue()
    tester.run_due()
    job.send("paid", "by card")
    tester.fast_forward(3 * DAY)

    assert job.result(0) == ["late", "by card"]
    tester.assert_replays(job)


def test_branches_wait_side_by_side(tester: QueueTester, queue: Queue, done: list[str]):
    async def slow(ctx: WorkflowContext, name: str, days: int) -> str:
        await ctx.step(done.append, f"{name} begins")
        await ctx.sleep(days * DAY)
        await ctx.step(done.append, f"{name} ends")
        return name

    @queue.workflow
    async def both(ctx: WorkflowContext) -> Any:
        return await ctx.gather(slow(ctx, "a", 10), slow(ctx, "b", 1), ctx.receive("go"))

    job = both.enqueue()
    tester.run_due()
    job.send("go", 1)
    began = tester.clock()
    tester.fast_forward()

    assert job.result(0) == ["a", "b", 1]
    assert done == ["a begins", "b begins", "b ends", "a ends"]
    assert tester.clock() - began == pytest.approx(10 * 86_400, abs=1)


def test_a_step_that_fails_is_tried_again_and_then_the_run_fails_for_good(
    tester: QueueTester, queue: Queue, done: list[str]
):
    def charge() -> None:
        done.append("charge")
        raise ValueError("card refused")

    @queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.step(charge)

    job = order.enqueue()
    tester.fast_forward()

    with pytest.raises(JobFailed, match="StepFailed: step charge: ValueError: card refused"):
        job.result(0)
    assert done == ["charge"] * 3
    record = queue.get_job(job.id)
    assert record is not None
    assert record.attempts == 1


def test_a_mistake_in_the_code_fails_the_run_after_its_attempts_and_a_requeue_goes_on(
    tester: QueueTester, queue: Queue, done: list[str]
):
    is_mended = False

    @queue.workflow
    async def order(ctx: WorkflowContext) -> str:
        await ctx.step(done.append, "charge")
        if not is_mended:
            raise NameError("typo")
        await ctx.options(name="ship").step(done.append, "ship")
        return "shipped"

    job = order.enqueue()
    tester.fast_forward()
    assert job.status() == "failed"

    is_mended = True
    assert job.requeue()
    tester.fast_forward()

    assert job.result(0) == "shipped"
    assert done == ["charge", "ship"]


def test_progress_resets_the_attempts(tester: QueueTester, queue: Queue):
    attempts = []

    @queue.workflow(max_attempts=2)
    async def unlucky(ctx: WorkflowContext) -> str:
        attempts.append(current_job().attempts)
        for number in range(4):
            await ctx.options(name=f"n{number}").step(int, number)
            if attempts.count(attempts[-1]) and len(attempts) == number + 1:
                raise ConnectionError("once behind each step")
        return "done"

    job = unlucky.enqueue()
    tester.fast_forward()

    assert job.result(0) == "done"
    assert len(attempts) == 5


def test_dependencies_typed_arguments_and_typed_results(tester: QueueTester, queue: Queue):
    @dataclass
    class Order:
        number: int
        due: datetime

    opened = []

    def session() -> Iterator[str]:
        opened.append("open")
        yield f"session {len(opened)}"
        opened.append("close")

    def load(number: int) -> Order:
        return Order(number, datetime(2026, 1, 1, tzinfo=UTC))

    @queue.workflow
    async def fulfil(ctx: WorkflowContext, order: Order, db: str = Depends(session)) -> Order:
        loaded = await ctx.step(load, order.number)
        assert isinstance(loaded, Order)
        assert db.startswith("session")
        await ctx.sleep(DAY)
        return loaded

    Order.__module__ = load.__module__
    globals()["Order"] = Order
    try:
        job = fulfil.enqueue(Order(5, datetime(2026, 1, 2, tzinfo=UTC)))
        tester.fast_forward()
        assert job.result(0) == Order(5, datetime(2026, 1, 1, tzinfo=UTC))
    finally:
        del globals()["Order"]
    assert opened.count("open") == 2


def test_a_run_that_takes_too_long_fails(tester: QueueTester, queue: Queue):
    @queue.workflow(run_timeout=10 * DAY)
    async def waiting(ctx: WorkflowContext) -> None:
        await ctx.receive("never")

    job = waiting.enqueue()
    began = tester.clock()
    tester.fast_forward()

    with pytest.raises(JobFailed, match="run_timeout"):
        job.result(0)
    assert tester.clock() - began == pytest.approx(10 * 86_400, abs=1)


def test_a_loop_without_end_starts_over(tester: QueueTester, queue: Queue, done: list[str]):
    @queue.workflow
    async def agent(ctx: WorkflowContext, thread: str, turn: int = 0) -> int:
        message = await ctx.receive("say")
        await ctx.options(name="answer").step(done.append, f"{thread} {turn} {message}")
        if turn < 3:
            await ctx.start_over(thread, turn=turn + 1)
        return turn

    job = agent.enqueue("t")
    for number in range(4):
        job.send("say", number)
    tester.run_due()

    assert job.result(0) == 3
    assert done == ["t 0 0", "t 1 1", "t 2 2", "t 3 3"]


def test_a_worker_whose_code_does_not_accept_the_version_leaves_the_run_to_others(
    tester: QueueTester, queue: Queue, done: list[str]
):
    @queue.workflow(version=1, name="order")
    async def old(ctx: WorkflowContext) -> int:
        await ctx.sleep(DAY)
        return ctx.version

    job = old.enqueue()
    tester.run_due()
    del queue.registry._tasks["order"], queue.registry._handlers["order"]  # a deploy

    @queue.workflow(version=2, accepts=[2], name="order")
    async def new(ctx: WorkflowContext) -> int:
        return -ctx.version

    tester.fast_forward(DAY + timedelta(minutes=5))
    assert job.status() == "delayed"
    del queue.registry._tasks["order"], queue.registry._handlers["order"]

    @queue.workflow(version=3, accepts=range(1, 4), name="order")
    async def newest(ctx: WorkflowContext) -> int:
        return ctx.version

    tester.fast_forward(timedelta(minutes=5))
    assert job.result(0) == 1


def test_a_plain_task_of_the_same_name_does_not_run_a_run(tester: QueueTester, queue: Queue, done: list[str]):
    @queue.workflow(name="order")
    async def order(ctx: WorkflowContext) -> None:
        await ctx.sleep(DAY)

    job = order.enqueue()
    tester.run_due()
    del queue.registry._tasks["order"], queue.registry._handlers["order"]
    queue.task(name="order")(lambda: done.append("ran"))
    tester.fast_forward(DAY + timedelta(minutes=5))

    assert job.status() == "delayed"
    assert done == []


def test_what_can_not_be_a_workflow_is_refused(queue: Queue):
    with pytest.raises(UsageError, match="must be async"):
        queue.workflow(lambda ctx: None)  # type: ignore[arg-type, return-value]

    async def without() -> None: ...

    with pytest.raises(UsageError, match="must be its context"):
        queue.workflow(without)  # type: ignore[arg-type]

    async def order(number: int) -> None: ...

    with pytest.raises(UsageError, match="'number' is annotated as 'int'"):
        queue.workflow(order)
    with pytest.raises(UsageError, match="version must be"):
        queue.workflow(version=0)(order)
    with pytest.raises(UsageError, match="must contain the version"):
        queue.workflow(version=3, accepts=[1, 2])(order)


def test_calling_it_like_a_function_says_how_to_run_it(queue: Queue):
    @queue.workflow
    async def order(ctx: WorkflowContext, number: int) -> None: ...

    with pytest.raises(UsageError, match="enqueue it"):
        asyncio.run(order(17))


def test_a_cron_slot_may_be_a_workflow_and_overlaps_count_for_the_whole_run(tester: QueueTester, queue: Queue):
    runs: list[int] = []

    @queue.cron("0 2 * * *", overlap="skip")
    @queue.workflow
    async def nightly(ctx: WorkflowContext) -> None:
        await ctx.step(runs.append, 1)
        await ctx.sleep(1.5 * DAY)

    tester.fast_forward(4 * DAY)

    assert len(runs) == 2


def test_cancel_ends_a_suspended_run(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def waiting(ctx: WorkflowContext) -> None:
        await ctx.receive("never")

    job = waiting.enqueue()
    tester.run_due()

    assert job.cancel() == "cancelled"
    assert job.status() == "cancelled"
    assert not job.send("never", 1)


def test_middleware_sees_each_attempt_and_hooks_only_the_end(tester: QueueTester, queue: Queue, done: list[str]):
    async def layer(attempt: Any, call_next: Any) -> Any:
        done.append("begin")
        try:
            return await call_next()
        except Exception:
            done.append("error")
            raise

    queue.use(layer)

    @queue.workflow(on_success=lambda attempt, result: done.append(f"success {result}"))
    async def order(ctx: WorkflowContext) -> str:
        await ctx.sleep(DAY)
        return "yes"

    order.enqueue()
    tester.fast_forward()

    assert done == ["begin", "begin", "success yes"]


def test_eager_mode_refuses_workflows_batches_and_chains() -> None:
    queue = Queue("shop")

    @queue.task
    def add(number: int) -> int:
        return number + 1

    @queue.workflow
    async def order(ctx: WorkflowContext, number: int) -> int:
        return int(await ctx.step(add.function, number))

    with eager():
        with pytest.raises(JobFailed, match="a workflow needs Redis, and eager mode has none"):
            order.enqueue(1).result(0)
        with pytest.raises(UsageError, match="a batch or a chain needs Redis"):
            queue.chain(add.with_args(1), add)
        with pytest.raises(UsageError, match="a batch or a chain needs Redis"), queue.batch("b", add) as batch:
            batch.add([1])


def test_the_record_of_a_sleep_says_when_it_began(tester: QueueTester, queue: Queue):
    """It took a day. The record said that it took no time, because the last attempt came to it when it was over."""

    @queue.workflow
    async def napping(ctx: WorkflowContext) -> None:
        await ctx.sleep(DAY)

    job = napping.enqueue()
    tester.fast_forward()

    record = job.record()
    assert record is not None
    memo = Memo.read(record.fields["step:sleep"])
    assert memo is not None
    assert memo.ended_ms - memo.began_ms == 86_400_000
