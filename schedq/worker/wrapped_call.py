"""Calls a function within middleware and hooks, and waits for everything that they have started."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from schedq.model import outcome
from schedq.model.records import Settlement
from schedq.model.times import monotonic
from schedq.observer import attempt_facts
from schedq.queue.handler import Invocation
from schedq.queue.hooks import Ending
from schedq.queue.middleware import Layers, Middleware
from schedq.worker.attempt import ABANDONED, RUNNING, TIMED_OUT, Attempt
from schedq.worker.threads import ThreadPool

HOOKS_S: Final = 10.0
"""Seconds that middleware and hooks may keep running after a timeout before they are cancelled as well."""


class Endings(Protocol):
    """Sets the outcome of attempts, and interrupts running code."""

    def time_out(self, attempt: Attempt) -> None:
        """Interrupt an attempt whose timeout has expired on the event loop."""

    def interrupt(self, attempt: Attempt) -> None:
        """Ask the running code to end, repeatedly if it keeps running. If it never ends, its slot counts as stuck."""

    def stop_interrupting(self, attempt: Attempt) -> None:
        """Let the surrounding code continue, because the interrupted code has ended."""

    def leave_thread(self, attempt: Attempt) -> None:
        """Stop waiting for the thread of an attempt. If the thread does not end soon, its slot counts as stuck."""

    def interrupted(self, attempt: Attempt, error: BaseException, policy: outcome.Policy) -> None:
        """Set the outcome of an attempt that was interrupted."""

    def fail(self, attempt: Attempt, error: BaseException, policy: outcome.Policy) -> None:
        """Set the outcome of an attempt that has failed."""

    def raised(self, attempt: Attempt, call: Invocation, error: BaseException, policy: outcome.Policy) -> None:
        """Set the outcome of an attempt that raised this error."""

    def returned(self, attempt: Attempt, call: Invocation, result: Any, policy: outcome.Policy) -> None:
        """Set the outcome of an attempt that returned this result."""

    def ended(self, attempt: Attempt, settlement: Settlement, raised: BaseException | None) -> None:
        """Set an outcome that is already decided."""

    def ended_by(self, attempt: Attempt, end: Callable[[], None] | None) -> None:
        """Set what ends an attempt that does not end when it is asked to; None: nothing any more."""

    def foresee(self, attempt: Attempt, call: Invocation, error: BaseException, policy: outcome.Policy) -> Ending:
        """Return the outcome that this error leads to."""


class WrappedCall(Layers):
    """Calls the function of one attempt within middleware. All of it runs in the attempt's task, within its timeout.

    Only a plain function is called from a separate task, because its thread can't be stopped. When the timeout expires
    or the lease is lost, the middleware continues without it. The attempt holds its slot until the thread has ended.

    Args:
        attempt: the attempt.
        call: the function and its arguments.
        policy: the job's rules for retries.
        middleware: outermost first; hooks run outside of it.
        function: calls the function, with its dependencies.
        endings: sets the outcome of the attempt.
        threads: run plain hooks.
        loop: the worker's event loop.
    """

    def __init__(
        self,
        attempt: Attempt,
        call: Invocation,
        policy: outcome.Policy,
        middleware: Sequence[Middleware],
        function: Callable[[], Awaitable[Any]],
        endings: Endings,
        threads: ThreadPool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        hooks = call.handler.hooks
        if hooks is not None:
            decide = partial(endings.foresee, attempt, call, policy=policy)
            middleware = (partial(hooks.call, decide, self._in_thread), *middleware)
        facts = attempt.facts or attempt_facts(attempt.queue, attempt.worker, attempt.name, attempt.job)
        super().__init__(facts, middleware, self._call)
        self._attempt, self._invocation, self._policy = attempt, call, policy
        self._run_function = function
        self._endings = endings
        self._threads, self._loop = threads, loop
        self._timer: asyncio.TimerHandle | None = None
        self._left: list[asyncio.Future[Any]] = []
        self._ended: asyncio.Future[None]
        self._result: Any = None
        self._error: BaseException | None = None

    async def result(self) -> Any:
        """Return the result of the outermost middleware."""
        attempt, call, policy = self._attempt, self._invocation, self._policy
        if attempt.timeout_s is not None:
            attempt.ends_at = monotonic() + attempt.timeout_s
        self._start_timer()
        try:
            result = await self.run()
        except BaseException as error:
            if self._left:
                self._endings.leave_thread(attempt)
                self._endings.raised(attempt, call, error, policy)
                await self._wait_for_threads()
            raise
        else:
            if self._left:
                self._endings.leave_thread(attempt)
                self._endings.returned(attempt, call, result, policy)
                await self._wait_for_threads()
            return result
        finally:
            self._stop_timer()
            self._error = None

    def cancelled(self, error: asyncio.CancelledError) -> BaseException:
        """Return the exception that a middleware sees instead of a cancellation: a TimeoutError after a timeout."""
        if self._attempt.state is not TIMED_OUT:
            return error
        self._stop_timer()
        self._start_timer()
        return self._attempt.timeout_error()

    async def end(self, task: asyncio.Task[Any]) -> None:
        """End a task that is still running although its middleware has ended, and wait for it."""
        self._endings.interrupt(self._attempt)
        while not task.done():
            task.cancel()
            await self._wait([task])
        if not task.cancelled():
            task.exception()  # or asyncio logs that it was never retrieved
        self._endings.stop_interrupting(self._attempt)

    async def _call(self) -> Any:
        self._stop_timer()  # the call of the function has its own timer
        try:
            is_async = self._invocation.handler.is_async
            result = await (self._run_function() if is_async else self._call_apart())
            outcome.check_result(result)
            return result
        finally:
            self._start_timer()

    async def _call_apart(self) -> Any:
        """Call a plain function in a separate task, which may still be running when this returns."""
        attempt = self._attempt
        self._ended = self._loop.create_future()
        attempt.leave = self._leave
        attempt.apart = self._loop.create_task(self._collect())
        attempt.apart.add_done_callback(self._skip)
        try:
            await self._ended
        except BaseException as error:  # the middleware no longer waits
            task = attempt.apart
            self._leave(error)
            task.cancel()
            raise
        finally:
            attempt.apart = None
        if self._error is not None:
            raise self._error
        return self._result

    async def _collect(self) -> None:
        result, error = None, None
        try:
            result = await self._run_function()
        except BaseException as problem:  # noqa: BLE001 - a SystemExit in a task would end the event loop
            error = problem
        if not self._ended.done():
            self._result, self._error = result, error
            self._ended.set_result(None)

    def _skip(self, task: asyncio.Task[None]) -> None:
        """Let the middleware continue if the task was cancelled before it began, so that none of its code has run."""
        if task.cancelled() and not self._ended.done():
            self._error = asyncio.CancelledError()
            self._ended.set_result(None)

    def _leave(self, error: BaseException) -> None:
        """Let the middleware continue with an error although the thread has not ended."""
        attempt = self._attempt
        if attempt.is_left or attempt.apart is None:
            return
        attempt.is_left = True
        self._left.append(attempt.apart)
        if attempt.current is not None:
            attempt.current.cancel()
        if not self._ended.done():
            self._error = error
            self._ended.set_result(None)

    async def _in_thread(self, hook: Callable[[], Any]) -> Any:
        """Call a plain hook in the thread of this slot, or in a new thread if the function still occupies that."""
        threads = ThreadPool(1) if self._attempt.is_left else self._threads
        work = threads.run(self._loop, partial(contextvars.copy_context().run, hook))
        if threads is not self._threads:
            threads.close()
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            self._left.append(work)
            raise
        return work.result()

    async def _wait_for_threads(self) -> None:
        """Hold the slot of a settled attempt until the threads that it left behind have ended."""
        while waiting := [each for each in self._left if not each.done()]:
            if self._attempt.state is ABANDONED:
                for each in waiting:
                    each.cancel()
            await self._wait(waiting)

    async def _wait(self, work: Sequence[asyncio.Future[Any]]) -> None:
        """Wait for work to end, or for a cancellation.

        A cancellation is dropped, unless the worker has stopped: then it is passed on to the work and raised.
        """
        try:
            await asyncio.wait(work)
        except asyncio.CancelledError:
            if self._attempt.state is ABANDONED:
                for each in work:
                    each.cancel()
                raise
            _forget_cancellations()

    def _start_timer(self) -> None:
        attempt = self._attempt
        if attempt.state is TIMED_OUT:
            self._endings.stop_interrupting(attempt)
            _forget_cancellations()
            self._timer = self._loop.call_later(HOOKS_S, self._endings.interrupt, attempt)
        elif attempt.state is RUNNING and attempt.ends_at is not None:
            left_s = max(0.0, attempt.ends_at - monotonic())
            self._timer = self._loop.call_later(left_s, self._endings.time_out, attempt)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _forget_cancellations() -> None:
    """Reset the cancellations of the running task, which has handled them.

    Otherwise `asyncio.TaskGroup` and `asyncio.timeout` in the code that runs next would fail, as they check for them.
    """
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
