"""One call of a function within middleware and hooks, up to the end of everything that they have started."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from schedq.model import outcome
from schedq.model.times import monotonic
from schedq.observer import attempt_facts
from schedq.queue.handler import Invocation
from schedq.queue.hooks import Ending
from schedq.queue.middleware import Layers, Middleware
from schedq.worker.attempt import ABANDONED, RUNNING, TIMED_OUT, Attempt
from schedq.worker.threads import ThreadPool

_AFTER_TIMEOUT_S: Final = 10.0
"""Seconds that middleware and hooks may keep running after a timeout before they are cancelled as well."""


class Endings(Protocol):
    """Decides how attempts end, and tells what runs to end."""

    def time_out(self, attempt: Attempt) -> None:
        """The timeout of an attempt has struck on the event loop."""

    def interrupt(self, attempt: Attempt) -> None:
        """Ask what runs to end, again and again if it keeps running; in the end its slot counts as stuck."""

    def stop_interrupting(self, attempt: Attempt) -> None:
        """What was asked to end has ended, and what is around it may continue."""

    def leave_thread(self, attempt: Attempt) -> None:
        """The attempt continues without its thread; if that does not end soon, its slot counts as stuck."""

    def interrupted(self, attempt: Attempt, error: BaseException, policy: outcome.Policy) -> None:
        """Decide how an attempt ends that was interrupted."""

    def fail(self, attempt: Attempt, error: BaseException, policy: outcome.Policy) -> None:
        """Decide how an attempt ends that has failed."""

    def raised(self, attempt: Attempt, call: Invocation, error: BaseException, policy: outcome.Policy) -> None:
        """Decide how an attempt ends that raised this."""

    def returned(self, attempt: Attempt, call: Invocation, result: Any, policy: outcome.Policy) -> None:
        """Decide how an attempt ends that returned this."""

    def foresee(self, attempt: Attempt, call: Invocation, error: BaseException, policy: outcome.Policy) -> Ending:
        """How an attempt will end if this is raised."""


class WrappedCall(Layers):
    """Calls the function of one attempt within middleware, all of it in the attempt's task and within its timeout.

    Only a plain function is called from a task of its own. Its thread can't be stopped; when the timeout strikes or the
    lease is lost, the middleware continues without it. The attempt holds its slot until the thread has ended.

    Args:
        attempt: what is run.
        call: the function and its arguments.
        policy: of the job.
        middleware: outermost first; hooks are outside of it.
        function: calls the function, with its dependencies.
        endings: decides how the attempt ends.
        threads: for plain hooks.
        loop: the worker's.
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
        """What the outermost middleware returns."""
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
        """What a middleware sees instead of a cancellation inside it: the timeout, if that was the reason."""
        if self._attempt.state is not TIMED_OUT:
            return error
        self._stop_timer()
        self._start_timer()
        return self._attempt.timeout_error()

    async def end(self, task: asyncio.Task[Any]) -> None:
        """Tell what runs on, though its middleware has ended, to end, and wait until it has."""
        self._endings.interrupt(self._attempt)
        while not task.done():
            task.cancel()
            await self._wait([task])
        if not task.cancelled():
            task.exception()  # or asyncio logs that it was never retrieved
        self._endings.stop_interrupting(self._attempt)

    async def _call(self) -> Any:
        self._stop_timer()  # the function looks after its timeout itself
        try:
            is_async = self._invocation.handler.is_async
            result = await (self._run_function() if is_async else self._call_apart())
            outcome.check_result(result)
            return result
        finally:
            self._start_timer()

    async def _call_apart(self) -> Any:
        """Call a plain function in a task of its own, which this may leave behind."""
        attempt = self._attempt
        self._ended = self._loop.create_future()
        attempt.leave = self._leave
        attempt.apart = self._loop.create_task(self._collect())
        try:
            await self._ended
        except BaseException as error:  # the middleware waits no longer
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
        except BaseException as problem:  # noqa: BLE001 - an event loop would end at a SystemExit in a task
            error = problem
        if not self._ended.done():
            self._result, self._error = result, error
            self._ended.set_result(None)

    def _leave(self, error: BaseException) -> None:
        """Let the middleware continue, with an error, though the thread has not ended."""
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
        """Call a plain hook in the thread of this slot, or in one of its own if the function still holds that."""
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
        """The attempt is settled: hold its slot until the threads that were left have ended."""
        while waiting := [each for each in self._left if not each.done()]:
            if self._attempt.state is ABANDONED:
                for each in waiting:
                    each.cancel()
            await self._wait(waiting)

    async def _wait(self, work: Sequence[asyncio.Future[Any]]) -> None:
        """Wait for work to end, for a while at least: a request to end does not end this, but the worker's end does."""
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
            self._timer = self._loop.call_later(_AFTER_TIMEOUT_S, self._endings.interrupt, attempt)
        elif attempt.state is RUNNING and attempt.ends_at is not None:
            left_s = max(0.0, attempt.ends_at - monotonic())
            self._timer = self._loop.call_later(left_s, self._endings.time_out, attempt)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _forget_cancellations() -> None:
    """The running task was cancelled and has handled that: what it awaits now must not see a cancellation."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
