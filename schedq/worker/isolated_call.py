"""Runs one attempt in a child process, as the worker sees it: waits for the outcome, the timeout or the child's end."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from schedq.background.observers import Observers
from schedq.errors import UsageError
from schedq.isolation import handed
from schedq.isolation.death import ProcessDied
from schedq.isolation.pool import ProcessPool, Seat
from schedq.isolation.remote_error import caused, remote_error
from schedq.isolation.wire import Assignment, Ended
from schedq.logs import log
from schedq.model import current_job, outcome
from schedq.model.current_job import CurrentJob
from schedq.model.payload import clean_text
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.times import monotonic
from schedq.observer import attempt_facts
from schedq.queue.hooks import Ending, Hooks
from schedq.tracing import carried
from schedq.worker.attempt import ABANDONED, LOST, OPEN, RELEASED, RUNNING, TIMED_OUT, Attempt
from schedq.worker.threads import ThreadPool
from schedq.worker.wrapped_call import HOOKS_S, Endings

_MOST_STACK: Final = 8000
_START_S: Final = 60.0
"""Seconds that an attempt waits for a child process if children can't start."""
_PUT_BACK_MS: Final = 10_000
_SUCCESSOR_S: Final = 2.0
"""Seconds before a timeout at which the process for the next attempt is started. For a timeout below twice that, it is
half of the timeout."""


class _Found(NamedTuple):
    """The outcome of an attempt, None if it need not be set, and the error that led to it."""

    settlement: Settlement | None
    raised: BaseException | None = None


@dataclass(frozen=True, slots=True)
class IsolatedCall:
    """One attempt in a child process.

    Attributes:
        attempt: the attempt.
        current: takes in what the function reports.
        policy: the job's rules for retries.
        pool: the worker's child processes.
        endings: sets the outcome of the attempt.
        observers: their `around` is entered while the child has the attempt.
        hooks: those of the task. The child calls them, unless it is ended or dies: then the worker does.
    """

    attempt: Attempt
    current: CurrentJob
    policy: outcome.Policy
    pool: ProcessPool
    endings: Endings
    observers: Observers
    hooks: Hooks | None

    async def run(self) -> None:
        """Wait until the attempt has its outcome. When this returns, its slot is free: the child may still be ending.

        The timeout counts from the moment at which a child gets the attempt.
        """
        attempt = self.attempt
        around = None if attempt.facts is None else self.observers.around(attempt.facts)
        if around is not None:
            around.__enter__()
        raised: BaseException | None = None
        try:
            found = await self._found()
            raised = found.raised
        except BaseException as error:
            raised = error
            raise
        finally:
            if around is not None:
                around.__exit__(None if raised is None else type(raised), raised, None)
        if found.settlement is not None:
            self.endings.ended(attempt, found.settlement, raised)

    async def _found(self) -> _Found:
        attempt = self.attempt
        call = Assignment(attempt.queue, attempt.worker, attempt.job, carried())
        seat = await self.pool.run(call.message(), self.current, _START_S)
        if seat is None:
            return self._without_child()
        self.endings.ended_by(attempt, partial(self.pool.end, seat))
        try:
            return await self._wait(seat)
        finally:
            self.endings.ended_by(attempt, None)

    def _without_child(self) -> _Found:
        """Put a job back, at no cost of an attempt: other workers may be able to start processes."""
        job, why = self.attempt.job, self.pool.problem or "it is not ready"
        text = "job %s: %s was put back for %d s, because no child process has started within %g s: %s"
        fields = self.attempt.fields(why)
        log.error(text, job.id, self.attempt.name, _PUT_BACK_MS / 1000, _START_S, why, extra=fields)
        note = clean_text(why, 200)
        return _Found(Settlement("snooze", job.id, job.claim_token, _PUT_BACK_MS, note=note, gate_key=job.gate_key))

    async def _wait(self, seat: Seat) -> _Found:
        attempt = self.attempt
        deadline = None if attempt.timeout_s is None else monotonic() + attempt.timeout_s
        successor = None
        if attempt.timeout_s is not None:
            wait_s = max(attempt.timeout_s / 2, attempt.timeout_s - _SUCCESSOR_S)
            successor = asyncio.get_running_loop().call_later(wait_s, self.pool.prepare_successor)
        try:
            return await self._until(seat, deadline)
        finally:
            if successor is not None:
                successor.cancel()

    async def _until(self, seat: Seat, deadline: float | None) -> _Found:
        attempt = self.attempt
        while not seat.ended.done():
            wait_s = None if deadline is None else max(0.0, deadline - monotonic())
            try:
                await asyncio.wait([seat.ended], timeout=wait_s)
            except asyncio.CancelledError:
                if attempt.state in (LOST, ABANDONED):
                    self.pool.end(seat)
                    raise
                if attempt.state is RELEASED or attempt.is_stop_requested:
                    seat.tell("release" if attempt.state is RELEASED else "stop")
            else:
                if not seat.ended.done():
                    return await self._timed_out(seat)
        return await self._ended(seat)

    async def _timed_out(self, seat: Seat) -> _Found:
        attempt = self.attempt
        if attempt.state is RUNNING:
            attempt.become(TIMED_OUT)
        self.pool.end(seat, has_timed_out=True)
        return await self._failed(attempt.timeout_error(), await self.pool.stack(seat))

    async def _ended(self, seat: Seat) -> _Found:
        """Take over the outcome that the child sent, or fail the attempt because the child has ended."""
        attempt = self.attempt
        if attempt.state not in OPEN:
            return _Found(None)
        if seat.ended.cancelled():  # the worker has ended a child that did not end when its job was cancelled
            raise asyncio.CancelledError
        died = seat.ended.exception()
        if died is None:
            found = Ended.of(seat.ended.result())
            raised = None if found.raised is None else remote_error(found.raised, found.settlement.traceback)
            return _Found(found.settlement, raised)
        if attempt.state is RELEASED:
            return _Found(outcome.released(attempt.job))
        assert isinstance(died, ProcessDied)
        return await self._failed(died, died.stack)

    async def _failed(self, error: BaseException, stack: str) -> _Found:
        attempt = self.attempt
        settlement = outcome.failed(attempt.job, error, self.policy)
        trace = clean_text(stack[-_MOST_STACK:])
        found = _Found(settlement._replace(traceback=trace), caused(error, trace))
        if self.hooks is not None and attempt.state in (RUNNING, TIMED_OUT) and not attempt.is_stop_requested:
            await self._call_hook(self.hooks, Ending(error, found.settlement))
        return found

    async def _call_hook(self, hooks: Hooks, ending: Ending) -> None:
        """Call the hook for a failed attempt here, because no child can. One that takes too long is cancelled."""
        attempt = self.attempt
        facts = attempt.facts or attempt_facts(attempt.queue, attempt.worker, attempt.name, attempt.job)
        token = current_job.context.set(self.current)
        try:
            async with asyncio.timeout(HOOKS_S):
                await hooks.failed(ending, _in_new_thread, facts)
        finally:
            current_job.context.reset(token)


