"""Middleware: code around the function of an attempt. Each one runs inside the one before it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from schedq.errors import UsageError
from schedq.model.callables import place_of
from schedq.model.signatures import signature_of

if TYPE_CHECKING:  # programs that only enqueue do not need it
    from schedq.observer import AttemptFacts


class CallNext(Protocol):
    """Runs the next inner middleware, or the function of the job if there is none."""

    def __call__(self) -> Coroutine[Any, Any, Any]:
        """Return a coroutine to await once. Its result is the job's result, its exception is the job's error."""
        ...


class Middleware(Protocol):
    """An async function that runs around each attempt."""

    def __call__(self, attempt: AttemptFacts, call_next: CallNext, /) -> Awaitable[Any]:
        """Return the result of the attempt, or raise its error."""
        ...


def checked_middleware(middleware: object, what: str) -> None:
    """Check that this can be awaited around an attempt. Errors name `what`, the function or option that took it.

    Raises:
        UsageError: it can't be awaited.
    """
    wanted = f"{what} takes an async function (attempt, call_next)"
    if isinstance(middleware, type):
        raise UsageError(f"{wanted}, or an object; got the class {place_of(middleware)}; write {middleware.__name__}()")
    if not callable(middleware):
        raise UsageError(f"{wanted}, got {middleware!r:.200}")
    if not any(map(inspect.iscoroutinefunction, (middleware, getattr(middleware, "__call__", None)))):  # noqa: B004
        raise UsageError(f"{wanted}, but {place_of(middleware)} is not async; write async def")
    try:
        signature_of(middleware).bind(None, None)
    except ValueError:
        return  # Python does not know its arguments
    except TypeError as error:
        raise UsageError(f"{wanted}, but {place_of(middleware)} can't be called with these two: {error}") from None


class Layers:
    """The middleware around one call of a function.

    Args:
        attempt: the object that the middleware receives.
        middleware: outermost first.
        function: calls the function.
    """

    def __init__(self, attempt: AttemptFacts, middleware: Sequence[Middleware], function: CallNext) -> None:
        self.facts = attempt
        self.middleware = middleware
        self.function = function

    def run(self) -> Coroutine[Any, Any, Any]:
        """Return the result of the outermost middleware."""
        return _Next(self, 0)()

    def cancelled(self, error: asyncio.CancelledError) -> BaseException:
        """Return what a middleware sees instead of a cancellation inside it."""
        return error

    async def end(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task that is still running although its middleware has ended, and wait for it."""
        task.cancel()
        await asyncio.wait([task])


class _Next:
    """The `call_next` of one layer: the next middleware, or the function."""

    __slots__ = ("_depth", "_is_over", "_layers", "_made", "_task", "is_pending")

    def __init__(self, layers: Layers, depth: int) -> None:
        self._layers = layers
        self._depth = depth
        self._made: Coroutine[Any, Any, Any] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_over = False
        self.is_pending = False  # called, but not yet awaited to its end

    def __call__(self) -> Coroutine[Any, Any, Any]:
        if self._made is not None:
            raise UsageError(f"{self._caller} called call_next twice; to run the job again, raise Retry")
        if self._is_over:
            raise UsageError(f"{self._caller} called call_next after it had ended")
        self.is_pending = True
        self._made = made = self._run()
        return made

    async def end(self) -> None:
        """End the call that the middleware did not await. The middleware has ended."""
        self._is_over = True
        if not self.is_pending:
            return
        if self._task is None or self._task is asyncio.current_task():  # not started, or stepped by hand in this task
            assert self._made is not None
            self._made.close()
        else:
            await self._layers.end(self._task)

    async def _run(self) -> Any:
        layers, depth = self._layers, self._depth
        self._task = asyncio.current_task()
        try:
            if depth == len(layers.middleware):
                return await layers.function()
            following = _Next(layers, depth + 1)
            try:
                result = await layers.middleware[depth](layers.facts, following)
            except BaseException:
                await following.end()
                raise
            if following.is_pending:
                await following.end()
                raise UsageError(f"{following._caller} returned before call_next() did; write await call_next()")
            following._is_over = True
            return result
        except asyncio.CancelledError as error:
            seen = layers.cancelled(error)
            if seen is error:
                raise
            raise seen.with_traceback(error.__traceback__) from None
        finally:
            self._task, self.is_pending = None, False

    @property
    def _caller(self) -> str:
        return f"middleware {place_of(self._layers.middleware[self._depth - 1])}"
