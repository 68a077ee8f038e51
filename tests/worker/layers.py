"""Handlers and middleware for the tests."""

from __future__ import annotations

import time
from typing import Any

from schedq import AttemptFacts, CallNext
from schedq.model.records import ClaimedJob
from tests.doors import Handle
from tests.waiting import until

KINDS = ["async", "plain", "awaitable"]


def handler(kind: str, function: Any) -> Any:
    """Return the same function as a plain one, an async one, or a plain one that returns an awaitable."""

    async def asynchronous(*args: Any) -> Any:
        return function(*args)

    def plain(*args: Any) -> Any:
        return function(*args)

    def awaitable(*args: Any) -> Any:
        return asynchronous(*args)

    return {"async": asynchronous, "plain": plain, "awaitable": awaitable}[kind]


class Trail:
    """Makes middleware that records when it is entered and how it is left."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.errors: list[BaseException] = []

    def layer(self, name: str) -> Any:
        async def layer(attempt: AttemptFacts, call_next: CallNext) -> Any:
            self.steps.append(f"+{name}")
            try:
                result = await call_next()
            except BaseException as error:
                self.errors.append(error)
                self.steps.append(f"!{name} {type(error).__name__}")
                raise
            self.steps.append(f"-{name}")
            return result

        return layer


def expect_life(queue: Handle) -> None:
    """Check that the only slot is free and that no lease is left."""
    assert queue.wait(queue.enqueue({"task": "ok"}), 20)
    until(lambda: not queue.redis.exists(queue.keys.leases, queue.keys.processing))


def take_away(queue: Handle, job_id: str) -> ClaimedJob:
    """Give a running job to another worker, which renews its lease; return it as that one holds it."""
    queue.redis.hset(queue.keys.job(job_id), "claim_token", "other.1")
    # Else the lease would end soon, as no worker renews it, and the job would be taken back.
    queue.redis.zadd(queue.keys.leases, {job_id: (time.time() + 600) * 1000})
    return ClaimedJob(job_id, None, 2, "other.1")


def add_ok(queue: Handle) -> None:
    queue.task(lambda: "ok", name="ok")


def only(task: str, middleware: Any) -> Any:
    """Return middleware that runs around one task only."""

    async def layer(attempt: AttemptFacts, call_next: CallNext) -> Any:
        return await (middleware(attempt, call_next) if attempt.task == task else call_next())

    return layer
