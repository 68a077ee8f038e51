"""Calls a function that has dependencies: creates them, calls the function, and cleans them up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from schedq.dependencies.lifespan import Resources
from schedq.dependencies.providers import Need, RunInThread, Values, call_within, enter
from schedq.queue.handler import Invocation
from schedq.worker.attempt import Attempt

Coroutine = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class InjectedCall:
    """A call of the function of one attempt, with its dependencies.

    Attributes:
        attempt: the attempt.
        call: the function and its arguments.
        resources: the values that live as long as the worker.
        run_in_thread: runs a dependency's plain function.
        on_the_loop: awaits a coroutine within the attempt's timeout; with `watched`, within `Observer.around` too.
        in_a_thread: calls a plain handler.
    """

    attempt: Attempt
    call: Invocation
    resources: Resources
    run_in_thread: RunInThread
    on_the_loop: Callable[..., Awaitable[Any]]
    in_a_thread: Callable[[Callable[[], Any]], Awaitable[Any]]

    async def run(self) -> Any:
        """Return the function's result. Its dependencies see the exception that it raises, but can't swallow it."""
        injection, function, values = self.call.handler.injection, self.call.bound(), Values()
        assert injection is not None
        order = injection.order(self.resources)

        def call_plain(found: Values) -> Any:
            result = function(**found.arguments(injection.needs))
            self.attempt.check_counts()
            return result

        if self.call.handler.is_async:

            async def call_async() -> Any:
                async with Cleanup(self.attempt) as stack:
                    await self._make(order.of_worker, order.of_attempt, values, stack)
                    result = await function(**values.arguments(injection.needs))
                    self.attempt.check_counts()
                    return result

            return await self.on_the_loop(call_async)
        in_thread = partial(call_within, order.in_thread, values, call_plain)
        if not order.of_worker and not order.on_loop:
            return await self.in_a_thread(in_thread)
        async with Cleanup(self.attempt) as stack:
            await self.on_the_loop(partial(self._make, order.of_worker, order.on_loop, values, stack), watched=False)
            result = await self.in_a_thread(in_thread)
            self.attempt.check_counts()
            return result

    async def _make(
        self, of_worker: Sequence[Need], of_attempt: Sequence[Need], values: Values, stack: AsyncExitStack
    ) -> None:
        for need in of_worker:
            values[need.key] = await self.resources.get(need, values)
        await enter(of_attempt, values, stack, self.run_in_thread)


class Cleanup:
    """The exit stack of an attempt's dependencies. Nothing interrupts the exit, and nothing in it can swallow an error.

    The worker keeps cancelling a handler that does not end. These cancellations must not reach a cleanup in progress:
    it could stop halfway, for instance between a commit and the return of a connection.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> AsyncExitStack:
        return self._stack

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attempt.is_cleaning_up = True
        try:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # A cancellation that came just before the function returned would be raised by the first await.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            await self._stack.__aexit__(kind, error, trace)
        finally:
            self._attempt.is_cleaning_up = False
