"""Threads for plain handlers.

The standard pool joins its threads when the interpreter ends, so one stuck handler would keep a stopped worker alive
for ever. These are daemons.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from schedq.outcome import described


class Threads:
    """Up to `size` threads, started as they are needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_told = False

    def run(self, loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `function` in a thread; the future belongs to `loop`, which is the running one."""
        future: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        future.add_done_callback(self._ended)
        if self._busy > self._started and self._started < self._size:
            self._started += 1
            threading.Thread(target=self._run, name=f"schedq-handler-{self._started}", daemon=True).start()
        self._work.put((function, future))
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end after what they do."""
        for _ in range(self._started):
            self._work.put(None)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._busy -= 1
        if not future.cancelled():
            future.exception()  # perhaps nobody waits for it any more

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            function, future = work
            error: BaseException | None = None
            result = None
            try:
                result = function()
            except BaseException as problem:  # noqa: BLE001 - SystemExit of a handler is the handler's failure
                error = problem
            loop = future.get_loop()
            self._done.append((future, result, error))
            del function, future, result, error, work
            # Waking the loop costs more than many a handler: what ends until it looks is told together.
            if not self._is_told:
                self._is_told = True
                try:
                    loop.call_soon_threadsafe(self._deal)
                except RuntimeError:
                    return  # the loop is closed: the worker has gone

    def _deal(self) -> None:
        """On the loop: what has ended since it last looked. Whoever ends after the first line tells it again."""
        self._is_told = False
        while self._done:
            future, result, error = self._done.popleft()
            try:
                _settle(future, result, error)
            except BaseException as problem:  # noqa: BLE001 - an exception's __class__ may do anything
                future.set_exception(
                    RuntimeError(f"what the handler raised could not be passed on: {described(problem)}")
                )
            del future, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif issubclass(type(error), StopIteration):  # which no future takes
        future.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        future.set_exception(error)
