"""What must happen before an event loop is closed, however it is closed.

`asyncio.run` and test runners cancel tasks and close the loop; none of them asks libraries to close their connections.
asyncio has no hook for that, so the loop's `close` is replaced on the instance. This works for uvloop as well.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol


class Closable(Protocol):
    """Something that lives on one event loop and has to be closed there."""

    async def aclose(self) -> None:
        """Close it; runs on its loop."""
        ...


class LoopClose:
    """Stands in for the `close` of one event loop: first closes what was left open on it.

    The loop owns what is kept here, so both can be collected together if nobody ever closes the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._close: Callable[[], None] = loop.close
        self._pid = os.getpid()
        self._kept: dict[weakref.ref[Any], Closable] = {}
        self._unclosed: set[Closable] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closing = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> LoopClose:
        """The one of this loop, put in place at the first call. Call it on the loop."""
        found = loop.close
        if isinstance(found, cls):
            return found
        made = cls(loop)
        loop.close = made  # type: ignore[method-assign]
        _all.add(made)
        return made

    def __call__(self) -> None:
        """Close everything, then the loop."""
        loop = self._loop
        if loop.is_running():
            self._close()  # which says that this can't be
        try:
            self.end()
        finally:
            self._close()
            vars(loop).pop("close", None)

    def end(self) -> None:
        """Close everything; the loop stands still, and will run nothing of ours again."""
        self.is_closing = True
        try:
            # A forked child shares the parent's selector: to take a socket out of it would make the parent deaf.
            is_ours = self._pid == os.getpid() and not sys.is_finalizing()
            if self._unclosed and is_ours and not self._loop.is_closed():
                _run(self._loop, self._aclose_all())
        finally:
            self._kept.clear()
            self._unclosed.clear()

    def find(self, owner: object) -> Closable | None:
        """What is kept for `owner`."""
        return self._kept.get(weakref.ref(owner))

    def keep(self, owner: object, closable: Closable) -> None:
        """Close `closable` when the loop is closed, or soon after `owner` has been collected."""
        self._kept[weakref.ref(owner, self._collected)] = closable
        self._unclosed.add(closable)

    async def aclose(self, owner: object) -> None:
        """Close what is kept for `owner`, now."""
        await self._aclose_one(weakref.ref(owner))

    def _collected(self, owner: weakref.ref[Any]) -> None:
        """An owner is gone. Any thread may run this, at any moment."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._close_one, owner)

    def _close_one(self, owner: weakref.ref[Any]) -> None:
        task = self._loop.create_task(self._aclose_one(owner), name="schedq close")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _aclose_one(self, owner: weakref.ref[Any]) -> None:
        closable = self._kept.get(owner)
        if closable is not None:
            await closable.aclose()
            self._unclosed.discard(closable)  # one that was cancelled meanwhile is closed with the loop
            if self._kept.get(owner) is closable:
                del self._kept[owner]

    @property
    def is_running(self) -> bool:
        """Whether the loop runs now."""
        return self._loop.is_running()

    async def _aclose_all(self) -> None:
        await asyncio.gather(*[closable.aclose() for closable in self._unclosed], return_exceptions=True)


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run it on a loop that stands still."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop.run_until_complete(work)
        return
    # One loop is closed from within another, and a thread runs only one at a time.
    thread = threading.Thread(target=loop.run_until_complete, args=(work,), name="schedq close", daemon=True)
    thread.start()
    thread.join()


_all: Final[weakref.WeakSet[LoopClose]] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Of loops that nobody closed."""
    for each in list(_all):
        if not each.is_running:
            each.end()
