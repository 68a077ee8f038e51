"""Operations that run several branches at once: all of them, or until the first has ended."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from schedq.errors import StepChanged, StepFailed
from schedq.model.outcome import described
from schedq.model.runs import Memo
from schedq.workflows.branches import FORKED, WORKING, Branch, Undecided
from schedq.workflows.operation import cancelled, recalled
from schedq.workflows.replay import QUIET_TURNS
from schedq.workflows.run import CALL, MAP, WorkflowRun

T = TypeVar("T")
MOST_BRANCHES: Final = 100


async def gather(run: WorkflowRun, works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all branches, in their order. The first failure ends the others, and is raised."""
    fork = _Fork(run, "gather", [str(number) for number in range(1, len(works) + 1)], works)

    def has_failed(ended: list[Branch]) -> bool:
        return any(each.error is not None for each in ended)

    async with fork:
        await fork.until(has_failed)
        if not has_failed(fork.ended()):
            if fork.memo is not None:  # the code saw a failure here
                raise StepFailed(fork.name, str(fork.memo.value[1]))
            for each in fork.children:
                fork.branch.joined(each)
            return [each.result for each in fork.children]
        failed = await fork.first_of(lambda: [each for each in fork.ended() if each.error is not None])
        raise await fork.failure(failed)
    raise AssertionError  # for type checkers: nothing swallows an exception here


async def first(run: WorkflowRun, works: dict[str, Coroutine[Any, Any, T]]) -> tuple[str, T]:
    """The name and the result of the branch that ends first. The others are ended."""
    if not works:
        raise run.misused("ctx.first needs at least one branch, as in ctx.first(paid=..., late=ctx.sleep(60))")
    fork = _Fork(run, "first", list(works), list(works.values()))
    async with fork:
        await fork.until(bool)
        winner = await fork.first_of(fork.ended)
        if winner.error is not None:
            raise await fork.failure(winner)
        await fork.end_others(winner)
        fork.branch.joined(winner)
        if fork.memo is None:
            await fork.decides(winner)
        elif fork.memo.outcome == "error":  # the code saw a failure here
            raise StepFailed(fork.name, str(fork.memo.value[1]))
        return fork.label_of(winner), winner.result
    raise AssertionError  # as above


