"""Branches of workflows: what runs side by side, which one wins, and what is cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from schedq.errors import UsageError
from schedq.workflows.context import WorkflowContext
from tests.workflows.simulated import Stored, in_virtual_time, live
from tests.workflows.world import DAY, World, run


def test_operations_of_branches_have_names_of_their_own_whatever_they_take(world: World):
    """B comes first in the first attempt. In the second one both steps are over, and A comes first."""

    async def branch(ctx: WorkflowContext, name: str, seconds: float, days: int) -> str:
        await world.step(ctx, f"{name}1", seconds)
        await ctx.sleep(days * DAY)
        return str(await world.step(ctx, f"{name}2"))

    async def workflow(ctx: WorkflowContext) -> Any:
        return await ctx.gather(branch(ctx, "a", 0.02, 1), branch(ctx, "b", 0.01, 10))

    lives = run(workflow)

    assert lives.result == ("a2", "b2")
    assert world.done == [("a1", 0.0), ("b1", 0.0), ("a2", DAY), ("b2", 10 * DAY)]


def test_deep_branches_go_on_while_one_of_them_waits(world: World):
    async def deep(ctx: WorkflowContext, levels: int) -> str:
        if levels:
            return (await ctx.gather(deep(ctx, levels - 1)))[0]
        await world.step(ctx, "one")
        return str(await world.step(ctx, "ask"))

    async def workflow(ctx: WorkflowContext) -> Any:
        return await ctx.gather(ctx.receive("answer"), deep(ctx, 6))

    assert run(workflow, (50, "answer", 42)).result == (42, "ask")
    assert world.names == ["one", "ask"]


def test_a_branch_that_awaits_anything_else_is_at_work(world: World):
    async def polling(ctx: WorkflowContext) -> None:
        for number in range(5):
            await asyncio.sleep(0.02)
            await world.step(ctx, str(number))

    async def workflow(ctx: WorkflowContext) -> Any:
        return await ctx.gather(ctx.receive("stop"), polling(ctx))

    lives = run(workflow, (50, "stop", None))

    assert world.names == ["0", "1", "2", "3", "4"]
    assert lives.attempts == 2


def test_who_won_a_race_is_never_forgotten(world: World):
    async def workflow(ctx: WorkflowContext) -> Any:
        winner, _ = await ctx.first(paid=ctx.receive("paid"), late=ctx.sleep(2 * DAY))
        await world.step(ctx, "ship" if winner == "paid" else "cancel")
        await ctx.sleep(5 * DAY)
        return [winner, await ctx.receive("paid")]

    lives = run(workflow, (3 * DAY, "paid", 5))

    assert lives.result == ["late", 5]
    assert world.names == ["cancel"]


def test_of_two_that_are_over_at_a_late_resumption_the_earlier_one_has_won():
    async def workflow(ctx: WorkflowContext) -> Any:
        return (await ctx.first(long=ctx.sleep(2 * DAY), paid=ctx.receive("paid"), short=ctx.sleep(1.5 * DAY)))[0]

    async def both(at: float) -> Any:
        store, loop = Stored(), asyncio.get_running_loop()
        loop.call_later(at, store.send, "paid", 1)
        lives = live(workflow, store)
        first = asyncio.ensure_future(lives)
        await asyncio.sleep(0.1)
        first.cancel()  # no worker for five days
        await asyncio.sleep(5 * DAY)
        return (await live(workflow, store)).result

    assert in_virtual_time(both(DAY)) == "paid"
    assert in_virtual_time(both(1.7 * DAY)) == "short"


def test_a_message_that_a_losing_branch_took_goes_back():
    async def taking(ctx: WorkflowContext) -> None:
        await ctx.receive("x")
        await asyncio.sleep(3600)

    async def workflow(ctx: WorkflowContext) -> Any:
        winner, _ = await ctx.first(a=taking(ctx), b=ctx.sleep(100))
        return [winner, await ctx.receive("x", timeout=10)]

    assert run(workflow, (50, "x", "mine")).result == ["b", "mine"]


def test_finally_runs_when_the_function_gets_there_and_not_when_it_is_put_down(world: World):
    seen: list[bool] = []

    async def workflow(ctx: WorkflowContext) -> None:
        await world.step(ctx, "lock")
        try:
            await ctx.sleep(10 * DAY)
            await world.step(ctx, "use")
        finally:
            seen.append(ctx.is_suspending)
            await world.step(ctx, "unlock")

    assert run(workflow).error is None
    assert world.names == ["lock", "use", "unlock"]
    assert seen == [True, False]


@pytest.mark.parametrize("way", ["task", "shield", "wait_for", "gather", "group"])
def test_operations_in_tasks_that_are_no_branches_are_refused_at_the_first_attempt(world: World, way: str):
    strays: list[asyncio.Task[None]] = []

    async def workflow(ctx: WorkflowContext) -> None:
        if way == "task":
            strays.append(asyncio.create_task(ctx.sleep(DAY)))  # never awaited before it has failed
            await ctx.receive("never", timeout=DAY)
        elif way == "shield":
            await asyncio.shield(world.step(ctx, "a"))
        elif way == "wait_for":
            await asyncio.wait_for(asyncio.shield(ctx.receive("x")), 5)
        elif way == "gather":
            await asyncio.gather(world.step(ctx, "a"), world.step(ctx, "b"))
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(world.step(ctx, "a"))

    lives = run(workflow)

    assert isinstance(lives.error, UsageError)
    assert "ctx.gather" in str(lives.error)
    assert lives.attempts == 1
    assert world.names == []
    assert [stray.exception() for stray in strays] == [lives.error] * (way == "task")


def test_code_that_outlives_its_attempt_can_do_nothing(world: World):
    tasks: list[asyncio.Task[Any]] = []

    async def poll(ctx: WorkflowContext) -> None:
        await asyncio.sleep(1)
        await world.step(ctx, "body")

    async def workflow(ctx: WorkflowContext) -> None:
        if not tasks:
            tasks.append(asyncio.create_task(poll(ctx)))
        await ctx.sleep(100)

    lives = run(workflow)

    assert lives.error is None
    assert tasks[0].cancelled()
    assert world.names == []


def test_who_swallows_the_cancellation_is_suspended_all_the_same(world: World, caplog: pytest.LogCaptureFixture):
    async def workflow(ctx: WorkflowContext) -> str:
        with suppress(asyncio.CancelledError):
            await ctx.receive("go")
        if ctx.is_suspending:
            return "without go"
        return str(await world.step(ctx, "fire"))

    assert run(workflow, (60, "go", None)).result == "fire"
    assert world.names == ["fire"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "returned instead" in caplog.text


def test_a_loop_that_swallows_everything_ends_once_its_wait_is_over(world: World):
    """It swallows for a while, as clean-up code does, and does not occupy the event loop meanwhile."""

    async def workflow(ctx: WorkflowContext) -> Any:
        tries = 0
        while (tries := tries + 1) < 30:
            with suppress(BaseException):
                return await ctx.receive("x")
        return "too many"

    assert run(workflow, (60, "x", 7)).result == 7


def test_an_error_in_the_clean_up_does_not_fail_the_attempt():
    async def cleaning() -> None:
        try:
            await asyncio.sleep(DAY)
        finally:
            raise ValueError("clean-up")

    async def workflow(ctx: WorkflowContext) -> Any:
        async with asyncio.TaskGroup() as group:
            if not await ctx.options(name="again").step(bool, 0):
                task = group.create_task(cleaning())
            with suppress(TimeoutError):
                await ctx.receive("x", timeout=60)
            task.cancel()
            with suppress(ValueError):
                await task
        return "end"

    lives = run(workflow)

    assert len(lives.suspensions) == 1
    assert isinstance(lives.error, ExceptionGroup)  # at the end, where it belongs


def test_limits_of_asyncio_strike_if_they_are_short_and_are_refused_if_not(world: World):
    async def short(ctx: WorkflowContext) -> Any:
        try:
            async with asyncio.timeout(0.05):
                await ctx.receive("x")
        except TimeoutError:
            await ctx.sleep(DAY)
            return await ctx.receive("x", name="second")

    async def long(ctx: WorkflowContext) -> Any:
        async with asyncio.timeout(2 * DAY):
            await ctx.gather(ctx.receive("x"), ctx.receive("y"))

    assert run(short, (60, "x", 1)).result == 1
    assert "ctx.receive(topic, timeout=60)" in str(run(long).error)


def test_a_step_that_the_code_cancelled_stays_cancelled(world: World):
    async def workflow(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(1):
                await world.step(ctx, "slow", 5)
        except TimeoutError:
            await ctx.sleep(DAY)
            return str(await world.step(ctx, "plan b"))
        return "?"

    assert run(workflow).result == "plan b"
    assert world.names == ["slow", "plan b"]


def test_a_gather_that_failed_fails_by_the_same_branch_ever_after(world: World):
    """On day 2, A's wait is over as well, and A comes first."""

    async def a(ctx: WorkflowContext) -> None:
        await ctx.sleep(DAY)
        raise ValueError("a")

    async def b(ctx: WorkflowContext) -> None:
        await ctx.receive("x")
        raise ValueError("b")

    async def workflow(ctx: WorkflowContext) -> Any:
        try:
            await ctx.gather(a(ctx), b(ctx))
        except ValueError as error:
            await ctx.sleep(2 * DAY)
            return str(await world.step(ctx, str(error)))

    assert run(workflow, (0.5 * DAY, "x", 1)).result == "b"


def test_a_mistake_in_a_branch_decides_nothing(world: World):
    def code(attempt: int) -> Any:
        async def branch(ctx: WorkflowContext) -> str:
            await world.step(ctx, "one")
            if attempt == 1:
                raise NameError("typo")
            return str(await world.step(ctx, "two"))

        async def workflow(ctx: WorkflowContext) -> Any:
            return await ctx.gather(branch(ctx), ctx.sleep(DAY))

        return workflow

    assert run(code, by_attempt=True, max_attempts=3).result == ("two", None)
    assert world.names == ["one", "two"]


def test_two_branches_that_wait_for_one_topic_are_refused():
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.gather(ctx.receive("x"), ctx.receive("x"))

    assert "a topic of its own" in str(run(workflow).error)
