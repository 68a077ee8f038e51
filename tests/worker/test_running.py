"""Timeouts, threads, and the number of concurrent jobs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from schedq import Fixed, JobFailed, current_job
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, asked


class Meter:
    """How many are inside now, and the highest number so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


def test_an_async_handler_that_overruns_its_timeout_is_cancelled(queue: Handle, crew: Crew, gate: Gate) -> None:
    ended = []

    @queue.task(timeout=0.05, max_attempts=1)
    async def wait() -> None:
        try:
            await gate.passed()
        finally:
            ended.append(current_job().id)

    crew.start(queue, concurrency=1)
    job = wait.enqueue()

    with pytest.raises(JobFailed, match=r"TimeoutError: timed out after 0.05 s"):
        job.result(60)

    assert ended == [job.id]


def test_a_jobs_own_timeout_comes_before_its_tasks(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task(timeout=60, max_attempts=1)
    async def wait() -> None:
        await gate.passed()

    crew.start(queue)

    with pytest.raises(JobFailed, match=r"timed out after 0.03 s"):
        wait.options(timeout=0.03).enqueue().result(60)


def test_a_handlers_own_timeout_error_is_not_taken_for_the_jobs(queue: Handle, crew: Crew) -> None:
    @queue.task(timeout=60, max_attempts=1)
    async def wait() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5)

    @queue.task(timeout=60, max_attempts=1)
    def say() -> None:
        raise TimeoutError("of the mail server")

    crew.start(queue)

    with pytest.raises(JobFailed, match=r"failed: TimeoutError$"):
        wait.enqueue().result(60)
    with pytest.raises(JobFailed, match="of the mail server"):
        say.enqueue().result(60)


@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("kind", ["async", "plain", "awaitable", "nested"])
def test_a_handlers_own_timeout_error_is_kept_unchanged(
    queue: Handle, crew: Crew, kind: str, timeout: float | None
) -> None:
    asked: list[BaseException] = []

    def backoff(attempt: int, error: BaseException) -> float:
        asked.append(error)
        return 0

    async def fetch() -> None:
        if kind == "nested":
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        raise TimeoutError("of the mail server")

    def fetch_plain() -> Any:
        if kind == "awaitable":
            return fetch()
        raise TimeoutError("of the mail server")

    function = fetch if kind in ("async", "nested") else fetch_plain
    task = queue.task(name="fetch", timeout=timeout, max_attempts=2, backoff=backoff)(function)
    crew.start(queue)
    job = task.enqueue()

    with pytest.raises(JobFailed, match=r"failed: TimeoutError$" if kind == "nested" else "TimeoutError: of the mail"):
        job.result(60)

    assert [type(error) for error in asked] == [TimeoutError]
    assert "in fetch" in queue.fields(job.id)["traceback"]


def test_a_plain_handler_that_overruns_fails_at_once_and_holds_its_slot_until_it_ends(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs
) -> None:
    meter, told = Meter(), []

    @queue.task(timeout=0.05, max_attempts=1)
    def stubborn() -> str:
        with meter:
            gate.wait()
            told.append(current_job().is_cancelled)
            return "too late"

    @queue.task
    def quick() -> None:
        with meter:
            pass

    crew.start(queue, concurrency=1)
    job = stubborn.enqueue()
    with pytest.raises(JobFailed, match=r"timed out after 0.05 s"):
        job.result(60)
    gate.until_held()  # its thread may start after the timeout
    other = quick.enqueue()

    assert not other.wait(0.2)
    assert meter.inside == 1
    gate.open()
    assert other.wait(60)
    assert meter.most == 1
    assert told == [True]
    assert job.status() == "failed"
    assert [line for line in logs() if "overran its timeout and still holds its thread" in line]


