"""Pages share a bounded number of open queues."""

from __future__ import annotations

import asyncio

import pytest

from schedq.dashboard import queue_pool
from schedq.dashboard.queue_pool import QueuePool
from tests.servers import Server


def test_pages_that_end_at_the_same_time_close_idle_queues_once(server: Server, monkeypatch: pytest.MonkeyPatch):
    async def depth(pool: QueuePool, number: int) -> int:
        async with pool.open(f"pooled-{number}") as queue:
            return (await queue.stats())["pending_depth"]

    async def scene() -> list[int]:
        pool = QueuePool(server.unix_url)
        first = await asyncio.gather(*(depth(pool, number) for number in range(20)))
        monkeypatch.setattr(queue_pool, "_IDLE_S", 0)  # as after a minute
        second = await asyncio.gather(*(depth(pool, number) for number in range(20, 40)))
        assert len(pool._open) <= 1
        await pool.aclose()
        return [*first, *second]

    assert asyncio.run(scene()) == [0] * 40
