"""Steps: functions of the application that run once, as far as the record is concerned."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from schedq.errors import StepFailed, UsageError
from schedq.logs import log
from schedq.model import backoff as plans
from schedq.model import outcome
from schedq.model.callables import name_of, not_run
from schedq.model.outcome import BackoffFunction, ErrorRules, Policy
from schedq.model.payload import clean_text, decode, encode
from schedq.model.runs import Memo, RunWait, checked_operation
from schedq.queue.conversion import Conversion, conversion_of, may_convert
from schedq.queue.task import Task
from schedq.workflows.branches import Branch
from schedq.workflows.operation import is_cancelled, recorded
from schedq.workflows.requests import to_its_end
from schedq.workflows.run import WorkflowRun

_conversions: Final[WeakKeyDictionary[Callable[..., Any], Conversion | None]] = WeakKeyDictionary()


class StepOptions(NamedTuple):
    """The options of one step; None means those of the workflow's job.

    Attributes:
        name: its name in the record; None for the function's.
        max_attempts: how often it is tried.
        backoff: the waits between the tries.
        timeout_ms: how long one try may take; None for no limit.
        errors: which exceptions are worth another try.
        undo: the call that undoes it, as a payload; None for none.
    """

    name: str | None = None
    max_attempts: int | None = None
    backoff: plans.Plan | BackoffFunction | None = None
    timeout_ms: int | None = None
    errors: ErrorRules | None = None
    undo: str | None = None

    def policy(self, job: Policy) -> Policy:
        """The rules of the step within a job."""
        return Policy(
            self.max_attempts or job.max_attempts,
            self.backoff or job.backoff,
            job.max_payload,
            errors=self.errors or job.errors,
        )


async def step(
    run: WorkflowRun, options: StepOptions, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run the function until it has succeeded once or failed for good, and return the recorded result."""
    function = function.function if isinstance(function, Task) else function
    if not callable(function):
        raise run.misused(f"ctx.step takes a function and its arguments, got {function!r:.100}")
    cause: BaseException | None = None

    async def perform(branch: Branch, name: str) -> Memo:
        nonlocal cause
        if options.undo is not None and name not in run.record.undos:
            await run.requests.ask(branch, run.record.add_undo(name, options.undo))
        tries = _Step(run, branch, name, options, partial(function, *args, **kwargs), function)
        memo = await tries.memo()
        cause = tries.error
        return memo

    name, memo = await recorded(run, "step", _base_name(run, options, function), perform)
    if memo.outcome != "ok":
        raise StepFailed(name, str(memo.value)) from cause
    conversion = _conversion_of(function)
    return memo.value if conversion is None else conversion.decode_result(memo.value)


def _base_name(run: WorkflowRun, options: StepOptions, function: Callable[..., Any]) -> str:
    if options.name is not None:
        return options.name
    try:
        name = name_of(function)
        return checked_operation(name if name != "<lambda>" else None)
    except UsageError:
        raise run.misused(
            f"the step {function!r:.100} has no name of its own; write ctx.options(name=...).step(...)"
        ) from None


async def undo(run: WorkflowRun, name: str, options: StepOptions, function: Callable[..., Any]) -> Memo:
    """Call what undoes a step, as a step of this name; what it returns is not kept."""
    memo = run.record.memos.get(name)
    if memo is None:
        branch = run.branches.main
        memo = await _Step(run, branch, name, options, function, function, kind="undo").memo()
    return memo


