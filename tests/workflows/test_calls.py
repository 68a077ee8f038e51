"""An operation that is called and never awaited fails the attempt: until now it silently never ran."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from schedq import Discard, Queue, UsageError, WorkflowContext
from schedq.testing import QueueTester
from tests.cases import for_each
from tests.workflows.world import DAY, World, run

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
kept: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    kept.clear()
    gc.collect()


def charge() -> str:
    return "receipt"


async def a_statement(ctx: WorkflowContext) -> None:
    ctx.step(charge)  # type: ignore[unused-coroutine]
    await ctx.sleep(30 * DAY)


async def the_last_statement(ctx: WorkflowContext) -> None:
    await ctx.sleep(1)
    ctx.step(charge)  # type: ignore[unused-coroutine]


async def a_variable(ctx: WorkflowContext) -> None:
    step = ctx.step(charge)
    await ctx.sleep(1)
    del step


async def kept_for_good(ctx: WorkflowContext) -> None:
    kept.append(ctx.step(charge))
    await ctx.sleep(1)


async def the_result(ctx: WorkflowContext) -> Any:
    return ctx.step(charge)


async def in_a_branch(ctx: WorkflowContext) -> None:
    async def branch() -> None:
        ctx.step(charge)  # type: ignore[unused-coroutine]
        await ctx.sleep(DAY)

    await ctx.gather(branch(), ctx.sleep(1))


async def of_a_thread(ctx: WorkflowContext) -> None:
    def call() -> None:
        ctx.step(charge)  # type: ignore[unused-coroutine]

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    await ctx.sleep(DAY)


async def in_a_cycle(ctx: WorkflowContext) -> None:
    cycle: list[Any] = [ctx.step(charge)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    await ctx.sleep(DAY)


NEVER_AWAITED = (
    *(a_statement, the_last_statement, a_variable, kept_for_good, the_result, in_a_branch, of_a_thread, in_a_cycle),
)


@for_each(NEVER_AWAITED)
def test_a_step_that_is_never_awaited_fails_the_attempt(function: Any):
    lives = run(function)

    assert isinstance(lives.error, UsageError)
    error = str(lives.error)
    assert error.startswith("ctx.step(charge) at test_calls.py:")
    assert error.endswith("it did not run: write await ctx.step(...), or give it to ctx.gather or ctx.first")


def test_the_first_attempt_fails_before_anything_waits():
    lives = run(a_statement)

    assert (lives.attempts, lives.suspensions) == (1, [])


ship: Any = Queue("unused", redis="redis://127.0.0.1:1").task(name="ship")(abs)
OTHERS: dict[str, Callable[[WorkflowContext], object]] = {
    "ctx.sleep(60)": lambda ctx: ctx.sleep(60),
    "ctx.receive('paid')": lambda ctx: ctx.receive("paid"),
    "ctx.gather(...)": lambda ctx: ctx.gather(ctx.sleep(1)),
    "ctx.first()": lambda ctx: ctx.first(a=ctx.sleep(1)),
    "ctx.start_over()": lambda ctx: ctx.start_over(),
    "ctx.call(ship)": lambda ctx: ctx.call(ship),
    "ctx.map(ship)": lambda ctx: ctx.map(ship, [1]),
}


@for_each(OTHERS)
def test_each_operation_is_named_with_its_line(name: str):
    async def workflow(ctx: WorkflowContext) -> None:
        OTHERS[name](ctx)
        await ctx.sleep(DAY)

    error = str(run(workflow).error)

    assert error.startswith(f"{name} at test_calls.py:")


def test_the_job_fails_with_it(tester: QueueTester):
    queue = Queue("shop", max_attempts=1)
    run = queue.workflow(a_statement).enqueue()

    tester.run_due()

    record = run.record()
    assert record is not None
    assert record.status == "failed"
    assert "ctx.step(charge) at test_calls.py" in record.last_error


# -- what is in order


async def _later(work: Awaitable[Any]) -> Any:
    await asyncio.sleep(0)
    return await work


async def awaited_later(world: World, ctx: WorkflowContext) -> None:
    step = world.step(ctx, "b")
    await world.step(ctx, "a")
    await ctx.sleep(DAY)
    await step


async def in_forks(world: World, ctx: WorkflowContext) -> None:
    await ctx.gather(world.step(ctx, "a"), ctx.gather(_later(world.step(ctx, "b"))))
    await ctx.sleep(DAY)


async def lost_before_it_began(world: World, ctx: WorkflowContext) -> None:
    """In the second attempt the race was decided, and the branch that lost is closed with all that it holds."""
    await ctx.first(a=world.step(ctx, "a"), b=ctx.gather(_later(ctx.sleep(DAY)), _later(ctx.receive("never"))))
    await ctx.sleep(DAY)
    await world.step(ctx, "b")


async def cancelled_before_it_began(world: World, ctx: WorkflowContext) -> None:
    async def fails() -> None:
        raise Discard("no")

    with suppress(Discard):
        await ctx.gather(fails(), ctx.gather(_later(ctx.sleep(DAY))), _later(ctx.sleep(2 * DAY)))
    await world.step(ctx, "a")
    await ctx.sleep(DAY)
    await world.step(ctx, "b")


async def put_down_with_it(world: World, ctx: WorkflowContext) -> None:
    for name in "ab":
        step = world.step(ctx, name)
        await ctx.sleep(DAY)
        await step


IN_ORDER = (awaited_later, in_forks, lost_before_it_began, cancelled_before_it_began, put_down_with_it)


@for_each(IN_ORDER)
def test_an_operation_that_is_awaited_somewhere_or_need_not_run_is_in_order(function: Any):
    world = World()

    async def workflow(ctx: WorkflowContext) -> None:
        await function(world, ctx)

    lives = run(workflow)

    assert lives.error is None
    assert world.names == ["a", "b"]


def test_an_error_of_the_code_comes_before_what_it_left_undone():
    async def workflow(ctx: WorkflowContext) -> None:
        step = ctx.step(charge)
        raise Discard("first of all")
        await step

    assert str(run(workflow).error) == "first of all"


def test_operations_in_tasks_that_are_no_branches_are_refused_as_before():
    async def workflow(ctx: WorkflowContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(charge))

    assert "no branch of it" in str(run(workflow).error)
