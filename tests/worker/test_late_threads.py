"""Plain functions that wait for a thread: their timeouts, and jobs that are cancelled before one begins with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from schedq import Depends, JobCancelled, JobFailed
from schedq.model.times import monotonic
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate, Post

TIMEOUT_S = 0.2


@contextmanager
def busy_thread(post: Post) -> Iterator[None]:
    """Keep the only thread of a worker busy."""
    gate = Gate()
    loop, threads = post.do(asyncio.get_running_loop), post.worker.threads
    post.do(threads.run, loop, gate.wait)
    gate.until_held()
    try:
        yield
    finally:
        gate.open()


async def passing(_: Any, proceed: Callable[[], Awaitable[Any]]) -> Any:
    return await proceed()


async def made_on_the_loop() -> AsyncIterator[str]:
    yield "made"


@pytest.mark.parametrize("within", ["nothing", "middleware", "a dependency in its thread", "a dependency on the loop"])
def test_the_timeout_of_a_function_starts_with_its_thread(queue: Handle, crew: Crew, gate: Gate, within: str) -> None:
    calls: list[str] = []
    if within == "middleware":
        queue.use(passing)
    made = {"a dependency in its thread": lambda: "made", "a dependency on the loop": made_on_the_loop}.get(within)
    default: Any = "none" if made is None else Depends(made)

    @queue.task(timeout=TIMEOUT_S, max_attempts=1)
    def render(value: str = default) -> None:
        calls.append(value)
        gate.wait()

    post = crew.start(queue, concurrency=1)
    with busy_thread(post):
        job = render.enqueue()
        (attempt,) = until(lambda: post.queue_worker.fetcher.in_flight.running)
        until(lambda: attempt.began_at and monotonic() > attempt.began_at + 2 * TIMEOUT_S)
        post.take_turns()
        assert queue.get_job(job.id).status == "processing"

    with pytest.raises(JobFailed, match="timed out"):
        job.result(20)
    assert len(calls) == 1
    gate.open()


def test_a_function_is_skipped_if_its_job_is_cancelled_before_its_thread_begins(queue: Handle, crew: Crew) -> None:
    called = threading.Event()
    task = queue.task(name="render")(called.set)
    post = crew.start(queue, concurrency=1)
    with busy_thread(post):
        job = task.enqueue()
        (attempt,) = until(lambda: post.queue_worker.fetcher.in_flight.running)
        until(lambda: attempt.current)
        queue.cancel(job.id)
        until(lambda: attempt.is_stop_requested)

    with pytest.raises(JobCancelled):
        job.result(20)
    until(lambda: post.free_slots == 1)
    assert not called.is_set()
