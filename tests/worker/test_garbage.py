"""Ended jobs leave nothing behind that only the garbage collector could free."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

from schedq import Discard, Retry, Snooze, current_job
from schedq.model.current_job import CurrentJob
from schedq.model.records import ClaimedJob, Settlement
from schedq.worker.attempt import Attempt
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew

KINDS = (Attempt, ClaimedJob, CurrentJob, Settlement, asyncio.Task)


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What the collector finds from here on; it does not run on its own meanwhile."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.garbage.clear()
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()


@pytest.mark.parametrize(
    "kind", ["plain", "waits", "limited", "plain_limited", "raises", "retries", "discards", "snoozes"]
)
def test_a_job_that_has_ended_is_freed_at_once(queue: Handle, crew: Crew, garbage: list[object], kind: str) -> None:
    register(queue)
    crew.start(queue)

    queue.enqueue_many([{"task": kind}] * 50)
    until(lambda: set(queue.places()) <= {"completed", "failed"})

    gc.collect()
    left = [type(thing).__name__ for thing in garbage if isinstance(thing, KINDS)]
    assert len(left) < 5, left  # tasks of the worker itself may be among them


def register(queue: Handle) -> None:
    """Register tasks, one for each way in which a job can end."""
    snoozed: set[str] = set()

    @queue.task
    def plain() -> None:
        current_job()

    @queue.task
    async def waits() -> None:
        await asyncio.sleep(0)

    @queue.task(timeout=60)
    async def limited() -> None:
        await asyncio.sleep(0)

    @queue.task(timeout=60)
    def plain_limited() -> None:
        time.sleep(0)

    @queue.task(max_attempts=1)
    async def raises() -> None:
        raise RuntimeError("as it must be")

    @queue.task(max_attempts=2)
    async def retries() -> None:
        raise Retry(0)

    @queue.task
    async def discards() -> None:
        raise Discard

    @queue.task
    async def snoozes() -> None:
        if current_job().id not in snoozed:
            snoozed.add(current_job().id)
            raise Snooze(0)
