"""One attempt of a workflow: runs its branches, and ends them before the run is put down."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

from schedq.errors import SchedqError, UsageError
from schedq.logs import log
from schedq.model.outcome import Discard, Policy, described
from schedq.model.records import ClaimedJob
from schedq.model.runs import Memo, RunWait
from schedq.queue.handler import Invocation
from schedq.queue.registry import NoHandler
from schedq.queue.requests import Connections
from schedq.transitions import groups
from schedq.workflows.branches import ENDED, WAITING, WORKING, Branch, Branches
from schedq.workflows.calls import Calls
from schedq.workflows.limits import nearest_limit_ms, watched
from schedq.workflows.place import Place
from schedq.workflows.recorder import CANCELLED, Recorder, Suspended
from schedq.workflows.replay import LONGEST_S, Replay
from schedq.workflows.requests import Requests

T = TypeVar("T")
InThread = Callable[[Callable[[], Any]], asyncio.Future[Any]]
"""Calls a plain function apart from the event loop; cancelling the future does not end the call."""
EncodeArguments = Callable[[Sequence[Any], Mapping[str, Any]], tuple[Sequence[Any], Mapping[str, Any]]]
"""Checks the arguments of a workflow, and converts them to JSON types."""
CALL: Final = "call"
"""The kind of an operation that runs one job."""
MAP: Final = "map"
"""The kind of an operation that runs a job for each item."""
IN_PLACE_MS: Final = 500
"""Waits up to this long do not suspend a run: that would cost more."""
_AGAIN_S: Final = 1.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 10.0
_QUICK_REFUSALS: Final = 10
_FIRST_LOOK_S: Final = 0.5
_LONGEST_LOOK_S: Final = 5.0


def no_call(payload: Any) -> NoReturn:
    """There are no tasks."""
    raise NoHandler(f"there is no task for {payload!r:.100}", "")


class WorkflowRun:
    """One attempt of a workflow.

    Args:
        record: the run's record.
        job: the claimed job.
        policy: the rules of the job; its steps have the same unless they are given others.
        in_thread: calls plain functions of steps.
        encode_arguments: checks and converts the arguments with which the run starts over.
        name: the name of the task, for the log; in_place_ms: how long a wait may be that is waited for in place.
        connections: of the queue, for operations whose work other jobs do; without it they wait for good.
        find_call: finds the function that a payload calls, for steps that can be undone.

    Attributes:
        branches: its branches.
        replay: where they are, compared with earlier attempts.
        requests: what is sent to the record.
        calls: the operations that were called and have not begun.
        is_suspending: it is being put down because it can only wait.
    """

    def __init__(
        self,
        record: Recorder,
        job: ClaimedJob,
        policy: Policy,
        in_thread: InThread,
        encode_arguments: EncodeArguments,
        *,
        name: str = "",
        in_place_ms: int = IN_PLACE_MS,
        connections: Connections | None = None,
        find_call: Callable[[Any], Invocation] = no_call,
    ) -> None:
        self.record, self.job, self.policy, self.name = record, job, policy, name
        self.in_thread, self.encode_arguments = in_thread, encode_arguments
        self.in_place_ms, self.connections, self.find_call = in_place_ms, connections, find_call
        self.is_suspending = False
        self._loop = watched(asyncio.get_running_loop())
        self._seen_ms, self._seen_at = job.claimed_at_ms, self._loop.time()
        self.branches = Branches(self._wake, record.began_ms)
        self.replay = Replay(self.branches.main, record.begun)
        self.requests = Requests(job.id, self.branches.main, self.stop)
        self.calls = Calls(self.misused)
        self._changed = asyncio.Event()
        self._broken: BaseException | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._refusals, self._looks = 0, dict[str, float]()

    @property
    def now_ms(self) -> int:
        """The present instant on Redis's clock, as far as it is known here."""
        return self._seen_ms + int((self._loop.time() - self._seen_at) * 1000)

    def saw(self, now_ms: int) -> None:
        """Note what Redis's clock shows."""
        self._seen_ms, self._seen_at = now_ms, self._loop.time()

    # -- the attempt

    async def execute(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the workflow's function to its end, or until it can only wait.

        Raises:
            Suspended: it can only wait.
        """
        main, waits = self.branches.main, list[RunWait]()
        self._watch_deadline()
        self.branches.start(main, work, lambda _: self._wake())
        try:
            while main.state != ENDED:
                if self._broken is not None or self.branches.at_rest:
                    waits = [wait for each in self.branches.live() for wait in each.waits]
                    self.is_suspending = self._broken is None
                    await self._put_down()
                    break
                self._changed.clear()
                await self._changed.wait()
            else:
                for it in main.undecided if main.error is None else ():  # a mistake in the code decides nothing
                    await self.leave(it.name, it.memo)
        except asyncio.CancelledError:
            await self._put_down()
            raise
        finally:
            main.close()
            if self._deadline is not None:
                self._deadline.cancel()
            await self.requests.ended()
        return self._outcome(waits)

    def _watch_deadline(self) -> None:
        if self.record.deadline_ms is not None:
            left_s = max(0, self.record.deadline_ms - self.now_ms) / 1000
            late = Discard("the run took longer than its run_timeout")
            self._deadline = self._loop.call_later(left_s, self._break, late)

    def _outcome(self, waits: Sequence[RunWait]) -> Any:
        main = self.branches.main
        if self._broken is not None:
            raise self._broken
        if self.is_suspending:
            if not isinstance(main.error, asyncio.CancelledError):
                self._say_swallowed(main)
            raise Suspended(waits)
        if main.error is not None:
            raise main.error
        self.calls.check()
        return main.result

    def _say_swallowed(self, main: Branch) -> None:
        what = "returned" if main.error is None else f"raised {described(main.error)}"
        text = (
            "job %s: workflow %s was put down, and %s instead of letting the cancellation pass; that is dropped: "
            "code must not swallow CancelledError"
        )
        log.warning(text, self.job.id, self.name, what, extra={"job_id": self.job.id, "task": self.name})

    async def _put_down(self) -> None:
        """End all branches, and wait until they have ended, however long that takes: there are never two bodies.

        Only the function's own task is cancelled: each fork passes the cancellation on to its branches, and waits.
        """
        main, pause, since = self.branches.main, _FIRST_PAUSE_S, self._loop.time()
        main.close()
        cancelled, is_said = False, False
        while main.task is not None and not main.task.done():
            main.task.cancel()
            try:
                await asyncio.wait([main.task], timeout=pause)
            except asyncio.CancelledError:
                cancelled = True
                continue
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            if not is_said and self._loop.time() - since >= _LONGEST_PAUSE_S:
                is_said = True
                self._say_stuck()
        if cancelled:
            raise asyncio.CancelledError

    def _say_stuck(self) -> None:
        places = [_place(each.task) for each in self.branches.live()]
        text = "job %s: workflow %s does not end although it was cancelled, so it keeps its slot: it is in %s"
        log.error(text, self.job.id, self.name, ", ".join(places), extra={"job_id": self.job.id, "task": self.name})

    def _wake(self) -> None:
        self._changed.set()

    # -- for operations

    async def begin(self, base: str) -> tuple[Branch, str]:
        """Begin an operation of the branch that calls this; returns the branch and the operation's full name."""
        branch = self.branches.of(asyncio.current_task())
        if branch is None:
            if self.branches.main.is_closed:
                raise asyncio.CancelledError
            raise self.misused(
                f"{base}: an operation of a workflow was called in a task that is no branch of it; start branches with "
                "ctx.gather(...) or ctx.first(...), not with asyncio.gather, create_task, wait_for, shield or TaskGroup"
            )
        if branch.is_closed:
            await self._refuse()
        if branch.operation:
            raise self.misused(
                f"{base}: the step {branch.operation} is in progress; its function may not use the context"
            )
        await self.store_decisions(branch)
        name = branch.name_of(base)
        self.replay.reached(name)
        return branch, name

    async def _refuse(self) -> NoReturn:
        """Raise the cancellation again. Code that keeps swallowing it must not occupy the event loop."""
        self._refusals += 1
        if self._refusals > _QUICK_REFUSALS:
            await asyncio.sleep(min(_AGAIN_S, 0.001 * self._refusals))
        raise asyncio.CancelledError

    def misused(self, text: str) -> UsageError:
        """The error of a wrong use of the context. It fails the attempt even if it is never awaited."""
        error = UsageError(text)
        self._break(error)
        return error

    async def stop(self, error: BaseException) -> NoReturn:
        """End the attempt with an error that the workflow's function does not see."""
        self._break(error)
        while True:
            await self._loop.create_future()

    def _break(self, error: BaseException) -> None:
        if self._broken is None and not self.branches.main.is_closed:
            self._broken = error
            self._wake()

    async def store_decisions(self, branch: Branch) -> None:
        """Store which branches have decided, now that the run continues because of it."""
        while branch.undecided:
            it = branch.undecided[0]
            await self.requests.ask(branch, self.record.decide(it.name, it.memo, it.losers))
            self.record.memos[it.name] = it.memo
            del branch.undecided[0]
            await self.leave(it.name, it.memo)

    async def leave(self, name: str, memo: Memo) -> None:
        """Call off the jobs of an operation that is over, if it was cancelled."""
        if memo.kind in (CALL, MAP) and memo.outcome == CANCELLED:
            await self.call_off(name)

    async def call_off(self, name: str) -> None:
        """Call off the jobs of an operation that was cancelled. Those of a run that ends need no word."""
        if self.connections is not None:
            place = Place.of(self.job.id, self.record, name)
            with suppress(SchedqError):
                await self.connections.aio.ask(groups.cancel(self.connections.settings, place.id))

    async def wait(self, branch: Branch, wait: RunWait) -> None:
        """Wait for an instant in place if it is near; otherwise only wait, so that the run may be suspended."""
        left_ms = None if wait.until_ms is None else wait.until_ms - self.now_ms
        if left_ms is not None and left_ms <= self.in_place_ms:
            await asyncio.sleep(max(0, left_ms + 1) / 1000)
            return
        limit_ms = nearest_limit_ms([each.task for each in branch.line()])
        if limit_ms is not None and (left_ms is None or limit_ms < left_ms):
            if limit_ms > IN_PLACE_MS:
                raise self.misused(
                    f"{wait.name}: asyncio.timeout(), or another limit of this kind, stands around an operation that "
                    "waits, and would not be seen while the run is suspended; limit the wait itself, as in "
                    "ctx.receive(topic, timeout=60), or let it race: ctx.first(a=..., late=ctx.sleep(60))"
                )
            await asyncio.sleep(limit_ms / 1000)
            return
        left_s = math.inf if left_ms is None else (left_ms + 1) / 1000
        look_s = self._look_s(wait)
        branch.waits = (wait,)
        self.branches.become(branch, WAITING)
        try:
            await asyncio.sleep(min(left_s, look_s, LONGEST_S))  # other branches may be at work for long
        finally:
            branch.waits = ()
            if branch.state == WAITING:
                self.branches.become(branch, WORKING)

    def _look_s(self, wait: RunWait) -> float:
        """After how many seconds to look for a message or an end, while others are at work; longer each time."""
        if not wait.topic and not wait.group:
            return math.inf
        seconds = self._looks.get(wait.name, _FIRST_LOOK_S)
        self._looks[wait.name] = min(2 * seconds, _LONGEST_LOOK_S)
        return seconds


def _place(task: asyncio.Task[Any] | None) -> str:
    frames = [] if task is None else task.get_stack()
    if not frames:
        return "?"
    return f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}"
