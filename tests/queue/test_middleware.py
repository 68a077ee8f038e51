"""Middleware and hooks that an application gives to a queue of either client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedq import AttemptFacts, CallNext, JobFailed, UsageError, Worker
from tests.conftest import MakeQueue
from tests.doors import Handle


class Doubling:
    """Middleware that is an object."""

    async def __call__(self, attempt: AttemptFacts, call_next: CallNext) -> Any:
        return 2 * await call_next()


def test_middleware_is_used_as_a_decorator_or_given_as_an_object(queue: Handle) -> None:
    @queue.use
    async def add_one(attempt: AttemptFacts, call_next: CallNext) -> Any:
        return 1 + await call_next()

    doubling = queue.use(Doubling())
    task = queue.task(lambda: 5, name="five")
    job = task.enqueue()

    asyncio.run(Worker([queue.queue], burst=True).run())

    assert job.result(0) == 11
    assert queue.registry.middleware == [add_one, doubling]
    assert queue.queue.blocking.registry is queue.queue.aio.registry


def test_middleware_goes_with_the_queue_and_hooks_with_the_task(make_queue: MakeQueue) -> None:
    one, other = make_queue(), make_queue()
    seen: list[str] = []

    async def layer(attempt: AttemptFacts, call_next: CallNext) -> Any:
        seen.append(f"middleware of {attempt.queue}")
        return await call_next()

    async def on_failure(attempt: AttemptFacts, error: BaseException) -> None:
        seen.append(f"{error!r} in {attempt.queue}")

    one.use(layer)
    task = one.task(name="fail", max_attempts=1, on_failure=on_failure)(lambda: [][0])
    job = other.register(task).enqueue()

    asyncio.run(Worker([other.queue], burst=True).run())

    with pytest.raises(JobFailed):
        job.result(0)
    assert seen == [f"IndexError('list index out of range') in {other.name}"]


def test_use_comes_too_late_once_a_worker_has_started(queue: Handle) -> None:
    queue.task(lambda: None, name="nothing")
    asyncio.run(Worker([queue.queue], burst=True).run())

    with pytest.raises(UsageError, match=r"a worker of it has started in this process, so use comes too late; call it"):
        queue.use(Doubling())