def test_a_plain_handler_that_overruns_may_run_again_only_in_another_slot(
    queue: Handle, crew: Crew, gate: Gate
) -> None:
    meter, attempts = Meter(), []

    @queue.task(timeout=60, max_attempts=2, backoff=Fixed(600))
    def first_stubborn() -> str:
        attempts.append(current_job().attempts)
        with meter:
            if current_job().attempts == 1:
                gate.wait()
            return "second"

    crew.start(queue, concurrency=2)
    job = first_stubborn.options(timeout=0.05).enqueue()
    until(lambda: job.status() == "delayed")
    gate.until_held()
    queue.redis.hdel(queue.keys.job(job.id), "timeout_ms")  # the second attempt must end in time
    job.run_now()

    assert job.result(60) == "second"
    assert attempts == [1, 2]
    assert meter.most == 2


def test_a_result_that_comes_before_the_timeout_counts(queue: Handle, crew: Crew) -> None:
    plain = queue.task(name="plain", timeout=30)(lambda: "in time")
    crew.start(queue)

    assert plain.enqueue().result(60) == "in time"


@pytest.mark.parametrize("kinds", [["async"], ["plain"], ["async", "plain"]])
def test_as_many_jobs_run_as_the_worker_has_slots_and_no_more(queue: Handle, crew: Crew, kinds: list[str]) -> None:
    meter = Meter()

    def plain() -> None:
        with meter:
            until(lambda: meter.most >= 7)

    async def along() -> None:
        with meter:
            while meter.most < 7:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)

    functions = {"async": along, "plain": plain}
    tasks = [queue.task(name=kind)(functions[kind]) for kind in kinds]
    jobs = [task.enqueue() for _ in range(60 // len(tasks)) for task in tasks]
    crew.start(queue, concurrency=7)

    assert all(job.wait(60) for job in jobs)
    assert meter.most == 7


def test_plain_handlers_use_no_more_threads_than_slots(queue: Handle, crew: Crew) -> None:
    names = set()

    @queue.task
    def name() -> None:
        names.add(threading.current_thread().name)

    name.enqueue_many([((), {})] * 60)
    post = crew.start(queue, concurrency=3)
    until(lambda: len(queue.places().get("completed", ())) == 60)
    post.stop()
    post.join()

    assert len(names) <= 3
    until(lambda: not [thread for thread in threading.enumerate() if thread.name in names])


def test_many_jobs_need_fewer_requests_than_jobs(queue: Handle, crew: Crew) -> None:
    @queue.task
    async def nothing() -> None: ...

    nothing.enqueue_many([((), {})] * 1000)
    with queue.server.requests() as requests:
        crew.start(queue, concurrency=50, debug=False)
        until(lambda: int(queue.redis.hget(queue.keys.stats, "completed_total") or 0) == 1000)

    found = [request for request in asked(requests, queue) if request.name != "HGET"]  # the test's own
    assert 20 <= len(found) < 250
    assert len([request for request in found if request.name == "BZPOPMIN"]) <= 2  # while busy, it waits for no marker


def test_settlements_too_large_for_one_request_are_all_sent(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task
    async def large(number: int) -> str:
        await gate.passed()
        return str(number) * 150_000

    jobs = [large.enqueue(number) for number in range(10)]
    crew.start(queue, concurrency=10)
    gate.until_held(10)
    gate.open()

    for number, job in enumerate(jobs):
        assert job.result(60) == str(number) * 150_000


def test_settlements_that_redis_accepts_in_portions_are_all_sent(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task
    async def wait() -> None:
        await gate.passed()

    queue.enqueue_many([{"task": "wait"}] * 150)
    crew.start(queue, concurrency=50, promotes=False)
    gate.until_held(50)
    queue.redis.rpush(queue.keys.processing, *(f"other-{number}" for number in range(20_000)))  # 9 at a time then
    gate.open()

    until(lambda: int(queue.redis.hget(queue.keys.stats, "completed_total") or 0) == 150)
    assert queue.redis.llen(queue.keys.processing) == 20_000
    queue.redis.delete(queue.keys.processing)


def test_a_lone_job_is_settled_at_once(queue: Handle, crew: Crew) -> None:
    ended = []

    @queue.task
    def note() -> None:
        ended.append(time.time() * 1000)

    crew.start(queue, promotes=False)
    job = note.enqueue()
    job.result(60)

    # Else the next round trip would be due 10 s after the worker began to wait for a wake marker.
    assert int(queue.fields(job.id)["completed_at_ms"]) - ended[0] < 8000
