"""Run a workflow again from each part of its record, and compare: code outside of steps must not change its way.

No step is called, nothing is sent and nothing is waited for. An operation without a memo is left waiting. When all
branches wait, one of these operations gets its memo, and the function runs again from its first line.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from schedq.dependencies.lifespan import Resources
from schedq.errors import UsageError
from schedq.model import current_job
from schedq.model.payload import loaded
from schedq.model.records import ClaimedJob, JobRecord
from schedq.model.runs import KEEP, RETURNED, STEP, Memo, Run, RunWait, undone
from schedq.model.times import LAST_INSTANT_MS
from schedq.queue import workflow
from schedq.queue.handler import Invocation
from schedq.queue.queue import Queue
from schedq.queue.task import Task
from schedq.testing.large_memos import large_memos
from schedq.testing.loops import Runner, beside_loop, with_runner
from schedq.testing.runner import LocalAttempt, resources_of
from schedq.workflows.branches import WAITING, WORKING, Branch
from schedq.workflows.context import WorkflowContext
from schedq.workflows.recorder import Suspended
from schedq.workflows.run import WorkflowRun

_MOST_SHOWN: Final = 5
_FORKS: Final = ("first", "gather")
_LARGE: Final = re.compile(r"\blarge=(\d+)")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def differences(queue: Queue, record: JobRecord) -> list[str]:
    """What a workflow does in another way when it runs again; [] if nothing.

    Args:
        queue: has the workflow.
        record: of a job that has completed or failed.

    Raises:
        UsageError: the job is none of a workflow, or has not ended, or its large results are not known here.
    """
    field = Run.read(record.fields.get("run", ""))
    workflow = queue.registry.find(record.payload).handler.workflow
    if workflow is None:
        raise UsageError(f"job {record.id} is none of a workflow")
    if workflow.is_flow:
        raise UsageError(f"job {record.id} is one of a flow, whose graph is stored: no code of it runs again")
    if record.status not in ("completed", "failed"):
        raise UsageError(f"job {record.id} is {record.status}; let it complete or fail first, as with fast_forward()")
    memos = _memos_of(record.fields)
    if record.status == "completed" and (found := _LARGE.search(record.fields.get("run", ""))):
        large = large_memos.values_of(record.id, memos)
        if len(large) < int(found[1]):
            raise UsageError(
                f"job {record.id} was not completed by run_due or fast_forward of this process, so its results of more "
                "than 1 KiB are not known any more"
            )
        memos |= large
    return with_runner(functools.partial(_differences, queue, record, field, memos))


def _memos_of(fields: Mapping[str, str]) -> dict[str, Memo]:
    found = {name.removeprefix(STEP): Memo.read(text) for name, text in fields.items() if name.startswith(STEP)}
    return {
        name: memo
        for name, memo in found.items()
        if memo is not None and memo.outcome != RETURNED and not undone(name)  # the function undoes nothing
    }


def _differences(queue: Queue, record: JobRecord, field: Run, memos: Mapping[str, Memo], runner: Runner) -> list[str]:
    known = {name: memo for name, memo in memos.items() if memo.kind in (*_FORKS, KEEP)}
    forks, arguments, found = len(known), dict[tuple[str, str, int], str](), list[str]()
    with resources_of(queue, runner) as resources:
        while len(found) < _MOST_SHOWN:
            replay = _Replay(queue, record, runner, resources, _Recalled(field, record.fields, known))
            end = replay.settlement()
            where = f"with {len(known) - forks} of {len(memos) - forks} results recorded, "
            found += [where + text for text in _other_arguments(arguments, replay.arguments)]
            if end.move != "suspend":
                said = "completes" if end.move == "complete" else f"fails with {end.note}"
                # Where a race was decided, the record also has what the branches that lost had done.
                if unused := sorted(name for name in memos.keys() - known if not (forks and "/" in name)):
                    found.append(f"{where}it {said}; it does not get to {', '.join(unused)}")
                elif not _is_same_end(record, end.move, end.text, end.note):
                    found.append(f"{where}it {said}; the job {_said(record)}")
                return found
            for wait in replay.waits:
                if _of(memos, wait) is None and record.status == "completed":
                    found.append(f"{where}it begins {wait.name}, a {wait.kind} that is not in its record")
            due = [(memo.ended_ms, wait.name) for wait in replay.waits if (memo := _of(memos, wait)) is not None]
            if not due:
                return found or [f"{where}it waits, and the job {_said(record)}"]
            name = min(due)[1]
            known[name] = memos[name]
    return found


def _of(memos: Mapping[str, Memo], wait: RunWait) -> Memo | None:
    memo = memos.get(wait.name)
    return memo if memo is not None and memo.kind == wait.kind else None


def _other_arguments(seen: dict[tuple[str, str, int], str], now: Mapping[tuple[str, str, int], str]) -> list[str]:
    """Calls whose arguments differ from those of an earlier time; notes the new ones."""
    found = []
    for call, text in now.items():
        if seen.setdefault(call, text) != text:
            found.append(f"it gives step {call[1]} {text:.200}, and gave it {seen[call]:.200} before")
    return found


def _is_same_end(record: JobRecord, move: str, text: str, note: str) -> bool:
    if record.status == "completed":
        return move == "complete" and bool(loaded(text) == loaded(record.fields.get("result")))
    return move in ("fail", "retry", "undo") and note == record.last_error


def _said(record: JobRecord) -> str:
    return "completed" if record.status == "completed" else f"failed with {record.last_error}"


class _Recalled:
    """A record that only knows some memos, and stores nothing."""

    def __init__(self, field: Run, fields: Mapping[str, str], memos: Mapping[str, Memo]) -> None:
        self.memos = dict(memos)
        self.begun: set[str] = set()
        self.topics: set[str] = set()
        self.since: dict[str, int] = {}
        self.tries: dict[str, tuple[int, int, str]] = {}
        self.version, self.began_ms = field.version, field.began_ms
        self.deadline_ms: int | None = None
        self.life, self.requeued = field.life, field.requeued
        self.undos: dict[str, str] = {}
        self.undoing: str | None = None
        self.args: tuple[Sequence[Any], Mapping[str, Any]] | None = loaded(fields.get("args")) if field.life else None

    def check(self, name: str) -> None:
        """There is room."""

    async def until(self, name: str, *, delay_ms: int | None = None, at_ms: int | None = None) -> tuple[int, int]:  # noqa: ARG002
        """Nothing without a memo is over."""
        return LAST_INSTANT_MS, self.began_ms

    async def receive(self, name: str, topic: str, timeout_ms: int | None) -> Memo | RunWait:  # noqa: ARG002
        """No message comes."""
        return RunWait("receive", name, None, topic)

    async def decide(self, name: str, memo: Memo, losers: Sequence[str]) -> Memo:  # noqa: ARG002
        """What decided is only what the memos say."""
        return self.memos.setdefault(name, memo)

    async def write(self, name: str, memo: Memo, replaced: str = "") -> Memo:  # noqa: ARG002
        """Keep it for this replay."""
        return self.memos.setdefault(name, memo)

    async def failed(self, name: str, error: str, delay_ms: int, *, counts: bool = True) -> tuple[int, int]:  # noqa: ARG002
        """No step is called, so none fails."""
        raise AssertionError(f"step {name} was called in a replay, and failed: {error}")

    async def add_undo(self, name: str, call: str) -> str:
        """Nothing is undone in a replay."""
        return self.undos.setdefault(name, call)

    async def start_over(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """The run that ended did not get here, or it would have another record."""


class _Replay(LocalAttempt):
    """One attempt that calls no step.

    Attributes:
        arguments: the arguments of each step, by branch, name and number.
        waits: the operations that have no memo.
    """

    def __init__(self, queue: Queue, record: JobRecord, runner: Runner, resources: Resources, known: _Recalled) -> None:
        job = ClaimedJob(record.id, record.payload, 1, "replay.1", headers=record.headers)
        super().__init__(queue, job, runner, resources)
        self._known = known
        self.arguments: dict[tuple[str, str, int], str] = {}
        self.waits: tuple[RunWait, ...] = ()

    def _result(self, invocation: Invocation) -> Any:
        """Call the function without middleware and hooks, which may have effects."""

        async def arenew(_: ClaimedJob) -> bool:
            return True

        name, renew = invocation.handler.name, lambda _: True
        current_job.context.set(
            current_job.CurrentJob(
                self._job, deadline=None, renew=renew, arenew=arenew, queue=self._queue.name, task=name
            )
        )
        workflow.runner.set(functools.partial(self._replay, invocation))
        if self._known.args is not None:
            args, kwargs = self._known.args
            invocation = invocation._replace(args=args, kwargs=kwargs)
        return self._call(invocation, None)

    async def _replay(
        self,
        invocation: Invocation,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        handler = invocation.handler
        run = WorkflowRun(
            self._known,
            self._job,
            self._policy,
            beside_loop,
            handler.encoded,
            name=handler.name,
            in_place_ms=0,
            find_call=self._queue.registry.find,
        )
        try:
            return await run.execute(function(_Context(run, self.arguments), *args, **kwargs))
        except Suspended as put_down:
            self.waits = put_down.waits
            raise


class _Context(WorkflowContext):
    """A context whose steps wait instead of calling their functions."""

    def __init__(self, run: WorkflowRun, arguments: dict[tuple[str, str, int], str]) -> None:
        super().__init__(run)
        self._arguments, self._counts = arguments, Counter[tuple[str, str]]()

    def _note(self, branch: Branch, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        place = (branch.path, name)
        self._counts[place] += 1
        given = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
        self._arguments[*place, self._counts[place]] = "(" + _ADDRESS.sub("", given) + ")"

    async def call(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Note the arguments; what the job returned is in its memo."""
        branch = self._run.branches.of(asyncio.current_task())
        if branch is not None and not branch.is_closed:
            self._note(branch, f"call {self._options.name or getattr(task, 'name', '?')}", args, kwargs)
        return await super().call(task, *args, **kwargs)

    async def step(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Note the arguments; what the step returns is in its memo."""
        function = function.function if isinstance(function, Task) else function
        branch = self._run.branches.of(asyncio.current_task())
        if not callable(function) or branch is None or branch.is_closed:  # refused, or put down: nothing is called
            return await super().step(function, *args, **kwargs)
        self._note(branch, str(self._options.name or getattr(function, "__name__", "?")), args, kwargs)

        @functools.wraps(function)
        async def wait(*_: Any, **__: Any) -> Any:
            branch.waits = (RunWait("step", branch.operation, None),)
            self._run.branches.become(branch, WAITING)
            try:
                return await asyncio.get_running_loop().create_future()
            finally:
                branch.waits = ()
                if branch.state == WAITING:
                    self._run.branches.become(branch, WORKING)

        return await super().step(wait, *args, **kwargs)