async def _in_new_thread(hook: Callable[[], Any]) -> Any:
    """Call a plain hook in a thread of its own: if it never ends, no slot lacks a thread."""
    threads = ThreadPool(1)
    work = threads.run(asyncio.get_running_loop(), partial(contextvars.copy_context().run, hook))
    threads.close()
    await asyncio.wait([work])
    return work.result()


async def run_isolated(
    loop: asyncio.AbstractEventLoop,
    pool: Callable[[], ProcessPool],
    current: CurrentJob,
    job: ClaimedJob,
    function: partial[Any],
) -> Any:
    """Run a function that an async handler of the worker on this loop hands over; see `CurrentJob.run_isolated`."""
    if asyncio.get_running_loop() is not loop:
        raise UsageError("run_isolated() is for async handlers; give a plain task isolate=True instead")
    if inspect.iscoroutinefunction(function.func):
        raise UsageError(f"run_isolated() takes a plain function, got the async {function.func!r:.100}; await that one")
    message = Assignment(current.queue, current.worker, job, carried()).message()
    deadline = None if current.deadline is None else current.deadline.timestamp()
    message |= {"kind": "hand", "task": current.task, "deadline": deadline, "function": handed.text_of(function)}
    processes = pool()
    seat = await processes.run(message, current, _START_S, is_handed=True)
    if seat is None:
        raise ProcessDied(
            f"no child process has started within {_START_S:g} s: {processes.problem or 'it is not ready'}"
        )
    try:
        await asyncio.wait([seat.ended])
    except asyncio.CancelledError:
        processes.end(seat)
        raise
    if not seat.ended.cancelled() and isinstance(died := seat.ended.exception(), ProcessDied):
        raise caused(died, clean_text(died.stack[-_MOST_STACK:]))
    return handed.result_of(seat.ended.result())