class _Step:
    """The tries of one step, or of what undoes one."""

    def __init__(
        self,
        run: WorkflowRun,
        branch: Branch,
        name: str,
        options: StepOptions,
        call: Callable[[], Any],
        function: Callable[..., Any],
        kind: str = "step",
    ) -> None:
        self._kind = kind
        self._run, self._branch, self._name, self._options = run, branch, name, options
        self._call, self._function = call, function
        self._policy = options.policy(run.policy)
        self.error: BaseException | None = None

    async def memo(self) -> Memo:
        """Try it until it has succeeded or failed for good."""
        run, name = self._run, self._name
        tries, next_ms, _ = run.record.tries.get(name, (0, 0, ""))
        while True:
            while run.now_ms < next_ms:
                await run.wait(self._branch, RunWait("retry", name, next_ms))
            if next_ms:
                await run.replay.turn(self._branch, next_ms)
            began_ms, self.error = run.now_ms, None
            try:
                value = await self._value()
            except asyncio.CancelledError as error:
                if self._branch.is_closed or is_cancelled():
                    raise
                self.error = error  # of its own
            except BaseException as error:  # noqa: BLE001 - whatever a step raises is its failure
                self.error = error
            if self.error is None:
                return await self._stored(*self._storable(value), began_ms, tries + 1)
            one_try = replace(run.job, attempts=tries + 1, gate_key="", run="")
            end = outcome.failed(one_try, self.error, self._policy)
            if end.move == "fail":
                return await self._stored("error", end.text, began_ms, tries + 1)
            text = end.note or outcome.described(self.error)
            request = partial(run.record.failed, name, text, end.delay_ms, counts=end.move == "retry")
            tries, next_ms = await run.requests.store(self._branch, request)
            run.record.tries[name] = (tries, next_ms, text)
            if end.move == "retry":
                self._say(tries, text, end.delay_ms)

    async def _stored(self, kind: str, value: Any, began_ms: int, attempt: int) -> Memo:
        run = self._run
        memo = Memo(self._kind, kind, value, began_ms, run.now_ms, attempt)
        return await run.requests.store(self._branch, partial(run.record.write, self._name, memo))

    def _storable(self, value: Any) -> tuple[str, Any]:
        """A result as it will be read back; what can't be stored is a failure, and not tried again: it is done."""
        if self._kind != "step":
            return "ok", None
        try:
            if kind := not_run(value):
                return "error", f"it returned {kind}, whose code has not run"
            conversion = _conversion_of(self._function)
            value = value if conversion is None else conversion.encode_result(value)
            return "ok", decode(encode(value, self._policy.max_payload, "result"))
        except BaseException as error:  # noqa: BLE001 - a user's object may do anything, even while it is inspected
            self.error = error
            return "error", clean_text(f"its result can't be stored: {outcome.described(error)}", 1000)

    async def _value(self) -> Any:
        """What the function returns, within its timeout."""
        timeout_ms = self._options.timeout_ms
        limit = None if timeout_ms is None else timeout_ms / 1000
        if not _is_async(self._function):
            return await self._from_thread(limit)
        return await self._within(limit, self._call())

    async def _within(self, limit: float | None, work: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(limit) as timer:
                return await work
        except TimeoutError:
            if timer.expired():
                raise _too_long(limit) from None
            raise

    async def _from_thread(self, limit: float | None) -> Any:
        """What a plain function returns. Nothing can end it, so a cancellation waits for its end."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        future = self._run.in_thread(self._call)
        await to_its_end(future)
        value = future.result()
        if limit is not None and loop.time() - began > limit:
            raise _too_long(limit)
        return await self._within(limit, value) if inspect.isawaitable(value) else value

    def _say(self, tries: int, text: str, delay_ms: int) -> None:
        job, most = self._run.job, self._policy.max_attempts
        log.warning(
            "job %s: step %s failed, try %d of %d: %s; next try in %.1f s",
            job.id,
            self._name,
            tries,
            most,
            text,
            delay_ms / 1000,
            extra={"job_id": job.id, "task": self._run.name, "step": self._name, "error": text},
        )


def _too_long(limit: float | None) -> TimeoutError:
    return TimeoutError(f"timed out after {limit or 0:g} s")


def _is_async(function: Callable[..., Any]) -> bool:
    return any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004


def _conversion_of(function: Callable[..., Any]) -> Conversion | None:
    """How the result of a function becomes JSON and comes back; None if it is JSON already."""
    try:
        if function in _conversions:
            return _conversions[function]
        found = conversion_of("step", function) if may_convert(function) else None
        _conversions[function] = found
    except TypeError:  # it has no hash, or no weak reference
        return conversion_of("step", function) if may_convert(function) else None
    return found
