"""Resources that live as long as a worker: the lifespans of its queues, and dependencies of the worker scope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from schedq.dependencies.providers import Need, RunInThread, Values, enter, overrides
from schedq.errors import UsageError
from schedq.logs import log
from schedq.model.callables import place_of

Lifespan = Callable[[], Any]
"""Returns an async or a plain context manager."""


class _Request(NamedTuple):
    """A value that an attempt waits for."""

    need: Need
    values: Values
    made: asyncio.Future[Any]


_LEAVE: Final = None
_LAST_S: Final = 1.0


class Resources:
    """The values of one worker on one event loop. One task enters and exits all of them.

    Args:
        lifespans: of the worker's queues, each once.
        run_in_thread: runs a plain function.
    """

    def __init__(self, lifespans: Sequence[Lifespan], run_in_thread: RunInThread) -> None:
        self._lifespans = tuple(dict.fromkeys(lifespans))
        self._run_in_thread = run_in_thread
        self._made: dict[object, Any] = {}
        self._requests: asyncio.Queue[_Request | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def has(self, key: object) -> bool:
        """Whether the key is a lifespan of this worker's queues."""
        return key in self._lifespans

    async def start(self) -> None:
        """Enter the lifespans. If this is cancelled, those already entered are exited.

        Raises:
            UsageError: one of them failed; those already entered were exited.
        """
        if not self._lifespans:
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready))
        try:
            await asyncio.wait([ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise
        if not ready.done():
            self._task.result()

    async def start_unless(self, stopping: asyncio.Event) -> bool:
        """Enter the lifespans; False if the event was set meanwhile, and what was entered is left again.

        Raises:
            UsageError: as `start`.
        """
        entering, stop = asyncio.create_task(self.start()), asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([entering, stop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            entering.cancel()  # if it is done this changes nothing
            await asyncio.wait([entering, stop])
        if entering.cancelled():
            return False
        entering.result()
        return True

    async def get(self, need: Need, values: Values) -> Any:
        """Return the value of a lifespan or of a dependency of the worker scope; create it if it does not exist."""
        if need.key in self._made:
            return self._made[need.key]
        if self._task is None:
            self._task = asyncio.create_task(self._run(None))
        made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests.put_nowait(_Request(need, values, made))
        return await made

    async def close(self, within: float) -> None:
        """Exit everything in reverse order, in at most `within` seconds. Errors are logged."""
        if self._task is None or self._task.done():
            return
        self._requests.put_nowait(_LEAVE)
        _, late = await asyncio.wait([self._task], timeout=within)
        if late:
            log.error("cleaning up this worker's resources takes more than %g s; cancelled", within)
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_LAST_S)
        elif not self._task.cancelled() and (error := self._task.exception()) is not None:
            log.error("a resource of this worker could not be cleaned up", exc_info=error)

    async def _run(self, ready: asyncio.Future[None] | None) -> None:
        async with AsyncExitStack() as stack:
            for lifespan in self._lifespans:
                try:
                    self._made[lifespan] = await self._entered(lifespan, stack)
                except BaseException as error:
                    if (task := asyncio.current_task()) is not None and task.cancelling():
                        raise
                    text = f"lifespan {place_of(lifespan)} failed: {type(error).__name__}: {error}"
                    log.error(text, exc_info=error)
                    raise UsageError(text) from error
            if ready is not None:
                ready.set_result(None)
            while (request := await self._requests.get()) is not _LEAVE:
                await self._make(request, stack)

    async def _entered(self, lifespan: Lifespan, stack: AsyncExitStack) -> Any:
        manager = overrides.get(lifespan, lifespan)()
        if hasattr(manager, "__aenter__"):
            return await stack.enter_async_context(manager)
        if hasattr(manager, "__enter__"):
            return stack.enter_context(manager)
        raise TypeError(f"it returned {manager!r:.100}, which is not a context manager")

    async def _make(self, request: _Request, stack: AsyncExitStack) -> None:
        key = request.need.key
        try:
            if key not in self._made:
                values = Values(request.values | self._made)
                await enter([request.need], values, stack, self._run_in_thread)
                self._made[key] = values[key]
        except BaseException as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            if not request.made.done():
                request.made.set_exception(_for_a_future(error))
        else:
            if not request.made.done():
                request.made.set_result(self._made[key])


def _for_a_future(error: BaseException) -> Exception:
    """Return the error in a form that a future accepts. SystemExit would end the loop, StopIteration is rejected."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    found = RuntimeError(f"a dependency raised {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
