"""Threads of a worker: those of plain handlers, and the one that runs the background event loop."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from schedq.background import precise_loop
from schedq.model.outcome import described
from schedq.model.times import monotonic

_Work = tuple[Callable[[], Any], asyncio.Future[Any]]
_QUICK_S: Final = 0.00005
"""A thread starts functions that end within this time one after the other as fast as several threads could."""
_QUICK_ENOUGH: Final = 32
_MOST_COUNTED: Final = 64
_SLOW_COUNTS: Final = 4
_HELD_UP_COUNTS: Final = 300
"""To hold functions up costs a millisecond or two, so it happens at most once in this many of them."""
_HELD_UP_S: Final = 0.001
_MOST_UNTOLD: Final = 16


class ThreadPool:
    """A pool of up to `size` threads, started as they are needed.

    They are daemon threads. The standard library's pool joins its threads when the interpreter exits, so one handler
    that does not end would keep a stopped worker alive.

    While nearly all functions end within microseconds, one thread runs them in turn and delivers their results
    together: to wake a thread, and to pass the interpreter's lock to it, costs more than such a function. If one takes
    longer, those behind it move to other threads within about 2 ms, and the next ones run at the same time again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._work: queue.SimpleQueue[_Work | tuple[()] | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_told = False
        self._in_turn: deque[_Work] = deque()
        self._has_runner = False  # a thread runs the functions in `_in_turn`, or is about to
        self._began_at = 0.0  # when it began with the present one
        self._quick = 0  # rises with each quick function and falls with each other one
        self._timer: asyncio.TimerHandle | None = None

    def run(self, loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `function` in a thread; return a future of `loop`, which must be the running loop."""
        future: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        if self._busy > self._started and self._started < self._size:
            self._started += 1
            threading.Thread(target=self._run, name=f"schedq-handler-{self._started}", daemon=True).start()
        if self._quick < _QUICK_ENOUGH:
            self._work.put((function, future))
            return future
        self._in_turn.append((function, future))
        if not self._has_runner:
            self._has_runner, self._began_at = True, monotonic()
            self._work.put(())
        if self._timer is None:
            self._timer = loop.call_later(_HELD_UP_S, self._look, loop)
        return future

    async def run_to_end(self, loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> Any:
        """Run `function` in a thread with the caller's context. Even a cancelled caller waits for its end."""
        future = self.run(loop, partial(contextvars.copy_context().run, function))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return future.result()

    def resize(self, size: int) -> None:
        """Have up to `size` threads. One that is too many ends when it is idle."""
        self._size = size
        while self._started > size:
            self._started -= 1
            self._work.put(None)

    def close(self) -> None:
        """Stop idle threads now, and busy ones when their function has ended."""
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            if work:
                loop = self._call(*work)
                del work
                self._tell(loop)
            else:
                self._run_in_turn()

    def _run_in_turn(self) -> None:
        loop: asyncio.AbstractEventLoop | None = None
        while True:
            try:
                work = self._in_turn.popleft()
            except IndexError:
                self._has_runner = False
                if not self._in_turn:  # otherwise the loop has just added one
                    if self._done and loop is not None:  # another thread has taken the last function
                        self._tell(loop)
                    return
                self._has_runner = True
                continue
            self._began_at = monotonic()
            loop = self._call(*work)
            del work
            if not self._in_turn or len(self._done) >= _MOST_UNTOLD:
                self._tell(loop)

    def _call(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> asyncio.AbstractEventLoop:
        began_at = monotonic()
        error: BaseException | None = None
        result = None
        try:
            result = function()
        except BaseException as problem:  # noqa: BLE001 - SystemExit of a handler is the handler's failure
            error = problem
        is_quick = monotonic() - began_at < _QUICK_S
        if is_quick:
            self._quick = min(_MOST_COUNTED, self._quick + 1)
        elif self._quick > 0:
            self._quick = max(0, self._quick - _SLOW_COUNTS)
        loop = future.get_loop()
        self._done.append((future, result, error))
        del function, future, result, error
        return loop

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        # Waking the loop costs more than many handlers, so results that arrive before it runs share one wake-up.
        if not self._is_told:
            self._is_told = True
            with suppress(RuntimeError):  # the loop is closed, because the worker has stopped
                loop.call_soon_threadsafe(self._deal)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let other threads run what waits behind a function that takes longer, and deliver the results before it."""
        self._timer = None
        if not (self._has_runner or self._in_turn):
            return
        if monotonic() - self._began_at < _HELD_UP_S:
            self._timer = loop.call_later(_HELD_UP_S, self._look, loop)
            return
        self._quick, self._has_runner = -_HELD_UP_COUNTS, False
        while self._in_turn:
            with suppress(IndexError):  # the thread has just taken the last one
                self._work.put(self._in_turn.popleft())
        self._deal()

    def _deal(self) -> None:
        """Deliver results, on the loop. A function that ends after the first line wakes the loop again."""
        self._is_told = False
        while self._done:
            future, result, error = self._done.popleft()
            self._busy -= 1
            try:
                _settle(future, result, error)
            except BaseException as problem:  # noqa: BLE001 - an exception's __class__ may do anything
                future.set_exception(
                    RuntimeError(f"the handler's exception could not be passed on: {described(problem)}")
                )
            if not future.cancelled():
                future.exception()  # marks it as retrieved: its caller may have been abandoned
            del future, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif issubclass(type(error), StopIteration):  # futures reject it
        future.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        future.set_exception(error)


T = TypeVar("T")
_JOIN_S: Final = 1.0


class LoopThread:
    """One event loop in its own thread, for the background work of a worker: promoters, schedules, heartbeats.

    It must be created on the worker's event loop, which gets the results.

    A handler that blocks the worker's event loop does not delay this work. C code that holds the interpreter's lock
    still stops this thread, like all threads of the process.
    """

    def __init__(self) -> None:
        self._owner = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._closing = asyncio.Event()
        self._work: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="schedq-background", daemon=True)

    def start(self) -> None:
        """Start the thread; return when it accepts work."""
        self._thread.start()
        self._ready.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run a coroutine there. The future belongs to the worker's loop; cancelling it cancels the work."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop))

    async def cancel(self) -> None:
        """Cancel all work and wait until it has ended."""
        await self.run(self._cancel())

    async def aclose(self) -> None:
        """Stop the loop, and the thread unless it is stuck."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._closing.set)
        deadline = monotonic() + _JOIN_S
        while self._thread.is_alive() and monotonic() < deadline:  # noqa: ASYNC110 - the thread ends soon
            await asyncio.sleep(0.002)

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._work.add(task)
        try:
            return await work
        except (KeyboardInterrupt, SystemExit) as error:  # would end the loop before the error reaches its caller
            raise RuntimeError(f"{type(error).__name__} was raised in the worker's background") from error
        finally:
            self._work.discard(task)

    async def _cancel(self) -> None:
        others = self._work - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _run(self) -> None:
        # Precise, because the promoter runs here.
        with asyncio.Runner(debug=self._owner.get_debug(), loop_factory=precise_loop.new_event_loop) as runner:
            self._loop = runner.get_loop()
            self._loop.set_exception_handler(self._complain)
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        self._ready.set()
        await self._closing.wait()

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Pass errors that asyncio reports to the worker's loop, whose exception handler the application may set."""
        with suppress(RuntimeError):  # the worker's loop is closed
            self._owner.call_soon_threadsafe(self._owner.call_exception_handler, context)
