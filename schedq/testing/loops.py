"""The event loop that runs async code of a test's jobs, and the thread that runs plain code.

With Django, both are those of `async_to_sync` and `sync_to_async`: code that uses the ORM then runs in the thread whose
connection has the test's transaction, even if an async job calls it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Runner(Protocol):
    """Runs coroutines on one event loop, which others use only while it does."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        ...

    def run(self, coro: Coroutine[Any, Any, T], *, context: Context | None = None) -> T:
        """Run a coroutine to its end, in this context or in a copy of the present one."""
        ...


def with_runner(work: Callable[[Runner], T]) -> T:
    """Call a function with a runner. Called outside of event loops."""
    if "django.db" in sys.modules:
        return _with_djangos_threads(work)
    # The factory keeps it from replacing the event loop that the thread has.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return work(runner)


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Call a function outside of the running event loop."""
    if "django.db" in sys.modules:
        from asgiref.sync import sync_to_async

        return await sync_to_async(work)(*args)
    return await asyncio.to_thread(work, *args)


def beside_loop(work: Callable[[], T]) -> asyncio.Future[T]:
    """Call the plain function of a step while an event loop runs: in this thread, or with Django in its own."""
    if "django.db" in sys.modules:
        return asyncio.ensure_future(in_thread(work))
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(work())
    except StopIteration as error:  # futures reject it
        future.set_exception(RuntimeError(f"a step raised {error!r}"))
    except BaseException as error:  # noqa: BLE001 - whatever a step raises is its failure
        future.set_exception(error)
    return future


def _with_djangos_threads(work: Callable[[Runner], T]) -> T:
    from asgiref.sync import async_to_sync, sync_to_async

    async def on_loop() -> T:
        # Called from inside of this, `async_to_sync` uses the present loop, which runs in another thread.
        return await sync_to_async(work)(_DjangosRunner(asyncio.get_running_loop()))

    return async_to_sync(on_loop)()


class _DjangosRunner:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def run(self, coro: Coroutine[Any, Any, T], *, context: Context | None = None) -> T:
        from asgiref.sync import async_to_sync

        async def call() -> T:
            return await coro

        return async_to_sync(call)() if context is None else context.run(async_to_sync(call))
