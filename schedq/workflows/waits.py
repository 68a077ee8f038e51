"""Operations that wait: for an instant, or for a message."""

from __future__ import annotations

from functools import partial
from typing import Any

from schedq.model.runs import Memo, RunWait
from schedq.workflows.branches import Branch
from schedq.workflows.operation import recorded
from schedq.workflows.run import WorkflowRun


async def sleep(run: WorkflowRun, base: str, *, delay_ms: int | None = None, at_ms: int | None = None) -> None:
    """Wait until an instant, which the first call fixes."""

    async def perform(branch: Branch, name: str) -> Memo:
        began_ms = run.record.since.get(name, run.now_ms)  # in an earlier attempt, if the run was suspended meanwhile
        while True:
            until_ms, now_ms = await run.requests.ask(branch, run.record.until(name, delay_ms=delay_ms, at_ms=at_ms))
            run.saw(now_ms)
            if now_ms >= until_ms:
                await run.replay.turn(branch, until_ms)
                memo = Memo("sleep", "ok", None, began_ms, until_ms, 1)
                return await run.requests.ask(branch, run.record.write(name, memo))
            await run.wait(branch, RunWait("sleep", name, until_ms))

    await recorded(run, "sleep", base, perform)


async def receive(run: WorkflowRun, base: str, topic: str, timeout_ms: int | None) -> Any:
    """Wait for a message, and return its value.

    Raises:
        TimeoutError: none arrived in time.
    """
    _, memo = await recorded(run, "receive", base, partial(_message, run, topic, timeout_ms))
    if memo.outcome == "timeout":
        raise TimeoutError(f"no message for topic {topic!r} arrived in time")
    return memo.value


async def _message(run: WorkflowRun, topic: str, timeout_ms: int | None, branch: Branch, name: str) -> Memo:
    if any(each.topic == topic for each in run.branches.live()):
        raise run.misused(f"two branches wait for topic {topic!r} at the same time; give each a topic of its own")
    branch.topic = topic
    try:
        while True:
            found = await run.requests.ask(branch, run.record.receive(name, topic, timeout_ms))
            if isinstance(found, Memo):
                await run.replay.turn(branch, found.ended_ms)
                return found
            await run.wait(branch, found)
    finally:
        branch.topic = ""
