"""The queue, the workflows and the tasks that are measured; a worker runs them, and the measurements enqueue them.

Instants are those of the monotonic clock, which all processes of a Linux machine share.
"""

from __future__ import annotations

import os
import time
from typing import Any

from schedq import BatchResults, Queue, WorkflowContext

queue = Queue("workflows", redis=os.environ.get("BENCH_REDIS"), max_pending=None)
other = Queue("other", redis=os.environ.get("BENCH_REDIS"), max_pending=None)


async def _nothing() -> None:
    """A step that does nothing."""


@queue.workflow
async def steps(ctx: WorkflowContext, count: int) -> list[float]:
    """Carry out steps, and return when they began and ended."""
    began = time.monotonic()
    for _ in range(count):
        await ctx.step(_nothing)
    return [began, time.monotonic()]


@queue.workflow
async def listen(ctx: WorkflowContext, count: int) -> list[float]:
    """Receive messages, and return when the run continued after each."""
    found = []
    for _ in range(count):
        await ctx.receive("go")
        found.append(await ctx.step(time.monotonic))
    return found


@queue.workflow
async def resume(ctx: WorkflowContext, count: int) -> float:
    """Carry out steps, receive a message, and return when the run continued."""
    for _ in range(count):
        await ctx.step(_nothing)
    await ctx.receive("go")
    return time.monotonic()


@queue.workflow
async def wait(ctx: WorkflowContext) -> Any:
    """Wait for a message that never comes."""
    return await ctx.receive("go")


@queue.task
async def child(number: int) -> float:
    """Return when it ran."""
    return time.monotonic()


@queue.task
async def relay(*before: float) -> float:
    """Return when it ran, behind other nodes of a flow."""
    return time.monotonic()


@queue.task
async def relay_all(before: list[float]) -> list[float]:
    """The same, with when those before ran."""
    return [*before, time.monotonic()]


@queue.workflow
async def calls(ctx: WorkflowContext, count: int) -> list[float]:
    """Run jobs one after the other, and return when each ran."""
    found: list[float] = []
    for _ in range(count):
        found = await ctx.call(relay_all, found)
    return found


@other.task
async def far_relay_all(before: list[float]) -> list[float]:
    """`relay_all` in another queue."""
    return [*before, time.monotonic()]


@other.task
async def far_child(number: int) -> float:
    """`child` in another queue."""
    return time.monotonic()


@queue.workflow
async def far_calls(ctx: WorkflowContext, count: int) -> list[float]:
    """`calls` with jobs of another queue."""
    found: list[float] = []
    for _ in range(count):
        found = await ctx.call(far_relay_all, found)
    return found


@queue.workflow
async def maps(ctx: WorkflowContext, count: int, is_far: bool) -> list[float]:
    """Run many jobs at once, and return when the run began and when it continued."""
    began = await ctx.step(time.monotonic)
    await ctx.map(far_child if is_far else child, range(count))
    return [began, time.monotonic()]


@queue.task
async def after(results: BatchResults[float]) -> list[float]:
    """Return when the last child ran, and when this call began."""
    began = time.monotonic()
    return [max([each async for each in results]), began]
