"""Workers obey the limits in their code."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.conftest import MakeQueue
from tests.waiting import until
from tests.worker.crew import Crew, beat_every


def test_a_whole_queue_is_limited_from_the_first_claim_of_its_first_worker(make_queue: MakeQueue, crew: Crew) -> None:
    queue = make_queue(concurrency=3)
    queue.gate("api", concurrency=1)
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def work(where: str) -> None:
        for name in (where, "queue"):
            running[name] += 1
            most[name] = max(most[name], running[name])
        await asyncio.sleep(0.005)
        running.subtract([where, "queue"])

    plain = queue.task(name="plain")(work)
    gated = queue.task(name="gated", gate="api")(work)
    for _ in range(5):
        plain.enqueue("plain")
        gated.enqueue("api")
    crew.start(queue, burst=True, concurrency=10).join()

    assert queue.stats()["completed_total"] == 10
    assert most["queue"] <= 3
    assert most["api"] == 1


def test_a_worker_writes_the_limits_in_its_code_also_those_defined_later(
    make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat_every(0.05, monkeypatch)
    queue = make_queue(concurrency=3)
    queue.handler(lambda payload: payload)
    crew.start(queue)
    until(lambda: queue.redis.hexists(queue.keys.gates, ""))
    queue.gate("late", concurrency=2)
    until(lambda: queue.redis.hexists(queue.keys.gates, "late"))
    assert queue.redis.hmget(queue.keys.gates, "", "late") == ['{"concurrency":3}', '{"concurrency":2}']
