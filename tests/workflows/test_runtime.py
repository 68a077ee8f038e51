"""What workflows do, attempt by attempt, without a server and in virtual time."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any, NoReturn

import pytest

from schedq.errors import RecordFull, StepChanged, StepFailed
from schedq.model.outcome import Discard, Snooze
from schedq.model.runs import RunLost
from schedq.workflows.branches import Branch
from schedq.workflows.context import WorkflowContext
from schedq.workflows.requests import Requests
from tests.workflows.simulated import BEGAN_MS, Stored
from tests.workflows.world import DAY, World, run


def test_a_step_runs_once_and_its_result_is_there_in_every_later_attempt(world: World):
    async def workflow(ctx: WorkflowContext) -> Any:
        first = await ctx.step(world.act, "a")
        await ctx.sleep(DAY)
        second = await ctx.step(world.say, "b")
        return [first, second]

    lives = run(workflow)

    assert lives.result == ["a", "b"]
    assert lives.attempts == 2
    assert world.done == [("a", 0.0), ("b", DAY)]


def test_sleeps_wait_on_the_clock_of_the_record_and_short_ones_in_place(world: World):
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.sleep(0.3)
        await ctx.sleep_until((BEGAN_MS + 10_000) / 1000)
        await world.step(ctx, "a")

    lives = run(workflow)

    assert lives.attempts == 2
    assert world.done == [("a", 10.0)]


def test_a_step_is_tried_again_and_the_waits_suspend_the_run(world: World):
    world.fails["charge"] = [ValueError("no"), ValueError("no")]

    async def workflow(ctx: WorkflowContext) -> Any:
        return await world.step(ctx, "charge")

    lives = run(workflow)

    assert lives.result == "charge"
    assert [at for _, at in world.done] == pytest.approx([0, 30, 60], abs=0.5)
    assert lives.attempts == 3


def test_the_last_failure_is_raised_now_and_in_every_replay(world: World):
    world.fails["charge"] = [ValueError("no")] * 9

    async def workflow(ctx: WorkflowContext) -> Any:
        try:
            await world.step(ctx, "charge")
        except StepFailed as error:
            found = (error.step, error.error)
        await ctx.sleep(DAY)
        return found

    assert run(workflow).result == ("charge", "ValueError: no")
    assert world.names == ["charge"] * 3


def test_discard_is_final_and_snooze_costs_no_try(world: World):
    world.fails["a"] = [Snooze(60)] * 5
    world.fails["b"] = [Discard("never")]

    async def workflow(ctx: WorkflowContext) -> Any:
        await world.step(ctx, "a")
        with pytest.raises(StepFailed, match="never"):
            await world.step(ctx, "b")

    assert run(workflow).error is None
    assert world.names == ["a"] * 6 + ["b"]


def test_a_result_that_cannot_be_stored_is_a_failure_and_not_tried_again(world: World):
    def odd() -> object:
        world.say("odd")
        return object()

    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.step(odd)

    lives = run(workflow)

    assert isinstance(lives.error, StepFailed)
    assert "can't be stored" in str(lives.error)
    assert world.names == ["odd"]


def test_a_step_that_takes_too_long_is_interrupted_and_tried_again(world: World):
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.options(timeout=5, max_attempts=2).step(world.act, "slow", 60)

    lives = run(workflow)

    assert "timed out after 5 s" in str(lives.error)
    assert world.names == ["slow", "slow"]


def test_messages_are_taken_in_order_before_and_after_the_run_waits_for_them():
    async def workflow(ctx: WorkflowContext) -> Any:
        await ctx.sleep(100)
        return [await ctx.receive("x"), await ctx.receive("x"), await ctx.receive("y")]

    lives = run(workflow, (1, "x", 1), (200, "x", 2), (150, "y", 3))

    assert lives.result == [1, 2, 3]


def test_a_message_that_comes_too_late_is_left_for_the_next_wait():
    async def workflow(ctx: WorkflowContext) -> Any:
        try:
            await ctx.receive("x", timeout=100)
        except TimeoutError:
            return ["late", await ctx.receive("x")]

    assert run(workflow, (150, "x", 1)).result == ["late", 1]


def test_a_typo_in_a_deploy_stops_the_run_and_keeps_its_record(world: World):
    def code(attempt: int) -> Any:
        async def workflow(ctx: WorkflowContext) -> Any:
            await world.step(ctx, "one")
            if attempt == 1:
                raise NameError("typo")
            return await world.step(ctx, "two")

        return workflow

    store: list[Stored] = []
    lives = run(lambda n: code(1), by_attempt=True, max_attempts=3, stored=store)

    assert isinstance(lives.error, NameError)
    assert (lives.attempts, world.names) == (3, ["one"])
    assert list(store[0].memos) == ["one"]


def test_steps_may_be_added_removed_and_moved(world: World):
    def code(attempt: int) -> Any:
        async def before(ctx: WorkflowContext) -> None:
            await world.step(ctx, "a")
            await world.step(ctx, "b")
            await ctx.sleep(DAY)

        async def after(ctx: WorkflowContext) -> None:
            await world.step(ctx, "b")
            await world.step(ctx, "new")
            await ctx.sleep(DAY)

        return before if attempt == 1 else after

    lives = run(code, by_attempt=True)

    assert lives.error is None
    assert world.names == ["a", "b", "new"]


def test_another_kind_under_a_name_stops_the_run(world: World):
    def code(attempt: int) -> Any:
        async def before(ctx: WorkflowContext) -> None:
            await world.step(ctx, "a")
            await ctx.sleep(DAY)

        async def after(ctx: WorkflowContext) -> None:
            with suppress(Exception):
                await ctx.sleep(1, name="a")
            await world.step(ctx, "b")

        return before if attempt == 1 else after

    lives = run(code, by_attempt=True)

    assert isinstance(lives.error, StepChanged)
    assert "'a' is a sleep now, and a step in the record" in str(lives.error)
    assert world.names == ["a"]


def test_a_full_record_fails_the_run_before_a_function_is_called(world: World):
    async def workflow(ctx: WorkflowContext) -> None:
        for number in range(1000):
            await world.step(ctx, f"n{number}")

    lives = run(workflow)

    assert isinstance(lives.error, RecordFull)
    assert len(world.names) == 500


def test_a_step_inside_a_step_is_refused():
    async def workflow(ctx: WorkflowContext) -> None:
        async def outer() -> None:
            await ctx.sleep(1)

        await ctx.step(outer)

    assert "may not use the context" in str(run(workflow).error)


def test_a_worker_that_stops_ends_the_attempt_and_the_next_one_goes_on(world: World):
    async def workflow(ctx: WorkflowContext) -> Any:
        try:
            await world.step(ctx, "a")
            await world.step(ctx, "long", 60)
        finally:
            await world.step(ctx, "clean up")

    lives = run(workflow, release_after=lambda attempt: 30 if attempt == 1 else None)

    assert lives.attempts == 2
    assert world.names == ["a", "long", "long", "clean up"]


def test_a_worker_that_lost_its_lease_writes_nothing_more(world: World):
    async def workflow(ctx: WorkflowContext) -> Any:
        for number in range(4):
            await world.step(ctx, f"n{number}", 20)

    store: list[Stored] = []
    lives = run(workflow, kill_after=lambda attempt: 30 if attempt == 1 else None, stored=store)

    assert lives.error is None
    assert world.names == ["n0", "n1", "n1", "n2", "n3"]
    assert store[0].writes == ["n0", "n1", "n2", "n3"]


def test_a_run_that_starts_over_has_an_empty_record(world: World):
    store: list[Stored] = []

    async def workflow(ctx: WorkflowContext) -> Any:
        turn = 0 if store[0].args is None else store[0].args[0][0]
        await ctx.step(world.act, f"turn {turn}")
        if turn < 2:
            await ctx.start_over(turn + 1)
        return turn

    lives = run(workflow, stored=store)

    assert lives.result == 2
    assert world.names == ["turn 0", "turn 1", "turn 2"]


def test_a_request_that_an_attempt_has_left_to_itself_is_not_logged_when_it_fails():
    said: list[Any] = []

    async def attempt() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        main, is_due = Branch("", None, 0), asyncio.Event()

        async def write() -> None:
            await is_due.wait()
            raise RunLost("another attempt has the lease")

        async def stop(error: BaseException) -> NoReturn:
            raise error

        requests = Requests("order-17", main, stop)
        asking = asyncio.create_task(requests.ask(main, write()))
        await asyncio.sleep(0)
        main.close()
        asking.cancel()
        await asyncio.wait([asking])
        is_due.set()
        await requests.ended()

    asyncio.run(attempt())
    gc.collect()
    assert said == []
