"""Jobs of operations that no longer matter: of a lost race, of a failed sibling, and of a run that was cancelled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from schedq import Discard, Fixed, JobCancelled, Queue, Snooze, StepFailed, WorkflowContext
from schedq.testing import QueueTester
from schedq.workflows.run import WorkflowRun

HOUR = timedelta(hours=1)


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    """A queue whose retries follow after a minute."""
    return Queue("shop", backoff=Fixed(60))


def test_a_call_that_loses_a_race_is_called_off(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def slow(ctx: WorkflowContext) -> None:
        await ctx.sleep(10 * HOUR)

    @queue.workflow
    async def race(ctx: WorkflowContext) -> str:
        winner, _ = await ctx.first(slow=ctx.call(slow), late=ctx.sleep(HOUR))
        await ctx.sleep(HOUR)
        return winner

    job = race.enqueue()
    tester.fast_forward(3 * HOUR)

    assert job.result(0) == "late"
    assert queue.stats()["cancelled_depth"] == 1
    assert queue.stats()["delayed_depth"] == 0


@pytest.mark.parametrize("within", ["map", "gather"])
def test_a_map_that_loses_a_race_is_called_off_while_its_run_continues(tester: QueueTester, queue: Queue, within: str):
    begun: list[int] = []

    @queue.task
    def poll(number: int) -> None:
        begun.append(number)
        raise Snooze(600)

    async def all_of_them(ctx: WorkflowContext) -> Any:
        work = ctx.map(poll, range(100), concurrency=2)
        return await (work if within == "map" else ctx.gather(work, ctx.receive("more")))

    @queue.workflow
    async def race(ctx: WorkflowContext) -> str:
        winner, _ = await ctx.first(all=all_of_them(ctx), late=ctx.sleep(HOUR))
        await ctx.receive("end")
        return winner

    job = race.enqueue()
    tester.fast_forward(2 * HOUR)
    (batch,) = queue.list_batches()
    count = len(begun)
    tester.fast_forward(HOUR)

    assert batch.status == "cancelled"
    assert len(begun) == count
    job.send("end")
    tester.run_due()
    assert job.result(0) == "late"
    tester.assert_replays(job)


def test_a_later_attempt_calls_off_what_the_one_that_decided_could_not(
    tester: QueueTester, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    @queue.task
    def poll(number: int) -> None:
        raise Snooze(600)

    @queue.workflow
    async def race(ctx: WorkflowContext) -> None:
        await ctx.first(all=ctx.map(poll, range(9), concurrency=2), late=ctx.sleep(HOUR))
        await ctx.receive("more")
        await ctx.receive("end")

    async def fail(*_: Any) -> None: ...

    job = race.enqueue()
    with monkeypatch.context() as patched:
        patched.setattr(WorkflowRun, "call_off", fail)
        tester.fast_forward(2 * HOUR)
        assert [each.status for each in queue.list_batches()] == ["running"]
    job.send("more")
    tester.fast_forward(HOUR)

    assert [each.status for each in queue.list_batches()] == ["cancelled"]


def test_a_map_whose_sibling_has_failed_is_called_off_if_the_run_continues(tester: QueueTester, queue: Queue):
    is_caught = True

    @queue.task
    def poll(number: int) -> None:
        raise Snooze(600)

    def fail() -> None:
        raise Discard("sold out")

    @queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        try:
            await ctx.gather(ctx.map(poll, range(9), concurrency=2), ctx.step(fail))
        except StepFailed:
            if not is_caught:
                raise
        await ctx.receive("end")

    order.enqueue()
    tester.fast_forward(HOUR)
    (batch,) = queue.list_batches()
    assert batch.status == "cancelled"
    is_caught = False
    job = order.enqueue()
    tester.fast_forward(HOUR)

    assert job.status() == "failed"
    assert [each.status for each in queue.list_batches() if each.id != batch.id] == ["running"]  # it may be requeued


def test_the_jobs_of_a_cancelled_run_are_cancelled(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def slow(ctx: WorkflowContext, number: int) -> None:
        await ctx.sleep(10 * HOUR)

    @queue.workflow
    async def all_of_them(ctx: WorkflowContext) -> None:
        await ctx.map(slow, range(3))

    job = all_of_them.enqueue()
    tester.run_due()
    job.cancel()
    tester.fast_forward(HOUR)

    with pytest.raises(JobCancelled):
        job.result(0)
    assert queue.stats()["cancelled_depth"] == 4
    assert queue.stats()["delayed_depth"] == 0
