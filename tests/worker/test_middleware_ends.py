"""How attempts with middleware end: by timeouts, lost leases, requests to stop, and workers that stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedq import (
    AttemptFacts,
    CallNext,
    Depends,
    JobCancelled,
    JobFailed,
    current_job,
)
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, Post
from tests.worker.layers import KINDS, Trail, add_ok, expect_life, handler, take_away

# -- timeouts


@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_raises_a_timeout_error_that_it_may_replace(
    queue: Handle, crew: Crew, trail: Trail, gate: Gate, kind: str
) -> None:
    async def hold() -> None:
        await gate.passed()

    function = {"async": hold, "plain": gate.wait, "awaitable": lambda: hold()}[kind]
    task = queue.task(name="hold", timeout=0.1, max_attempts=1)(function)

    @queue.use
    async def replace(attempt: AttemptFacts, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except TimeoutError as error:
            await asyncio.sleep(0.01)
            async with asyncio.TaskGroup() as group:  # would fail if the handled cancellation were still counted
                group.create_task(asyncio.sleep(0))
            return str(error)

    queue.use(trail.layer("inner"))
    crew.start(queue)

    assert task.enqueue().result(20) == "timed out after 0.1 s"
    assert [type(error) for error in trail.errors] == [TimeoutError]


@pytest.mark.usefixtures("hasty")
def test_a_plain_handler_that_overruns_holds_its_slot_even_after_its_middleware_has_ended(
    queue: Handle, crew: Crew, trail: Trail, gate: Gate, logs: Logs
) -> None:
    add_ok(queue)
    seen: list[bool] = []

    @queue.task(timeout=0.05, max_attempts=1)
    def hold() -> None:
        gate.wait()
        seen.append(current_job().is_cancelled)

    queue.use(trail.layer("layer"))
    post = crew.start(queue, concurrency=1)

    with pytest.raises(JobFailed, match=r"TimeoutError: timed out after 0.05 s"):
        hold.enqueue().result(20)
    assert trail.steps == ["+layer", "!layer TimeoutError"]
    waiting = queue.enqueue({"task": "ok"})
    (slot,) = until(lambda: post.worker.stuck)
    assert (slot.task, slot.why) == ("hold", "timed out")
    assert queue.job(waiting).status() == "pending"

    gate.open()
    assert queue.result(waiting, 20) == "ok"
    assert seen == [True]
    until(lambda: not post.worker.stuck)
    assert [line for line in logs() if "overran its timeout and still holds its thread" in line]


@pytest.mark.parametrize("has_middleware", [True, False])
def test_the_coroutine_of_a_plain_function_that_overran_is_not_run(
    queue: Handle, crew: Crew, trail: Trail, gate: Gate, has_middleware: bool
) -> None:
    ran: list[int] = []

    async def work() -> None:
        ran.append(1)

    @queue.task(timeout=0.05, max_attempts=1)
    def begin() -> Any:
        gate.wait()
        return work()

    add_ok(queue)
    if has_middleware:
        queue.use(trail.layer("layer"))
    crew.start(queue, concurrency=1)

    with pytest.raises(JobFailed, match="timed out"):
        begin.enqueue().result(20)
    gate.open()
    expect_life(queue)
    assert ran == []  # nor does Python warn of a coroutine that was never awaited, which would be an error


@pytest.mark.parametrize("ends", ["at the timeout", "after its middleware"])
def test_the_dependencies_of_a_handler_that_overran_do_not_commit(
    queue: Handle, crew: Crew, trail: Trail, gate: Gate, ends: str
) -> None:
    timed_out = threading.Event()

    async def session() -> AsyncIterator[None]:
        try:
            yield
            trail.steps.append("commit")
        except TimeoutError:
            trail.steps.append("roll back")
            raise

    @queue.use
    async def watch(attempt: AttemptFacts, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except TimeoutError:
            timed_out.set()
            if ends == "at the timeout":
                while not trail.steps:
                    await asyncio.sleep(0.005)
            raise

    @queue.task(timeout=0.05, max_attempts=1)
    def hold(db: None = Depends(session)) -> None:
        assert timed_out.wait(20)
        if ends == "after its middleware":
            gate.wait()

    crew.start(queue)

    with pytest.raises(JobFailed, match="timed out"):
        hold.enqueue().result(20)
    gate.open()
    until(lambda: trail.steps)
    assert trail.steps == ["roll back"]


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_time_counts(queue: Handle, crew: Crew, trail: Trail, gate: Gate, kind: str) -> None:
    queue.use(trail.layer("outer"))

    @queue.use
    async def slow(attempt: AttemptFacts, call_next: CallNext) -> Any:
        result = await call_next()
        await gate.passed()
        return result

    task = queue.task(name="work", timeout=0.05, max_attempts=1)(handler(kind, lambda: 1))
    crew.start(queue)

    with pytest.raises(JobFailed, match=r"timed out after 0.05 s"):
        task.enqueue().result(20)
    assert trail.steps == ["+outer", "!outer TimeoutError"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_time_that_it_uses_shortens_the_timeout_of_the_handler(
    queue: Handle, crew: Crew, gate: Gate, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    skipped_s = 0.0
    for module in ("caller", "wrapped_call"):
        monkeypatch.setattr(f"schedq.worker.{module}.monotonic", lambda: time.monotonic() + skipped_s)

    async def hold() -> None:
        await gate.passed()

    left: list[float] = []

    @queue.use
    async def slow(attempt: AttemptFacts, call_next: CallNext) -> Any:
        nonlocal skipped_s
        skipped_s = 59.9
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await call_next()
        finally:
            left.append(loop.time() - began)

    function = {"async": hold, "plain": gate.wait, "awaitable": lambda: hold()}[kind]
    task = queue.task(name="work", timeout=60, max_attempts=1)(function)
    crew.start(queue)

    with pytest.raises(JobFailed, match="timed out"):
        task.enqueue().result(90)
    assert left[0] < 40


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_timeout_it_has_some_seconds_until_it_is_cancelled(
    queue: Handle, crew: Crew, gate: Gate, kind: str
) -> None:
    async def hold() -> None:
        await gate.passed()

    lasted_s: list[float] = []

    @queue.use
    async def report(attempt: AttemptFacts, call_next: CallNext) -> Any:
        began = time.monotonic()
        try:
            return await call_next()
        except TimeoutError:
            try:
                await gate.passed()
            except asyncio.CancelledError:
                lasted_s.append(time.monotonic() - began)
                raise

    function = {"async": hold, "plain": gate.wait, "awaitable": lambda: hold()}[kind]
    task = queue.task(name="work", timeout=0.05, max_attempts=1)(function)
    crew.start(queue)

    with pytest.raises(JobFailed, match="timed out"):
        task.enqueue().result(20)
    assert len(lasted_s) == 1
    # 0.05 s of the timeout and 0.2 s afterwards; a handler is asked again after 0.05 s.
    assert lasted_s[0] > 0.2, "it was cancelled as soon as a handler is asked again"


# -- lost leases, requests to stop, workers that stop


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_lost_lease_is_a_cancellation(queue: Handle, crew: Crew, trail: Trail, gate: Gate, kind: str) -> None:
    add_ok(queue)
    task = gate.task(queue, in_thread=kind == "plain")

    @queue.use
    async def swallow(attempt: AttemptFacts, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except asyncio.CancelledError:
            return "dropped"

    queue.use(trail.layer("layer"))
    crew.start(queue, concurrency=1)
    job = task.enqueue()
    until(lambda: trail.steps)

    theirs = take_away(queue, job.id)
    until(lambda: trail.steps == ["+layer", "!layer CancelledError"])
    queue.complete(theirs, "theirs")
    gate.open()

    assert job.result(20) == "theirs"
    expect_life(queue)


@pytest.mark.parametrize("kind", KINDS)
def test_it_sees_how_the_handler_of_a_cancelled_job_ends(
    queue: Handle, crew: Crew, trail: Trail, gate: Gate, kind: str
) -> None:
    begun = threading.Event()

    async def hold() -> None:
        begun.set()
        await gate.passed()

    def hold_thread() -> None:
        begun.set()
        until(lambda: current_job().is_cancelled)
        raise InterruptedError

    function = {"async": hold, "plain": hold_thread, "awaitable": lambda: hold()}[kind]
    task = queue.task(name="hold")(function)
    queue.use(trail.layer("layer"))
    crew.start(queue)
    job = task.enqueue()
    assert begun.wait(20)

    job.cancel()

    with pytest.raises(JobCancelled):
        job.result(20)
    assert trail.steps[-1] == f"!layer {'InterruptedError' if kind == 'plain' else 'CancelledError'}"


def test_a_job_that_is_cancelled_while_its_middleware_runs_ends(queue: Handle, crew: Crew, gate: Gate) -> None:
    begun = threading.Event()

    @queue.use
    async def slow(attempt: AttemptFacts, call_next: CallNext) -> Any:
        begun.set()
        await gate.passed()
        return await call_next()

    task = queue.task(lambda: 1, name="work")
    crew.start(queue)
    job = task.enqueue()
    assert begun.wait(20)

    job.cancel()

    with pytest.raises(JobCancelled):
        job.result(20)


def test_a_job_that_is_asked_to_stop_right_before_its_function_begins_ends_at_once(
    queue: Handle, crew: Crew, trail: Trail
) -> None:
    posts: list[Post] = []
    ran: list[int] = []

    @queue.use
    async def stop(attempt: AttemptFacts, call_next: CallNext) -> Any:
        job_id, in_flight = attempt.job.id, posts[0].queue_worker.fetcher.in_flight
        queue.cancel(job_id)
        (found,) = [each for each in in_flight.all() if each.job.id == job_id]
        asyncio.get_running_loop().call_soon(in_flight.request_stop, found)  # before the task that starts the thread
        return await call_next()

    queue.use(trail.layer("layer"))
    task = queue.task(name="work")(lambda: ran.append(1))
    posts.append(crew.start(queue))
    job = task.enqueue()

    with pytest.raises(JobCancelled):
        job.result(20)
    assert trail.steps == ["+layer", "!layer CancelledError"]
    assert ran == []


@pytest.mark.parametrize("kind", ["async", "plain", "in the middleware"])
def test_a_worker_that_stops_releases_the_job(queue: Handle, crew: Crew, trail: Trail, gate: Gate, kind: str) -> None:
    @queue.use
    async def slow(attempt: AttemptFacts, call_next: CallNext) -> Any:
        if kind == "in the middleware":
            trail.steps.append("begun")
            await gate.passed()
        return await call_next()

    queue.use(trail.layer("layer"))
    task = gate.task(queue, in_thread=kind == "plain")
    post = crew.start(queue, grace=0)
    job = task.enqueue()
    until(lambda: trail.steps)

    post.stop()
    post.join()

    assert queue.places() == {"pending": [job.id]}
    assert queue.fields(job.id)["attempts"] == "0"


def test_a_job_that_its_middleware_completes_while_the_worker_stops_is_completed(
    queue: Handle, crew: Crew, trail: Trail, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.worker.worker._UNWIND_S", 60)

    @queue.use
    async def finish(attempt: AttemptFacts, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except asyncio.CancelledError:
            return "half"

    queue.use(trail.layer("layer"))
    task = gate.task(queue)
    post = crew.start(queue, grace=0)
    job = task.enqueue()
    until(lambda: trail.steps)

    post.stop()
    post.join()

    assert job.result(20) == "half"
