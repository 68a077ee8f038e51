"""Undoing: what a run that fails for good or is cancelled has done is taken back, the newest step first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from schedq.errors import StepFailed
from schedq.model import backoff as plans
from schedq.model.outcome import Discard
from schedq.model.payload import encode, loaded
from schedq.model.records import NewJob
from schedq.model.runs import KEEP, Memo, RunStopped, undo_name
from schedq.model.times import duration_ms
from schedq.queue.handler import Invocation
from schedq.queue.registry import NoHandler
from schedq.workflows import steps
from schedq.workflows.branches import Branch
from schedq.workflows.operation import recorded
from schedq.workflows.run import WorkflowRun

_OF_JOBS: Final = ("delay", "run_at", "job_id", "expires", "headers")
FindCall = Callable[[Any], Invocation]
"""Finds the function of a payload; raises NoHandler."""


def checked_undo(run: WorkflowRun, call: object) -> str:
    """The payload of a call that undoes a step, as JSON.

    Raises:
        UsageError: it is no call of a task, has options of jobs, or its task can't be called within an attempt.
    """
    if not isinstance(call, NewJob):
        raise run.misused(f"undo must be a call of a task, as in undo=refund.with_args(5), got {call!r:.100}")
    if given := [name for name in _OF_JOBS if getattr(call, name) is not None]:
        raise run.misused(f"undo can't have {given[0]}=, because it is no job of its own: it is called like a step")
    try:
        handler = run.find_call(call.payload).handler
    except NoHandler as missing:
        raise run.misused(f"undo must be a call of a task of the run's queue: {missing}") from None
    for what, has_it in (("is a workflow", handler.workflow), ("has dependencies", handler.injection)):
        if has_it is not None:
            raise run.misused(f"task {handler.name!r} can't undo a step, because it {what}: it is called like a step")
    plan = None if call.backoff is None else plans.to_text(call.backoff)
    timeout_ms = None if call.timeout is None else duration_ms(call.timeout, "timeout")
    stored = [call.payload, call.max_attempts, plan, timeout_ms]
    return encode(stored, run.policy.max_payload, "the call that undoes a step")


async def keep(run: WorkflowRun) -> None:
    """Record that what was done so far stays done."""

    async def perform(branch: Branch, name: str) -> Memo:
        memo = Memo(KEEP, "ok", None, run.now_ms, run.now_ms, 1)
        return await run.requests.ask(branch, run.record.write(name, memo))

    await recorded(run, KEEP, KEEP, perform)


class Undo(NamedTuple):
    """What undoes one step.

    Attributes:
        call: the function and its arguments.
        options: how often it is tried, and so on.
    """

    call: Invocation
    options: steps.StepOptions


def undos(record: Mapping[str, str], find: FindCall) -> dict[str, Undo]:
    """What undoes the steps of a run, by the names of the steps.

    Raises:
        NoHandler: this process does not have one of the tasks.
    """
    found = {}
    for name, text in record.items():
        payload, attempts, plan, timeout_ms = loaded(text)
        call = find(payload)
        handler = call.handler
        backoff = plans.from_text(plan or "") or handler.backoff
        found[name] = Undo(call, steps.StepOptions(None, attempts, backoff, timeout_ms, handler.errors))
    return found


async def take_back(run: WorkflowRun, undos: Mapping[str, Undo]) -> NoReturn:
    """Undo the steps of a run, the newest first, and end it as it would have ended.

    Raises:
        StepFailed: one could not be undone.
        RunStopped: all are undone, and the run was cancelled.
        Discard: all are undone, and this is why the run failed.
    """
    for name, (call, options) in undos.items():
        memo = await steps.undo(run, undo_name(name), options, _function_of(call))
        if memo.outcome != "ok":
            raise StepFailed(undo_name(name), f"step {name} could not be undone: {memo.value}")
    if run.record.undoing:
        raise Discard(run.record.undoing)
    raise RunStopped(f"job {run.job.id} was cancelled, and what it had done is undone")


def _function_of(call: Invocation) -> Callable[[], Any]:
    if call.handler.is_async:

        async def on_the_loop() -> None:
            await call.bound()()

        return on_the_loop
    return lambda: call.bound()()
