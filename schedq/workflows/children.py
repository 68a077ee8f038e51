"""Operations whose work other jobs do: `ctx.call` and `ctx.map`.

Their jobs are the children of a group, which wakes the run when all of them have ended. The group's id is derived from
the operation, so it is made once. Its generation says how often the run had been requeued, so what failed runs again
after a requeue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final

from schedq.errors import Conflict, MapFailed, SchedqError, StepChanged, StepFailed, UsageError
from schedq.model.groups import ENDED, GroupDefinition
from schedq.model.payload import loaded
from schedq.model.records import NewJob, whole
from schedq.model.runs import Memo, RunWait
from schedq.model.settings import Settings
from schedq.model.times import LAST_INSTANT_MS
from schedq.queue.batch_results import BatchResults
from schedq.queue.batches import BatchOptions, child_call, child_line, definition_of
from schedq.queue.requests import Connections
from schedq.queue.task import Task
from schedq.transitions import groups
from schedq.transitions.groups import GroupEnd
from schedq.workflows.branches import Branch
from schedq.workflows.operation import recorded
from schedq.workflows.place import Place
from schedq.workflows.run import CALL, MAP, WorkflowRun

_PAGE: Final = 1000
Calls = Callable[[], Iterator[NewJob]]
"""Begins to make the calls of the children, once more each time."""
Ask = Callable[[Any], Awaitable[Any]]
"""Sends the requests of a generator, and returns what it returns."""


async def call(
    run: WorkflowRun, base: str, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run a job of the task, and return its result.

    Raises:
        StepFailed: it failed or was cancelled.
    """

    def only() -> Iterator[NewJob]:
        yield task.new_job(args, kwargs)

    made = _Children(run, task, BatchOptions(), only)
    name, memo = await recorded(run, CALL, base, partial(made.end, CALL))
    if memo.outcome != "ok":
        raise StepFailed(name, str(memo.value))
    conversion = task._conversion
    return memo.value if conversion is None else conversion.decode_result(memo.value)


async def map(  # noqa: A001 - the name of the operation
    run: WorkflowRun, base: str, task: Task[..., Any], items: Iterable[Any], options: BatchOptions
) -> BatchResults[Any]:
    """Run a job for each item, and return what they returned.

    Raises:
        MapFailed: more of them failed than may.
        StepFailed: they were cancelled.
    """
    made = _Children(run, task, options, lambda: (child_call(task, item, n) for n, item in enumerate(items)))
    name, memo = await recorded(run, MAP, base, partial(made.end, MAP))
    if memo.outcome == "ok":
        return BatchResults(task._connections, str(memo.value))
    if isinstance(memo.value, list):
        raise MapFailed(name, *memo.value)
    raise StepFailed(name, str(memo.value))