class _Fork:
    """Branches that run at once, and the branch that waits for them."""

    def __init__(
        self, run: WorkflowRun, kind: str, labels: list[str], works: Sequence[Coroutine[Any, Any, Any]]
    ) -> None:
        self._run, self.kind, self._labels, self._works = run, kind, labels, works
        self.memo: Memo | None = None
        self.name = ""
        self.branch: Branch
        self.children: list[Branch] = []
        self._began_ms = run.now_ms
        self._is_enough: Callable[[], bool] = lambda: True
        self._moved = asyncio.Event()

    async def __aenter__(self) -> None:
        """Begin the operation; if it was decided before, only the branch that decided runs."""
        run = self._run
        try:
            for label, work in zip(self._labels, self._works, strict=True):
                if not inspect.iscoroutine(work):
                    raise run.misused(
                        f"ctx.{self.kind}: branch {label} must be a coroutine, as in ctx.step(f, 1) without await, got "
                        f"{work!r:.100}"
                    )
            if len(run.branches) + len(self._works) > MOST_BRANCHES:
                raise run.misused(
                    f"ctx.{self.kind}: a run may have {MOST_BRANCHES} branches at a time, and would have more; gather "
                    "fewer at a time, or enqueue jobs for them"
                )
            self.branch, self.name = await run.begin(self.kind)
            self.memo = await recalled(run, self.branch, self.name, self.kind)
            if self.memo is not None:
                await self._keep_decisive(self.memo)
        except BaseException:
            self._close_rest(-1)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all branches, also if the operation was cancelled, and note that."""
        await self._end(self.children)
        if isinstance(error, asyncio.CancelledError):
            self.branch.undecided += self._abandoned()
            if self.memo is None:
                cancelled(self._run, self.branch, self.name, self.kind, self._began_ms)
            for each in self.children:
                self.branch.keep_unused(each)
        self.branch.children = []

    async def _keep_decisive(self, memo: Memo) -> None:
        label = memo.value if memo.outcome == "ok" else memo.value[0]
        if label not in self._labels:
            await self._run.stop(
                StepChanged(f"{self.name}: branch {label!r} decided, and the code does not have it any more")
            )
        chosen = self._labels.index(label)
        self._close_rest(chosen)
        self._labels, self._works = [label], [self._works[chosen]]

    def _close_rest(self, kept: int) -> None:
        """Close the coroutines that do not run, or Python would warn that they were never awaited."""
        if len(self._works) > 1:
            self._run.calls.forget()
        for number, work in enumerate(self._works):
            if number != kept and inspect.iscoroutine(work):
                work.close()

    def ended(self) -> list[Branch]:
        """The branches that have ended."""
        return [each for each in self.children if each.task is not None and each.task.done()]

    async def until(self, enough: Callable[[list[Branch]], bool]) -> None:
        """Run the branches until all of them have ended, or those that have are enough."""
        run = self._run
        path = self.branch.next_fork()
        self.children = run.branches.fork(self.branch, self._labels, path)
        run.replay.leave_out(path, self.children)
        for child, work in zip(self.children, self._works, strict=True):
            run.branches.start(child, work, self._over)
        if self.memo is not None:
            await self._leave_again(path)
        await self._join(lambda: len(self.ended()) == len(self.children) or enough(self.ended()))

    async def _leave_again(self, path: str) -> None:
        """Call off again what lost; the attempt that decided may have died before it said so."""
        kept = tuple(f"{each.path}{mark}" for each in self.children for mark in "/.")
        for name, memo in [*self._run.record.memos.items()]:
            if name.startswith(f"{path}.") and not name.startswith(kept):
                await self._run.leave(name, memo)

    async def _join(self, enough: Callable[[], bool]) -> None:
        """Only wait for branches, until they are enough."""
        run, branch = self._run, self.branch
        self._is_enough, self._moved = enough, asyncio.Event()
        if enough():
            return
        run.branches.become(branch, FORKED)
        try:
            await self._moved.wait()
        finally:
            if branch.state == FORKED:
                run.branches.become(branch, WORKING)

    def _over(self, _: Branch) -> None:
        """A branch has ended: the one that waits for it is at work from this instant on."""
        self._run.replay.moved()
        if self.branch.state == FORKED and self._is_enough():
            self._run.branches.become(self.branch, WORKING)
            self._moved.set()

    async def first_of(self, candidates: Callable[[], list[Branch]]) -> Branch:
        """The one of these that ended first, by the instants of its operations.

        Several may be over when a run is taken up late. Those whose request is in progress may be over as well.
        """
        await self._run.replay.quiet(self.branch, QUIET_TURNS)
        return min(candidates(), key=lambda each: each.reached_ms)

    async def end_others(self, decisive: Branch) -> None:
        """Cancel the other branches, and wait until they have ended. They may clean up, also by steps."""
        await self._end([each for each in self.children if each is not decisive])

    async def _end(self, children: Sequence[Branch]) -> None:
        def live() -> list[Branch]:
            return [each for each in children if each.task is not None and not each.task.done()]

        is_cancelled = False
        try:
            if live() and not self.branch.is_closed:
                await self._run.replay.catch_up(live())
        except asyncio.CancelledError:
            is_cancelled = True
        self._cancel(live())
        while live():
            try:
                await self._join(lambda: not live())
            except asyncio.CancelledError:
                is_cancelled = True
                self._cancel(live())
        if is_cancelled:
            raise asyncio.CancelledError

    def _cancel(self, children: Sequence[Branch]) -> None:
        if children:
            self._run.calls.forget()
        for each in children:
            assert each.task is not None
            for below in each.below():
                below.is_losing = False
            each.task.cancel()
            self._run.branches.become(each, WORKING)  # it does not wait any more

    def label_of(self, child: Branch) -> str:
        """The name of a branch, or its number."""
        return self._labels[self.children.index(child)]

    def _losers(self, decisive: Branch) -> list[str]:
        return [
            name for each in self.children if each is not decisive for below in each.below() for name in below.unused
        ]

    def _abandoned(self, decisive: Branch | None = None) -> list[Undecided]:
        """Operations of branches that were cancelled, and for which other jobs still work."""
        others = [each for each in self.children if each is not decisive]
        return [it for each in others for it in each.undecided if it.memo.kind in (CALL, MAP)]

    async def decides(self, winner: Branch) -> None:
        """Store that a branch has won. What lost is stored before, or no later attempt could call it off."""
        run, branch = self._run, self.branch
        branch.undecided += self._abandoned(winner)
        await run.store_decisions(branch)
        memo = Memo(self.kind, "ok", self.label_of(winner), self._began_ms, winner.reached_ms, 1)
        stored = await run.requests.ask(branch, run.record.decide(self.name, memo, self._losers(winner)))
        run.record.memos[self.name] = stored

    async def failure(self, decisive: Branch) -> BaseException:
        """End the branches because this one has failed, and return its error.

        That it decided is stored as soon as the run continues after it. If it does not, the attempt fails, and a
        mistake in the code has decided nothing.
        """
        is_certain = (
            len(self.ended()) == len(self.children) and sum(each.error is not None for each in self.children) == 1
        )
        await self.end_others(decisive)
        self.branch.joined(decisive)
        error = decisive.error
        assert error is not None
        if self.memo is None and not (is_certain and self.kind == "gather"):
            value = [self.label_of(decisive), described(error)]
            memo = Memo(self.kind, "error", value, self._began_ms, decisive.reached_ms, 1)
            self.branch.undecided += [*self._abandoned(decisive), Undecided(self.name, memo, self._losers(decisive))]
        return error
