"""What a handler can learn about its job, and do with it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schedq import UsageError, current_job
from schedq.observer import Observer
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate


def lease_end_ms(queue: Handle, job_id: str) -> float:
    """When a job's lease ends."""
    return float(queue.redis.zscore(queue.keys.leases, job_id) or 0)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_handler_knows_its_job(queue: Handle, crew: Crew, kind: str) -> None:
    def look() -> list[Any]:
        job = current_job()
        deadline = job.deadline
        assert deadline is not None
        return [job.id, job.attempts, job.claim_token, deadline.isoformat(), job.is_cancelled]

    async def alook() -> list[Any]:
        await asyncio.sleep(0)
        return await asyncio.create_task(asyncio.to_thread(look))

    task = queue.task(name="look", timeout=60)(alook if kind == "async" else look)
    crew.start(queue)
    job = task.enqueue()

    job_id, attempts, token, deadline, is_cancelled = job.result(60)

    assert (job_id, attempts, is_cancelled) == (job.id, 1, False)
    assert token == queue.fields(job.id)["settled_token"]
    assert timedelta(seconds=50) < datetime.fromisoformat(deadline) - datetime.now(UTC) < timedelta(seconds=60)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_handler_sees_the_headers_of_its_job(queue: Handle, crew: Crew, kind: str) -> None:
    headers = {"tenant": "acme"}

    def look(_: str) -> dict[str, str]:
        return dict(current_job().headers)

    async def alook(_: str) -> dict[str, str]:
        return look(_)

    task = queue.task(name="look")(alook if kind == "async" else look)
    crew.start(queue)

    assert task.options(headers=headers).enqueue("mail").result(60) == headers
    assert task.enqueue("mail").result(60) == {}


def test_a_handler_may_pass_its_headers_on(queue: Handle, crew: Crew) -> None:
    headers = {"tenant": "acme"}
    inner = queue.task(name="inner")(lambda: dict(current_job().headers))

    @queue.task
    async def outer() -> str:
        job = await inner.options(headers=current_job().headers).aenqueue()
        return str(job.id)

    crew.start(queue)
    inner_id = outer.options(headers=headers).enqueue().result(60)

    assert queue.result(inner_id, 60) == headers


def test_without_a_timeout_there_is_no_deadline(queue: Handle, crew: Crew) -> None:
    task = queue.task(name="look")(lambda: current_job().deadline)
    crew.start(queue)

    assert task.enqueue().result(60) is None


def test_outside_a_handler_there_is_no_current_job(queue: Handle, crew: Crew) -> None:
    with pytest.raises(UsageError, match="outside a handler"):
        current_job()

    def look() -> None:
        try:
            found.append(current_job().id)
        except UsageError as error:
            found.append(str(error))

    found: list[str] = []

    @queue.task
    def start_thread() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    post = crew.start(queue)
    start_thread.enqueue().result(60)
    post.do(look)

    assert ["outside a handler" in text for text in found] == [True, True]


def test_concurrent_jobs_have_a_current_job_each(queue: Handle, crew: Crew, gate: Gate) -> None:
    arrived = threading.Semaphore(0)

    @queue.task
    async def look() -> str:
        arrived.release()
        await gate.passed()
        return current_job().id

    @queue.task(name="look_plain")
    def look_plain() -> str:
        arrived.release()
        gate.wait()
        return current_job().id

    crew.start(queue, concurrency=6)
    jobs = [task.enqueue() for task in (look, look_plain) for _ in range(3)]
    for _ in jobs:
        assert arrived.acquire(timeout=60)
    gate.open()

    assert [job.result(60) for job in jobs] == [job.id for job in jobs]


tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


@pytest.mark.parametrize("kind", ["async", "plain", "awaitable"])
def test_a_context_variable_of_one_job_does_not_leak_to_the_next(queue: Handle, crew: Crew, kind: str) -> None:
    def serve(name: str) -> list[str]:
        found = [tenant.get(), current_job().id]
        tenant.set(name)
        return [*found, tenant.get()]

    async def aserve(name: str) -> list[str]:
        await asyncio.sleep(0)
        return serve(name)

    def begin(name: str) -> Any:
        found = serve(name)
        return found if kind == "plain" else aserve(name)

    task = queue.task(name="serve")(aserve if kind == "async" else begin)
    crew.start(queue, concurrency=1)
    jobs = [task.enqueue(name) for name in ("ada", "bob", "cyd")]

    assert [job.result(60) for job in jobs] == [
        ["nobody", job.id, name] for job, name in zip(jobs, ("ada", "bob", "cyd"), strict=True)
    ]


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_job_starts_with_the_context_variables_of_the_workers_caller(queue: Handle, crew: Crew, kind: str) -> None:
    def look() -> str:
        return tenant.get()

    async def alook() -> str:
        return tenant.get()

    class Binding(Observer):
        def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:
            tenant.set("of an observer")

    task = queue.task(name="look")(alook if kind == "async" else look)
    token = tenant.set("of the process")
    try:
        crew.start(queue, observers=[Binding()], context=contextvars.copy_context())
    finally:
        tenant.reset(token)

    assert [task.enqueue().result(60) for _ in range(2)] == ["of the process"] * 2


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_renew_restarts_the_lease_and_reports_its_loss(make_queue: Any, crew: Crew, kind: str) -> None:
    queue = make_queue(visibility_ms=60_000)
    client, keys = queue.redis, queue.keys

    def end_lease(job_id: str) -> None:
        client.zadd(keys.leases, {job_id: 5})

    def renew() -> list[Any]:
        job = current_job()
        end_lease(job.id)
        answers: list[Any] = [job.renew(), client.zscore(keys.leases, job.id) > 5]
        client.hset(keys.job(job.id), "claim_token", "another")
        answers.append(job.renew())
        client.hset(keys.job(job.id), "claim_token", job.claim_token)
        return answers

    async def arenew() -> list[Any]:
        job = current_job()
        end_lease(job.id)
        answers: list[Any] = [await job.arenew(), client.zscore(keys.leases, job.id) > 5]
        client.hset(keys.job(job.id), "claim_token", "another")
        answers.append(await job.arenew())
        client.hset(keys.job(job.id), "claim_token", job.claim_token)
        return answers

    task = queue.task(name="renew")(arenew if kind == "async" else renew)
    crew.start(queue, promotes=False)

    assert task.enqueue().result(60) == [True, True, False]


def test_a_worker_renews_the_lease_of_a_job_that_runs_longer(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task
    async def wait() -> int:
        await gate.passed()
        return current_job().attempts

    crew.start(queue)
    job = wait.enqueue()
    first_end = until(lambda: lease_end_ms(queue, job.id))
    until(lambda: lease_end_ms(queue, job.id) > first_end + 1000)
    gate.open()

    assert job.result(60) == 1
    fields = queue.fields(job.id)
    assert int(fields["claimed_at_ms"]) >= int(fields["started_at_ms"]) + 1000
