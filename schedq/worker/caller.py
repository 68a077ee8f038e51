"""Calls the function of an attempt, on the event loop or in a thread, with its dependencies and its timeout."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import Any, Final

from schedq.logs import log
from schedq.model import current_job, outcome
from schedq.model.progress import Reporters
from schedq.model.times import monotonic, wall
from schedq.observer import attempt_facts
from schedq.queue import workflow
from schedq.queue.around import Entered
from schedq.queue.handler import Handler, Invocation
from schedq.queue.queue import QueueBase
from schedq.worker.attempt import ABANDONED, LOST, OPEN, RELEASED, RUNNING, TIMED_OUT, Attempt
from schedq.worker.injected_call import InjectedCall
from schedq.worker.isolated_call import IsolatedCall
from schedq.worker.worker_context import WorkerContext
from schedq.worker.wrapped_call import Endings, WrappedCall
from schedq.workflows.attempt import WorkflowAttempt


class Caller:
    """Calls the functions of one queue's attempts, on the event loop that it is made on.

    Args:
        queue: the application's queue.
        context: the objects that the worker's queues share.
        reporters: collects what handlers report.
        endings: decides how attempts end.
    """

    def __init__(self, queue: QueueBase, context: WorkerContext, reporters: Reporters, endings: Endings) -> None:
        self._queue = queue
        self._renew, self._arenew = queue.blocking.renew, queue.aio.renew
        self._reporters = reporters
        self._threads = context.threads
        self._observers = context.observers
        self._resources = context.resources
        self._around = tuple(queue.registry.around)
        self._middleware = (*context.middleware, *queue.registry.middleware)
        self._endings = endings
        self._processes = context.processes
        self._isolates_all = context.isolates_all
        self._has_layers = bool(self._middleware) or context.isolates_all
        self._measures_timeouts = context.measures_timeouts
        self._loop = asyncio.get_running_loop()  # asking for it each time costs a system call before Python 3.12

    async def call(self, attempt: Attempt, call: Invocation, policy: outcome.Policy) -> Any:
        """Call the function of an attempt within its timeout, and return its result."""
        job = attempt.job
        timeout_ms = job.timeout_ms or call.handler.timeout_ms
        timeout_s = None
        if timeout_ms is not None:
            attempt.limit_s = timeout_s = timeout_ms / 1000
            attempt.timeout_s = timeout_s if self._measures_timeouts else None
        attempt.current = current = current_job.CurrentJob(
            job,
            deadline=None if timeout_s is None else wall() + timeout_s,
            renew=self._renew,
            arenew=self._arenew,
            queue=attempt.queue,
            task=attempt.name,
            worker=attempt.worker,
            reporters=self._reporters,
        )
        if call.handler.workflow is not None:
            return await self._workflow(attempt, call, current, policy)
        if self._has_layers or not call.handler.is_bare:
            if self._processes is not None and self._is_isolated(call.handler):
                pool, observers, hooks = self._processes, self._observers, call.handler.hooks
                return await IsolatedCall(attempt, current, policy, pool, self._endings, observers, hooks).run()
            return await self._wrapped(attempt, call, current, policy)
        function = call.bound()
        if call.handler.is_async:
            return await self._on_the_loop(attempt, current, function)
        return await self._plain(attempt, current, policy, function)

    async def _workflow(
        self, attempt: Attempt, call: Invocation, current: current_job.CurrentJob, policy: outcome.Policy
    ) -> Any:
        """Call the function of a workflow, with what its run has recorded."""
        in_thread = partial(self._step_in_thread, self._loop)
        run = WorkflowAttempt(self._queue, attempt.job, call, policy, in_thread)
        token = workflow.runner.set(run.run)
        try:
            return await self._wrapped(attempt, await run.recall(), current, policy)
        finally:
            workflow.runner.reset(token)

    def _step_in_thread(self, loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call the plain function of a step in a thread, with the caller's context."""
        return self._threads.run(loop, partial(contextvars.copy_context().run, function))

    def _is_isolated(self, handler: Handler) -> bool:
        """Whether the function of this handler runs in a child process."""
        if handler.is_isolated is not None:
            return handler.is_isolated
        return self._isolates_all and not handler.is_async

    async def _wrapped(
        self, attempt: Attempt, call: Invocation, current: current_job.CurrentJob, policy: outcome.Policy
    ) -> Any:
        """Call a function that has middleware, hooks or dependencies."""
        token = current_job.context.set(current)
        try:
            function = partial(self._inside, attempt, call, current, policy)
            if not self._middleware and call.handler.hooks is None:
                return await function()
            layers, endings = self._middleware, self._endings
            wrapped = WrappedCall(attempt, call, policy, layers, function, endings, self._threads, self._loop)
            return await wrapped.result()
        finally:
            current_job.context.reset(token)

    async def _inside(
        self, attempt: Attempt, call: Invocation, current: current_job.CurrentJob, policy: outcome.Policy
    ) -> Any:
        """Call a function with its dependencies, if it has any."""
        if call.handler.injection is not None:
            if attempt.timeout_s is not None and attempt.ends_at is None:
                attempt.ends_at = monotonic() + attempt.timeout_s
            return await InjectedCall(
                attempt,
                call,
                self._resources,
                run_in_thread=partial(self._threads.run_to_end, self._loop),
                on_the_loop=partial(self._on_the_loop, attempt, current),
                in_a_thread=partial(self._plain, attempt, current, policy),
            ).run()
        if call.handler.is_async:
            return await self._on_the_loop(attempt, current, call.bound())
        return await self._plain(attempt, current, policy, call.bound())

    async def _plain(
        self,
        attempt: Attempt,
        current: current_job.CurrentJob,
        policy: outcome.Policy,
        function: Callable[[], Any],
    ) -> Any:
        """Call a plain function in a thread. If it returns an awaitable, that is awaited on the loop."""
        result = await self._in_a_thread(attempt, current, function, policy)
        if result is not None and _is_awaitable(result):  # a plain function around an async one
            if attempt.is_left:
                _drop(result)
                raise attempt.timeout_error() if attempt.state is TIMED_OUT else asyncio.CancelledError
            return await self._on_the_loop(attempt, current, lambda: result)
        return result

    async def _on_the_loop(
        self,
        attempt: Attempt,
        current: current_job.CurrentJob,
        function: Callable[[], Awaitable[Any]],
        *,
        watched: bool = True,
    ) -> Any:
        """Call an async function, and interrupt it when its timeout expires."""
        token = current_job.context.set(current)
        timer = None
        if self._around and watched:
            function = partial(self._awithin, attempt, function)
        if attempt.timeout_s is not None:
            left_s = attempt.timeout_s if attempt.ends_at is None else max(0.0, attempt.ends_at - monotonic())
            timer = self._loop.call_later(left_s, self._endings.time_out, attempt)
        try:
            if attempt.facts is None or not watched:
                return await function()
            with self._observers.around(attempt.facts):
                return await function()
        except asyncio.CancelledError as error:
            if attempt.state is TIMED_OUT:
                raise attempt.timeout_error().with_traceback(error.__traceback__) from None
            raise
        finally:
            current_job.context.reset(token)
            if timer is not None:
                timer.cancel()

    async def _in_a_thread(
        self,
        attempt: Attempt,
        current: current_job.CurrentJob,
        function: Callable[[], Any],
        policy: outcome.Policy,
    ) -> Any:
        """Call a plain function. A thread can't be stopped, so this returns when the thread ends, even if cancelled."""
        context = contextvars.copy_context()  # the task is running in its own context, which can't be entered twice
        future = self._threads.run(self._loop, partial(context.run, self._thread_main, attempt, current, function))
        began_at, deadline = monotonic(), attempt.ends_at
        if deadline is None and attempt.timeout_s is not None:
            deadline = began_at + attempt.timeout_s
        while not future.done():
            try:
                await _until(self._loop, future, deadline)
            except asyncio.CancelledError as error:
                if attempt.state is ABANDONED:
                    raise
                if attempt.state is LOST or not (attempt.state is RELEASED or attempt.is_stop_requested):
                    leave = attempt.leave or partial(self._endings.interrupted, attempt, policy=policy)
                    leave(error)
            else:
                if deadline is not None and attempt.thread_id is None:  # its thread has not begun, or has just ended
                    now = monotonic()
                    began_at, deadline = now, now + max(deadline - began_at, _LEAST_TIME_S)
                elif not future.done():
                    deadline = None
                    self._overrun(attempt, current, policy)
        if attempt.state in OPEN:
            result = future.result()
            if attempt.state is TIMED_OUT and not self._measures_timeouts:  # the worker is ending this process
                _drop(result)
                raise attempt.timeout_error()
            return result
        if not future.cancelled() and future.exception() is None:
            _drop(future.result())
        return None

    def _thread_main(self, attempt: Attempt, current: current_job.CurrentJob, function: Callable[[], Any]) -> Any:
        attempt.thread_id = threading.get_ident()
        current_job.context.set(current)
        try:
            _check_in_time(attempt)
            if self._around:
                function = partial(self._within, attempt, function)
            if attempt.facts is None:
                return function()
            with self._observers.around(attempt.facts):
                return function()
        finally:
            attempt.thread_id = None

    def _within(self, attempt: Attempt, function: Callable[[], Any]) -> Any:
        """Call a plain function within the context managers that the application attached to the queue."""
        with self._entered(attempt):
            result = function()
            attempt.check_counts()
            return result

    async def _awithin(self, attempt: Attempt, function: Callable[[], Awaitable[Any]]) -> Any:
        """`_within` for an async function."""
        with self._entered(attempt):
            result = await function()
            attempt.check_counts()
            return result

    def _entered(self, attempt: Attempt) -> Entered:
        facts = attempt.facts or attempt_facts(attempt.queue, attempt.worker, attempt.name, attempt.job)
        return Entered(self._around, facts)

    def _overrun(self, attempt: Attempt, current: current_job.CurrentJob, policy: outcome.Policy) -> None:
        """Fail the job of a plain handler that is still running after its timeout. It keeps its slot until it ends."""
        if attempt.state is RUNNING:
            attempt.become(TIMED_OUT)
        error = attempt.timeout_error()
        if attempt.leave is not None:
            attempt.leave(error)
        else:
            self._endings.leave_thread(attempt)
            self._endings.fail(attempt, error, policy)
        current.cancel()
        text = "job %s: %s overran its timeout and still holds its thread"
        log.warning(text, attempt.job.id, attempt.name, extra=attempt.fields())


