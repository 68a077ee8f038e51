"""What all recorded operations have in common: the memo, and what happens when they are cancelled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from schedq.errors import RecordFull, StepChanged
from schedq.model.runs import Memo
from schedq.workflows.branches import Branch, Undecided
from schedq.workflows.recorder import CANCELLED
from schedq.workflows.replay import PATIENCE_S
from schedq.workflows.run import CALL, MAP, WorkflowRun

Perform = Callable[[Branch, str], Awaitable[Memo]]


async def recorded(run: WorkflowRun, kind: str, base: str, perform: Perform) -> tuple[str, Memo]:
    """Do something once in the life of a run: returns the operation's name and its memo.

    Args:
        run: the attempt.
        kind: the kind of the operation.
        base: its name within the branch, without a number.
        perform: does it, and stores its memo; called if there is none.
    """
    branch, name = await run.begin(base)
    memo = await recalled(run, branch, name, kind)
    if memo is None:
        branch.operation, began_ms = name, run.now_ms
        try:
            if branch.is_losing:
                await run.replay.block(branch, math.inf)
            memo = run.record.memos[name] = await perform(branch, name)
        except asyncio.CancelledError:
            if (stored := run.record.memos.get(name)) is None:
                cancelled(run, branch, name, kind, began_ms)
            else:  # it was over, although the branch does not continue
                branch.missed(name, stored)
            raise
        finally:
            branch.operation = ""
    branch.passed(name, memo)
    return name, memo


async def recalled(run: WorkflowRun, branch: Branch, name: str, kind: str) -> Memo | None:
    """The memo of an operation; None if it is not over."""
    memo = run.record.memos.get(name)
    if memo is None:
        try:
            run.record.check(name)
        except RecordFull as error:
            await run.stop(error)
    elif memo.kind != kind:
        await run.stop(
            StepChanged(
                f"operation {name!r} is a {kind} now, and a {memo.kind} in the record of job {run.job.id}: give it "
                "another name, or run the job with the code that it began with"
            )
        )
    elif memo.outcome == CANCELLED:
        await _cancelled_again(run, branch, name, memo)
    return memo


async def _cancelled_again(run: WorkflowRun, branch: Branch, name: str, memo: Memo) -> None:
    """Wait until an operation that the workflow's own code has cancelled is cancelled again."""
    took_ms = memo.ended_ms - memo.began_ms
    if memo.kind in (CALL, MAP):
        await run.call_off(name)  # the attempt that cancelled it may have died before it said so
    await run.replay.block(branch, 2 * took_ms / 1000 + PATIENCE_S)
    await run.stop(
        StepChanged(
            f"operation {name!r} was cancelled by the workflow's own code after {took_ms} ms, and is not now: give it "
            "another name"
        )
    )


def cancelled(run: WorkflowRun, branch: Branch, name: str, kind: str, began_ms: int) -> None:
    """Note that an operation was cancelled, by the workflow's own code or because its branch has lost a race.

    It is stored as soon as the branch does something else, such as the clean-up in a `finally`. In each later attempt
    the operation then waits until it is cancelled again. An operation that is cancelled by the end of the attempt is
    not over.
    """
    if not branch.is_closed and is_cancelled():
        losers = [each for below in branch.below() for each in below.unused if below is not branch]
        branch.undecided.append(Undecided(name, Memo(kind, CANCELLED, None, began_ms, run.now_ms, 1), losers))


def is_cancelled() -> bool:
    """Whether the running task was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
