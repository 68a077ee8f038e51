"""The event loop of a worker's background, whose timers are exact."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from schedq.background import precise_loop

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine on such a loop."""
    with asyncio.Runner(loop_factory=precise_loop.new_event_loop) as runner:
        return runner.run(work)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere asyncio's own loops are exact")
def test_a_timer_does_not_wait_for_the_next_whole_millisecond():
    async def late_s() -> float:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[float] = loop.create_future()
        due = loop.time() + 0.0022
        loop.call_at(due, lambda: ended.set_result(loop.time()))
        return await ended - due

    async def work() -> list[float]:
        return [await late_s() for _ in range(100)]

    assert 0 <= min(run(work())) < 0.0005, "0.8 ms if the time is rounded up"


@pytest.mark.parametrize("most", [1023, -1])
def test_it_serves_descriptors_while_it_waits_for_a_timer(monkeypatch: pytest.MonkeyPatch, most: int):
    monkeypatch.setattr(precise_loop, "_MOST_FD", most)

    async def work() -> str:
        async with asyncio.timeout(60):
            return await asyncio.to_thread(lambda: "served")

    assert run(work()) == "served"