_LEAST_TIME_S: Final = 0.05
"""Seconds that a plain function has at least, once its thread has begun."""


def _check_in_time(attempt: Attempt) -> None:
    """Raise an error if the attempt has been asked to end, or was settled, before its thread began.

    Without this, the function could run at the same time as the next attempt at its own job.
    """
    if attempt.is_stop_requested or attempt.is_left or attempt.state not in (RUNNING, TIMED_OUT):
        raise asyncio.CancelledError


def _drop(result: object) -> None:
    """Close a coroutine that comes too late to be run: otherwise Python warns that it was never awaited."""
    if type(result) is CoroutineType and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
        result.close()


def _is_awaitable(result: object) -> bool:
    try:
        return inspect.isawaitable(result)
    except BaseException:  # noqa: BLE001 - a user's object may raise anything, even while it is inspected
        return False


async def _until(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], deadline: float | None) -> None:
    """Wait for a future until `deadline` at most. If the caller is cancelled, the future is not."""
    if deadline is not None:
        await asyncio.wait([future], timeout=max(0.0, deadline - monotonic()))
        return
    waiter: asyncio.Future[None] = loop.create_future()

    def tell(_: asyncio.Future[Any]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(tell)
    await waiter  # does the same as `asyncio.wait`, at a fraction of its cost