class _Children:
    """The jobs of one operation.

    Raises:
        UsageError: the task is none of the run's queue, or an option is invalid.
    """

    def __init__(self, run: WorkflowRun, task: Task[..., Any], options: BatchOptions, calls: Calls) -> None:
        if not isinstance(task, Task):
            raise run.misused(f"ctx.call and ctx.map take a task of the queue, got {task!r:.100}; use ctx.step for it")
        if run.connections not in (None, task._connections):
            raise run.misused(
                f"task {task.name!r} is one of another queue, whose jobs can't wake this run; enqueue it in a step"
            )
        self._run, self._task, self._options, self._calls = run, task, options, calls
        self._connections: Connections = task._connections
        self._definition(None, Place("run", "00", ""))  # an invalid option is an error before anything is sent

    def _definition(self, payload: Any, place: Place) -> GroupDefinition:
        try:
            made = definition_of(self._connections, place.id, self._task, self._options, payload)
        except UsageError as error:
            raise self._run.misused(str(error)) from None
        return replace(made, generation=place.fresh(), wake=self._run.job.id, close_within_ms=0)

    async def end(self, kind: str, branch: Branch, name: str) -> Memo:
        """Wait until all of them have ended, and record the outcome."""
        run, place, began_ms = self._run, Place.of(self._run.job.id, self._run.record, name), self._run.now_ms
        while run.connections is None:  # a replay, which makes no jobs
            await run.wait(branch, RunWait(kind, name, None))
        is_new = name not in run.record.begun
        # Stores that the run has begun, before there are jobs whose ids depend on that.
        _, now_ms = await run.requests.ask(branch, run.record.until(name, at_ms=LAST_INSTANT_MS))
        run.saw(now_ms)
        while True:
            found = GroupEnd({}) if is_new else await self._ask(branch, groups.end_of(self._settings, place.id))
            is_new = False
            if found.status in ENDED and not await goes_on(place, found, self._settings, partial(self._ask, branch)):
                break
            if not await self._fill(branch, place, found):
                continue
            await run.wait(branch, RunWait(kind, name, None, "", place.id))
        ended_ms = whole(found.fields.get("ended_at_ms")) or run.now_ms
        began_ms = whole(found.fields.get("began_at_ms")) or began_ms  # an earlier attempt may have made it
        await run.replay.turn(branch, ended_ms)
        outcome, value = outcome_of(kind, place, found)
        memo = await run.requests.ask(branch, run.record.write(name, Memo(kind, outcome, value, began_ms, ended_ms, 1)))
        if kind == CALL:
            with suppress(SchedqError):  # it is deleted with the run otherwise
                await self._ask(branch, groups.drop(self._settings, place.id))
        return memo

    @property
    def _settings(self) -> Settings:
        return self._connections.settings

    async def _ask(self, branch: Branch, trips: Any) -> Any:
        return await self._run.requests.ask(branch, self._connections.aio.drive(trips))

    async def _fill(self, branch: Branch, place: Place, found: GroupEnd) -> bool:
        """Add the calls that are not there yet; False if the group must be looked at again."""
        fields = found.fields
        if fields.get("closed") == "1" or found.status == "cancelling":
            return True
        if fields.get("numbered") == "1":  # a retry that was cut short
            await self._ask(branch, groups.retry(self._settings, place.id, place.retry))
            return True
        if found.status in ENDED:
            return False
        at, made = 0, None
        try:
            calls = self._calls()
            while some := list(islice(calls, _PAGE)):
                made = self._definition(some[0].payload, place) if made is None else made
                at = await self._add(branch, made, some, at, fields)
        except UsageError as error:
            raise self._run.misused(str(error)) from None
        made = self._definition(None, place) if made is None else made
        digest = fields.get("digest", "")
        filled = groups.fill(self._settings, made, (), at, close=True, digest=digest, holder=self._run.job)
        status = (await self._run.requests.ask(branch, self._connections.aio.ask(filled))).status
        return status not in ENDED

    async def _add(
        self, branch: Branch, made: GroupDefinition, calls: list[NewJob], at: int, fields: Mapping[str, str]
    ) -> int:
        """Add a page of calls; returns how many have been added or passed over."""
        if fields and fields.get("head", "") != made.head:
            await self._run.stop(
                StepChanged(f"the jobs of {made.name} call another task now; give the operation another name")
            )
        lines = [child_line(self._settings, made, each) for each in calls]
        for page in groups.pages(lines):
            request = groups.fill(self._settings, made, page, at, digest=fields.get("digest", ""), holder=self._run.job)
            await self._run.requests.ask(branch, self._connections.aio.ask(request))
            at += len(page)
        return at


async def goes_on(place: Place, found: GroupEnd, queue: Settings, ask: Ask) -> bool:
    """Let a group that ended before the run was requeued run again what failed; False if that is nothing."""
    if place.is_of(found.fields.get("generation", "")) or found.status == "completed":
        return False
    try:
        return bool(await ask(groups.retry(queue, place.id, place.retry)))
    except (UsageError, Conflict):  # it was called off before all of its jobs were made: they are all made again
        await ask(groups.drop(queue, place.id))
        return True


def outcome_of(kind: str, place: Place, found: GroupEnd) -> tuple[str, Any]:
    """The outcome of an operation whose group has ended, and the value of its memo."""
    fields, status = found.fields, found.status
    if status == "completed":
        return "ok", loaded(found.first) if kind == CALL else place.id
    error = found.failure.error if found.failure is not None else ""
    if status == "cancelled":
        return "error", "its jobs were cancelled" if kind == MAP else error or "its job was cancelled"
    if kind == CALL:
        return "error", error or fields.get("error") or "its job failed"
    total, succeeded = (whole(fields.get(each)) for each in ("total", "succeeded"))
    failed = total - succeeded
    text = fields.get("error") or f"{failed} of {total} jobs failed, first with {error}"
    return "error", [text, place.id, failed, total]
