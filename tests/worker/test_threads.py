"""The threads of plain functions: quick ones run in turn in one thread, others at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from schedq.worker import threads
from schedq.worker.threads import ThreadPool

SIZE = 8


class Clock:
    """The pool's clock, which only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("schedq.worker.threads.monotonic", clock)
    return clock


class Pool:
    """A pool on the running loop.

    Attributes:
        wakes: how often a thread has woken the loop.
    """

    def __init__(self) -> None:
        self._threads = ThreadPool(SIZE)
        self._loop = asyncio.get_running_loop()
        self.wakes = 0
        self._wake = self._loop.call_soon_threadsafe
        self._loop.call_soon_threadsafe = self._count  # type: ignore[method-assign, assignment]

    def _count(self, *words: Any) -> object:
        self.wakes += 1
        return self._wake(*words)

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a function in a thread."""
        return self._threads.run(self._loop, function)

    async def each(self, count: int, function: Callable[[], Any]) -> None:
        """Run a function so many times, one after the other."""
        for _ in range(count):
            await self.run(function)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()


def on_a_loop(story: Callable[[Pool], Any]) -> None:
    """Run a coroutine that uses a pool."""

    async def run() -> None:
        pool = Pool()
        try:
            async with asyncio.timeout(60):
                await story(pool)
        finally:
            pool.close()

    asyncio.run(run())


def nothing() -> None: ...


async def meet(pool: Pool) -> bool:
    """Run two functions that wait for each other; whether they did."""
    barrier = threading.Barrier(2)
    places = await asyncio.gather(*(pool.run(partial(barrier.wait, 60)) for _ in range(2)))
    return set(places) == {0, 1}


@pytest.mark.usefixtures("clock")
def test_quick_functions_share_one_thread_and_one_wake_up_of_the_loop():
    async def story(pool: Pool) -> None:
        await pool.each(2 * threads._QUICK_ENOUGH, nothing)
        added, before = threading.Event(), pool.wakes
        first = pool.run(lambda: added.wait(60))
        rest = [pool.run(lambda: (threading.get_ident(), pool.wakes)) for _ in range(SIZE - 1)]
        added.set()

        assert await first
        (found,) = set(await asyncio.gather(*rest))
        assert (found[1], pool.wakes) == (before, before + 1)

    on_a_loop(story)


def test_functions_behind_one_that_takes_long_move_to_other_threads(clock: Clock):
    async def story(pool: Pool) -> None:
        await pool.each(2 * threads._QUICK_ENOUGH, nothing)
        began, goes_on = threading.Event(), threading.Event()

        def take_long() -> bool:
            began.set()
            return goes_on.wait(60)

        before = pool.run(nothing)
        slow = pool.run(take_long)
        behind = [pool.run(nothing) for _ in range(3)]
        await asyncio.to_thread(began.wait, 60)
        clock.advance()

        await asyncio.gather(before, *behind)
        assert not slow.done()
        await meet(pool)  # at once: time no longer passes
        await pool.each(threads._HELD_UP_COUNTS + 2 * threads._QUICK_ENOUGH, nothing)  # by another thread, in turn
        assert not slow.done()
        goes_on.set()
        assert await slow

    on_a_loop(story)


def test_results_do_not_wait_for_a_later_function_that_takes_long(clock: Clock):
    async def story(pool: Pool) -> None:
        await meet(pool)  # has started two threads, so that the loop adds both functions before one of them runs
        await pool.each(2 * threads._QUICK_ENOUGH, nothing)
        began, goes_on = threading.Event(), threading.Event()
        quick, slow = pool.run(began.set), pool.run(lambda: goes_on.wait(60))
        await asyncio.to_thread(began.wait, 60)
        clock.advance()

        await quick
        assert not slow.done()
        goes_on.set()
        assert await slow

    on_a_loop(story)


@pytest.mark.usefixtures("clock")
def test_the_first_functions_run_at_the_same_time():
    async def story(pool: Pool) -> None:
        assert await meet(pool)

    on_a_loop(story)


def test_functions_that_take_a_while_run_at_the_same_time(clock: Clock):
    async def story(pool: Pool) -> None:
        await pool.each(2 * threads._QUICK_ENOUGH, nothing)
        await pool.each(2 * threads._QUICK_ENOUGH, partial(clock.advance, 0.0001))
        assert await meet(pool)
        for _ in range(10):  # one slow function among four makes all of them count as slow
            await pool.each(3, nothing)
            await pool.run(clock.advance)
        assert await meet(pool)

    on_a_loop(story)
