"""Operations whose work other jobs do: `ctx.call` and `ctx.map`.

Their jobs are the children of a group, which wakes the run when all of them have ended. The group's id is derived from
the operation, so it is made once. Its generation says how often the run had been requeued, so what failed runs again
after a requeue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final

from schedq.errors import Conflict, MapFailed, SchedqError, StepChanged, StepFailed, StoreUnavailable, UsageError
from schedq.logs import log
from schedq.model.groups import ENDED, GroupDefinition
from schedq.model.outcome import described
from schedq.model.payload import loaded
from schedq.model.records import ClaimedJob, NewJob, whole
from schedq.model.runs import Memo, RunWait
from schedq.model.settings import Settings
from schedq.model.times import LAST_INSTANT_MS
from schedq.queue.batch_results import BatchResults
from schedq.queue.batches import BatchOptions, child_call, child_line, definition_of
from schedq.queue.requests import Connections
from schedq.queue.stored_calls import check_address
from schedq.queue.task import Task
from schedq.transitions import groups, stand_ins
from schedq.transitions.groups import GroupEnd
from schedq.workflows.branches import Branch
from schedq.workflows.operation import recorded
from schedq.workflows.place import Place
from schedq.workflows.run import CALL, MAP, WorkflowRun

_PAGE: Final = 1000
_AGAIN_MS: Final = 900_000
"""How often a run checks its jobs in another queue if nothing wakes it: an older release may lead its own queue."""
_PAUSE_S: Final = 1.0
_MOVED: Final = "call another task now, or are in another queue; give the operation another name"
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

    made = _Children(run, task, BatchOptions(), only, kept_ms=stand_ins.KEPT_MS)
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

    Args:
        run: the attempt.
        task: of the run's queue, or of another one of the same Redis.
        options: of the batch.
        calls: what they call.
        kept_ms: how long their group is kept after its end if it is in another queue; None for as long as others.

    Raises:
        UsageError: the task is one of another Redis, or an option is invalid.
    """

    def __init__(
        self,
        run: WorkflowRun,
        task: object,
        options: BatchOptions,
        calls: Calls,
        *,
        kept_ms: int | None = None,
    ) -> None:
        if not isinstance(task, Task):
            way = "pass the task, then its arguments" if isinstance(task, NewJob) else "use ctx.step for it"
            raise run.misused(f"ctx.call and ctx.map take a task of a queue, got {task!r:.100}; {way}")
        home, theirs = run.connections, task._connections
        if home is not None:
            try:
                check_address(home, "ctx.call and ctx.map", task)
            except UsageError as error:
                raise run.misused(str(error)) from None
        self._run, self._task, self._options, self._calls = run, task, options, calls
        self._connections: Connections = theirs
        self._home = None if home is None or home.settings.name == theirs.settings.name else home
        self._kept_ms = kept_ms
        self._definition(None, Place("run", "00", ""))  # an invalid option is an error before anything is sent

    def _definition(self, payload: Any, place: Place) -> GroupDefinition:
        try:
            made = definition_of(self._connections, place.id, self._task, self._options, payload)
        except UsageError as error:
            raise self._run.misused(str(error)) from None
        made = replace(made, generation=place.fresh(), close_within_ms=0)
        if self._home is None:
            return replace(made, wake=self._run.job.id)
        tells, within = self._home.settings.keys.due, stand_ins.CLOSE_WITHIN_MS
        return replace(made, tells=tells, close_within_ms=within, kept_ms=self._kept_ms or made.kept_ms)

    async def end(self, kind: str, branch: Branch, name: str) -> Memo:
        """Wait until all of them have ended, and record the outcome."""
        run, place, began_ms = self._run, Place.of(self._run.job.id, self._run.record, name), self._run.now_ms
        while run.connections is None:  # a replay, which makes no jobs
            await run.wait(branch, RunWait(kind, name, None))
        is_new = name not in run.record.begun
        # Stores that the run has begun, before there are jobs whose ids depend on that.
        _, now_ms = await run.requests.ask(branch, run.record.until(name, at_ms=LAST_INSTANT_MS))
        run.saw(now_ms)
        while (found := await self._progress(branch, place, is_new=is_new)) is None or found.status not in ENDED:
            is_new = False
            if found is not None:
                await run.wait(branch, RunWait(kind, name, self._look_ms(), "", place.id))
        ended_ms = whole(found.fields.get("ended_at_ms")) or run.now_ms
        began_ms = whole(found.fields.get("began_at_ms")) or began_ms  # an earlier attempt may have made it
        await run.replay.turn(branch, ended_ms)
        outcome, value = outcome_of(kind, place, found)
        memo = await run.requests.ask(branch, run.record.write(name, Memo(kind, outcome, value, began_ms, ended_ms, 1)))
        await self._tidy(branch, place, memo)
        return memo

    async def _progress(self, branch: Branch, place: Place, *, is_new: bool) -> GroupEnd | None:
        """Look at their group, and do what is left: the group if it has ended for good or runs, else None: look again.

        That another queue can't be reached costs no attempt: the run has no other way to come to its jobs.
        """
        try:
            await self._stand_in(branch, place)
            found = GroupEnd({}) if is_new else await self._ask(branch, groups.end_of(self._settings, place.id))
            if found.status in ENDED and not await goes_on(place, found, self._settings, partial(self._ask, branch)):
                return found
            return GroupEnd({}) if await self._fill(branch, place, found) else None
        except StoreUnavailable as error:
            if self._home is None:
                raise
            await pause(self._run, f"queue {self._settings.name}", error)
            return None

    async def _stand_in(self, branch: Branch, place: Place) -> None:
        """See to it that a group stands for theirs if they are in another queue."""
        if self._home is not None:
            request = stand_in(self._home, self._settings, place, self._run.job)
            try:
                await self._run.requests.ask(branch, request)
            except Conflict:
                await self._run.stop(StepChanged(f"the jobs of batch {place.id} {_MOVED}"))

    def _look_ms(self) -> int | None:
        """When to look again, whether or not someone wakes the run; None for never."""
        return None if self._home is None else again_ms(self._run, self._settings)

    async def _tidy(self, branch: Branch, place: Place, memo: Memo) -> None:
        """Delete what is not needed any more. What is left is deleted with the run."""
        run, home = self._run, self._home
        with suppress(SchedqError):
            if home is None:
                if memo.kind == CALL:
                    await self._ask(branch, groups.drop(self._settings, place.id))
            elif memo.kind == MAP and memo.outcome == "ok":  # the run may read the results
                await run.requests.ask(branch, stand_in(home, self._settings, place, run.job, close=True))
            else:
                released = groups.look_at(self._settings, [place.id])
                await run.requests.ask(branch, self._connections.aio.ask(released))
                gone = groups.drop(home.settings, place.id, stand_ins=True)
                await run.requests.ask(branch, home.aio.drive(gone))

    @property
    def _settings(self) -> Settings:
        return self._connections.settings

    async def _ask(self, branch: Branch, trips: Any) -> Any:
        return await self._run.requests.ask(branch, self._connections.aio.drive(trips))

    @property
    def _holder(self) -> ClaimedJob | None:
        """The claim without which nothing is made; a script of another queue can't look at it."""
        return self._run.job if self._home is None else None

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
        filled = groups.fill(self._settings, made, (), at, close=True, digest=digest, holder=self._holder)
        status = (await self._run.requests.ask(branch, self._connections.aio.ask(filled))).status
        return status not in ENDED

    async def _add(
        self, branch: Branch, made: GroupDefinition, calls: list[NewJob], at: int, fields: Mapping[str, str]
    ) -> int:
        """Add a page of calls; returns how many have been added or passed over."""
        if fields and fields.get("head", "") != made.head:
            await self._run.stop(StepChanged(f"the jobs of batch {made.name} {_MOVED}"))
        lines = [child_line(self._settings, made, each) for each in calls]
        for page in groups.pages(lines):
            request = groups.fill(self._settings, made, page, at, digest=fields.get("digest", ""), holder=self._holder)
            await self._run.requests.ask(branch, self._connections.aio.ask(request))
            at += len(page)
        return at


