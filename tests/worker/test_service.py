"""Workers and promoters as whole processes run them: until a signal, leaving nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Coroutine
from typing import Any

import pytest

from schedq import current_job
from schedq.worker import Worker
from schedq.worker.process import run_promoters, run_worker
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.worker.conftest import Logs


def run(work: Coroutine[Any, Any, object], meanwhile: Coroutine[Any, Any, None] | None = None) -> None:
    """Run it in this thread, where signals arrive; send SIGTERM when the other function has ended."""

    async def main() -> None:
        task = asyncio.create_task(work)
        if meanwhile is not None:
            await asyncio.wait_for(meanwhile, 60)
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(task, 60)

    asyncio.run(main(), debug=True)
    gc.collect()  # open connections complain when they are collected


def test_connections_that_handlers_used_are_closed_when_the_worker_ends(queue: Handle) -> None:
    @queue.task
    async def first() -> bool:
        await second.aenqueue()
        return await current_job().arenew()

    @queue.task
    async def second() -> bool:
        return current_job().renew()

    jobs = [first.enqueue()]
    run(run_worker(Worker([queue.queue], burst=True)))

    assert jobs[0].result(0) is True
    assert queue.stats()["completed_total"] == 2


@pytest.mark.usefixtures("long_goodbyes")
def test_a_signal_stops_a_worker(queue: Handle) -> None:
    queue.task(name="ok")(lambda: "ok")

    async def meanwhile() -> None:
        job_id = queue.enqueue({"task": "ok"})
        assert await queue.queue.aio.result(job_id, 60) == "ok"

    run(run_worker(Worker([queue.queue])), meanwhile())

    assert queue.redis.zcard(queue.keys.workers) == 0


def test_promoters_continue_while_the_settings_are_of_the_wrong_type(make_queue: MakeQueue, logs: Logs) -> None:
    queues = [make_queue() for _ in range(2)]
    for queue in queues:
        queue.redis.set(queue.keys.settings, "not a hash")
        queue.enqueue({}, delay=0.3)

    async def meanwhile() -> None:
        while not all("pending" in queue.places() for queue in queues):
            await asyncio.sleep(0.01)

    run(run_promoters([queue.queue for queue in queues]), meanwhile())

    for queue in queues:
        assert queue.redis.get(queue.keys.promoter) is None
        assert len([line for line in logs() if f"queue {queue.name}: settings: " in line and "WRONGTYPE" in line]) == 1
        queue.redis.delete(queue.keys.settings)
