"""An event loop in a thread of its own: what a worker does beside its jobs, whatever handlers do to the worker's loop.

Promotion, reclaiming, schedules and heartbeats serve the whole queue. A handler that blocks the worker's event loop for
seconds must delay none of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from schedq.clocks import monotonic

T = TypeVar("T")
_JOIN_S: Final = 1.0


class Background:
    """One event loop in one thread, for all queues of a worker.

    C code that keeps the interpreter's lock still stops this thread, as it stops every other of its process.
    """

    def __init__(self) -> None:
        self._owner: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._closing: asyncio.Event | None = None
        self._work: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="schedq-background", daemon=True)

    def start(self) -> None:
        """Begin, from the worker's event loop; returns when it takes work."""
        self._owner = asyncio.get_running_loop()
        self._thread.start()
        self._ready.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run a coroutine there. The future belongs to the worker's loop; to cancel it cancels the work."""
        assert self._loop is not None
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop))

    async def cancel(self) -> None:
        """Cancel all work and wait until it has ended."""
        await self.run(self._cancel())

    async def aclose(self) -> None:
        """End the loop, and the thread unless it is stuck."""
        assert self._loop is not None
        assert self._closing is not None
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._closing.set)
        deadline = monotonic() + _JOIN_S
        while self._thread.is_alive() and monotonic() < deadline:  # noqa: ASYNC110 - it ends soon
            await asyncio.sleep(0.002)

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._work.add(task)
        try:
            return await work
        except (KeyboardInterrupt, SystemExit) as error:  # asyncio would end its loop by it, before anybody heard
            raise RuntimeError(f"{type(error).__name__} was raised in the worker's background") from error
        finally:
            self._work.discard(task)

    async def _cancel(self) -> None:
        others = self._work - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _run(self) -> None:
        assert self._owner is not None
        with asyncio.Runner(debug=self._owner.get_debug()) as runner:
            self._loop = runner.get_loop()
            self._loop.set_exception_handler(self._complain)
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        self._closing = asyncio.Event()
        self._ready.set()
        await self._closing.wait()

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What asyncio has to complain of goes where the application looks for it."""
        assert self._owner is not None
        with suppress(RuntimeError):  # the worker's loop is closed
            self._owner.call_soon_threadsafe(self._owner.call_exception_handler, context)