def again_ms(run: WorkflowRun, queue: Settings) -> int | None:
    """When to look again at jobs in another queue; a test's clock would go from one such instant to the next."""
    return run.now_ms + _AGAIN_MS if queue.clock is None else None


async def pause(run: WorkflowRun, where: str, error: StoreUnavailable) -> None:
    """Wait a moment, because the jobs of a run can't be reached."""
    log.warning("job %s: its jobs in %s: %s", run.job.id, where, described(error))
    await asyncio.sleep(_PAUSE_S)


async def stand_in(home: Connections, other: Settings, place: Place, job: ClaimedJob, *, close: bool = False) -> None:
    """See to it that a group of the run's queue stands for the one of this place in another queue.

    Raises:
        Conflict: there is one that stands for nothing.
        RunLost: the attempt no longer holds the job.
    """
    made = stand_ins.definition(other, place.id, job.id, generation=place.fresh())
    request = groups.fill(home.settings, made, (), 0, close=close, holder=job)
    if (await home.aio.ask(request)).status in ENDED and not close:  # of an earlier life
        await home.aio.drive(groups.drop(home.settings, place.id, stand_ins=True))
        await home.aio.ask(request)


async def goes_on(place: Place, found: GroupEnd, queue: Settings, ask: Ask) -> bool:
    """Let a group that ended before the run was requeued run again what failed; False if that is nothing."""
    is_whole = found.fields.get("closed") == "1"
    if found.status == "completed":
        return False
    if place.is_of(found.fields.get("generation", "")) and (is_whole or found.status != "failed"):
        return False
    try:
        if not is_whole and found.fields.get("numbered") != "1":
            raise Conflict(place.id)
        return bool(await ask(groups.retry(queue, place.id, place.retry)))
    except (UsageError, Conflict):  # it was called off before all of its jobs were made: they are all made again
        await ask(groups.drop(queue, place.id))
        return True


def outcome_of(kind: str, place: Place, found: GroupEnd) -> tuple[str, Any]:
    """The outcome of an operation whose group has ended, and the value of its memo."""
    fields, status = found.fields, found.status
    total, succeeded = (whole(fields.get(each)) for each in ("total", "succeeded"))
    # The last jobs of one that was called off may have completed before they could be cancelled.
    if status == "completed" or (status == "cancelled" and fields.get("closed") == "1" and succeeded == total):
        return "ok", loaded(found.first) if kind == CALL else place.id
    error = found.failure.error if found.failure is not None else ""
    if status == "cancelled":
        return "error", "its jobs were cancelled" if kind == MAP else error or "its job was cancelled"
    if kind == CALL:
        return "error", error or fields.get("error") or "its job failed"
    failed = total - succeeded
    text = fields.get("error") or f"{failed} of {total} jobs failed, first with {error}"
    return "error", [text, place.id, failed, total]
