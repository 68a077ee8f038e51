"""Requests of an attempt to the record of its run: which of them a cancellation may interrupt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

from schedq.errors import RecordFull, StoreUnavailable
from schedq.logs import log
from schedq.model.outcome import described
from schedq.model.runs import RunLost, RunStopped
from schedq.workflows.branches import Branch

T = TypeVar("T")
_AGAIN_S: Final = 1.0


class Requests:
    """The requests of one attempt.

    Args:
        job_id: the job, for the log.
        main: the workflow's function.
        stop: ends the attempt with an error.
    """

    def __init__(
        self, job_id: str, main: Branch, stop: Callable[[BaseException], Coroutine[Any, Any, NoReturn]]
    ) -> None:
        self._job_id, self._main, self._stop = job_id, main, stop
        self._loop = asyncio.get_running_loop()
        self._requests: set[asyncio.Task[Any]] = set()

    async def ask(self, branch: Branch, request: Coroutine[Any, Any, T]) -> T:
        """Send a request to the record, and return what it says.

        A cancellation meanwhile comes into effect behind the request, so that it is known what was recorded. At the end
        of the attempt the request is only left to itself.
        """
        task = self._loop.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._over)
        branch.asking = task
        try:
            await to_its_end(task, unless=lambda: branch.is_closed)
            return task.result()
        except (RunLost, RunStopped, RecordFull) as error:
            await self._stop(error)
        finally:
            branch.asking = None

    async def store(self, branch: Branch, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Store what a step came to, as `ask` does, however long Redis is away or full: its effect is done."""

        async def until_stored() -> T:
            while True:
                try:
                    return await request()
                except StoreUnavailable as error:
                    if self._main.is_closed:
                        raise
                    log.warning("job %s: the outcome of a step is not stored yet: %s", self._job_id, described(error))
                    await asyncio.sleep(_AGAIN_S)

        return await self.ask(branch, until_stored())

    def _over(self, request: asyncio.Task[Any]) -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()  # else asyncio logs it if nothing waits for the request any more

    async def ended(self) -> None:
        """Return when the requests of an attempt that has ended are over."""
        for task in [*self._requests]:
            with suppress(BaseException):
                await asyncio.wait([task])
        for task in [*self._requests]:
            task.cancel()


async def to_its_end(future: asyncio.Future[Any], unless: Callable[[], bool] = lambda: False) -> None:
    """Wait for a future. A cancellation of the caller meanwhile comes into effect behind it, `unless` that says no."""
    is_cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            if unless():
                raise
            is_cancelled = True
    task = asyncio.current_task()
    if is_cancelled and task is not None:
        task.uncancel()
        task.cancel()
