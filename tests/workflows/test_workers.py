"""Workflows in real workers: threads, stops, leases that are lost, observers, and the state that is left."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from schedq import AttemptEnd, AttemptFacts, Observer, WorkflowContext, current_job
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate


def test_steps_run_on_the_loop_and_in_threads_and_know_their_job(queue: Handle, crew: Crew):
    async def on_the_loop() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), current_job().id]

    def in_a_thread() -> list[Any]:
        return [threading.current_thread().name.startswith("schedq-handler"), current_job().id]

    @queue.queue.workflow
    async def order(ctx: WorkflowContext) -> list[Any]:
        return [current_job().id, await ctx.step(on_the_loop), await ctx.step(in_a_thread)]

    job = order.enqueue()
    crew.start(queue)

    assert job.result(60) == [job.id, [False, job.id], [True, job.id]]


def test_a_suspended_run_holds_no_slot_and_a_message_wakes_it(queue: Handle, crew: Crew):
    @queue.queue.workflow
    async def waiting(ctx: WorkflowContext, number: int) -> int:
        return number + int(await ctx.receive("go"))

    jobs = [waiting.enqueue(number) for number in range(10)]
    crew.start(queue, concurrency=1)
    until(lambda: all(job.status() == "delayed" for job in jobs))
    for job in jobs:
        assert job.send("go", 100)

    assert [job.result(60) for job in jobs] == [100 + number for number in range(10)]


def test_sleeps_end_in_time(queue: Handle, crew: Crew):
    @queue.queue.workflow
    async def sleeping(ctx: WorkflowContext) -> list[float]:
        instants = [await ctx.options(name="begin").step(time.monotonic)]
        for seconds in (0.2, 1.2):
            await ctx.sleep(seconds)
            instants.append(await ctx.options(name=f"after {seconds}").step(time.monotonic))
        return instants

    job = sleeping.enqueue()
    crew.start(queue)
    began, first, second = job.result(60)

    assert first - began >= 0.2
    assert second - first >= 1.2


def test_observers_see_each_attempt_and_its_outcome(queue: Handle, crew: Crew, logs: Logs):
    ends: list[str] = []

    class Watcher(Observer):
        def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
            ends.append(end.outcome)

    queue.queue.observe(Watcher())

    @queue.queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.receive("go")

    job = order.enqueue()
    crew.start(queue)
    until(lambda: job.status() == "delayed")
    job.send("go")
    job.result(60)

    until(lambda: ends == ["suspended", "completed"])
    assert any("order suspended" in line for line in logs())
    assert not any(line.startswith(("WARNING", "ERROR")) for line in logs())


def test_a_worker_that_stops_releases_a_run_and_another_goes_on(queue: Handle, crew: Crew, gate: Gate):
    calls: list[str] = []

    async def hold() -> None:
        calls.append("hold")
        if len(calls) == 2:
            await gate.passed()

    @queue.queue.workflow
    async def order(ctx: WorkflowContext) -> str:
        await ctx.step(calls.append, "first")
        await ctx.step(hold)
        return "done"

    job = order.enqueue()
    first = crew.start(queue, grace=0.1)
    gate.until_held()
    first.stop()
    first.join()
    assert job.status() == "pending"
    crew.start(queue)

    assert job.result(60) == "done"
    assert calls == ["first", "hold", "hold"]


def test_a_plain_step_that_ends_while_the_worker_stops_is_recorded(queue: Handle, crew: Crew):
    calls: list[str] = []
    began = threading.Event()

    def slow() -> str:
        calls.append("slow")
        began.set()
        time.sleep(0.6)
        return "result"

    @queue.queue.workflow
    async def order(ctx: WorkflowContext) -> str:
        return await ctx.step(slow)

    job = order.enqueue()
    first = crew.start(queue, grace=0.1)
    assert began.wait(60)
    first.stop()
    first.join()
    crew.start(queue)

    assert job.result(60) == "result"
    assert calls == ["slow"]


def test_cancelling_a_run_at_work_stops_it(queue: Handle, crew: Crew, gate: Gate):
    @queue.queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.step(gate.passed)

    job = order.enqueue()
    crew.start(queue)
    gate.until_held()

    assert job.cancel() == "asked"
    until(lambda: job.status() == "cancelled")


def test_code_that_lost_its_lease_records_nothing(queue: Handle, crew: Crew, gate: Gate, logs: Logs):
    seen: list[str] = []

    async def hold() -> str:
        await gate.passed()
        return "first"

    @queue.queue.workflow
    async def order(ctx: WorkflowContext) -> str:
        found = await ctx.step(hold)
        seen.append(found)
        return found

    job = order.enqueue()
    crew.start(queue)
    gate.until_held()
    queue.redis.hset(queue.keys.job(job.id), "claim_token", "another.1")
    gate.open()

    until(lambda: any("lost its lease" in line for line in logs()))
    assert seen == []
    fields = queue.fields(job.id)
    assert "step:hold" not in fields


def test_a_message_is_taken_while_another_branch_is_at_work(queue: Handle, crew: Crew, gate: Gate):
    got: list[Any] = []

    async def listen(ctx: WorkflowContext) -> None:
        got.append(await ctx.receive("news"))

    @queue.queue.workflow
    async def order(ctx: WorkflowContext) -> str:
        await ctx.gather(listen(ctx), ctx.step(gate.passed))
        return "done"

    job = order.enqueue()
    crew.start(queue)
    gate.until_held()
    job.send("news", 1)
    until(lambda: got)
    assert job.status() == "processing"
    gate.open()

    assert job.result(60) == "done"


def test_a_timeout_ends_an_attempt_and_not_the_record(queue: Handle, crew: Crew):
    calls: list[str] = []

    async def slow() -> None:
        calls.append("slow")
        await asyncio.sleep(60 if len(calls) == 2 else 0)

    @queue.queue.workflow(timeout=0.5)
    async def order(ctx: WorkflowContext) -> str:
        await ctx.step(calls.append, "first")
        await ctx.step(slow)
        return "done"

    job = order.enqueue()
    crew.start(queue)

    assert job.result(60) == "done"
    assert calls == ["first", "slow", "slow"]


def test_many_runs_at_once(queue: Handle, crew: Crew):
    def double(number: int) -> int:
        return 2 * number

    @queue.queue.workflow
    async def order(ctx: WorkflowContext, number: int) -> int:
        both = await ctx.gather(ctx.step(double, number), ctx.receive("add", timeout=60))
        await ctx.sleep(0)
        return sum(both)

    jobs = [order.enqueue(number) for number in range(50)]
    crew.start(queue, concurrency=10)
    crew.start(queue, concurrency=10)
    for job in jobs:
        job.send("add", 1000)

    assert [job.result(60) for job in jobs] == [1000 + 2 * number for number in range(50)]
