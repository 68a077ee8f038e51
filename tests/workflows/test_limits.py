"""`asyncio.timeout` and its like around waits, on event loops that do not list their timers, as uvloop's does not."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from schedq.workflows import limits
from schedq.workflows.context import WorkflowContext
from tests.workflows.simulated import Lives, Stored, VirtualLoop, live
from tests.workflows.world import DAY


class HidingLoop(VirtualLoop):
    """An event loop that shows its timers to asyncio only."""

    def __getattribute__(self, name: str) -> Any:
        if name == "_scheduled" and sys._getframe(1).f_globals["__name__"] == limits.__name__:
            raise AttributeError(name)
        return super().__getattribute__(name)


def uvloop() -> asyncio.AbstractEventLoop:
    made: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return made


LOOPS = pytest.mark.parametrize("make_loop", [VirtualLoop, HidingLoop, uvloop])


def run(workflow: Any, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> Lives:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(live(workflow, Stored()))


async def asyncios(ctx: WorkflowContext) -> None:
    async with asyncio.timeout(2 * DAY):
        await ctx.receive("x")


async def set_later(ctx: WorkflowContext) -> None:
    async with asyncio.timeout(None) as limit:
        limit.reschedule(asyncio.get_running_loop().time() + 2 * DAY)
        await ctx.gather(ctx.receive("x"), ctx.receive("y"))


async def of_anyio(ctx: WorkflowContext) -> None:
    with anyio.fail_after(2 * DAY):
        await ctx.sleep(DAY * 3)


@LOOPS
@pytest.mark.parametrize("workflow", [asyncios, set_later, of_anyio])
def test_a_limit_around_a_wait_is_refused(workflow: Any, make_loop: Callable[[], asyncio.AbstractEventLoop]):
    """While the run is suspended, nothing would see it. On uvloop it was suspended without a word."""
    assert "limit the wait itself, as in ctx.receive(topic, timeout=60)" in str(run(workflow, make_loop).error)


async def short(ctx: WorkflowContext) -> str:
    try:
        async with asyncio.timeout(0.05):
            await ctx.receive("x")
    except TimeoutError:
        return "too late"
    return ""


async def in_time(ctx: WorkflowContext) -> str:
    async with asyncio.timeout(2 * DAY):
        await asyncio.sleep(0)
    try:
        await ctx.receive("x", timeout=0.6)
    except TimeoutError:
        return "no message"
    return ""


@LOOPS
@pytest.mark.parametrize(("workflow", "result"), [(short, "too late"), (in_time, "no message")])
def test_a_short_limit_strikes_and_one_that_is_over_does_not_count(
    workflow: Any, result: str, make_loop: Callable[[], asyncio.AbstractEventLoop]
):
    assert run(workflow, make_loop).result == result


def test_limits_are_noted_no_longer_than_they_exist():
    async def many() -> int:
        limits.watched(asyncio.get_running_loop())
        for _ in range(1000):
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
        gc.collect()
        return len(limits._noted[asyncio.get_running_loop()])

    with asyncio.Runner(loop_factory=HidingLoop) as runner:
        assert runner.run(many()) <= 1
