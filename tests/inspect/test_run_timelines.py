"""The history of a workflow's run: what it did, waited for and was sent, in order."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Discard, Fixed, Job, OperationRecord, Queue, StepFailed, Timeline, WorkflowContext
from schedq.doctor.checks import plain
from schedq.testing import QueueTester
from tests.workflows.conftest import tester

__all__ = ["tester"]

HOUR = 3600


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    return Queue("shop", backoff=Fixed(60), max_attempts=2)


def charge() -> str:
    return "receipt"


def refuse() -> None:
    raise Discard("card refused")


def line_of(job: Job[Any]) -> Timeline:
    found = job.timeline()
    assert found is not None
    return found


def seconds(job: Job[Any]) -> list[tuple[int, str]]:
    """What happened, in seconds from the enqueue, without what every job has."""
    line = line_of(job)
    return [
        (round((event.at_ms - line.enqueued_at_ms) / 1000), event.text)
        for event in line.steps
        if event.what not in ("enqueued", "due", "promoted", "attempt", "completed")
    ]


def test_steps_waits_messages_and_jobs_are_shown_in_order(tester: QueueTester, queue: Queue):
    pack = queue.task(name="pack")(charge)

    @queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.step(charge)
        await ctx.sleep(HOUR)
        await ctx.receive("paid")
        await ctx.call(pack)
        try:
            await ctx.step(refuse)
        except StepFailed:
            await ctx.sleep(HOUR)
            await ctx.first(late=ctx.sleep(HOUR), news=ctx.receive("news"))

    job = order.enqueue()
    tester.fast_forward(2 * HOUR)
    assert job.send("paid", 1)
    tester.run_due()
    tester.fast_forward()

    assert job.status() == "completed"
    shown = seconds(job)
    # A step's beginning is measured by the worker, whose clock runs on while virtual time does not.
    steps = [entry for entry in shown if entry[1].startswith("step ")]
    assert steps == [(0, "step charge: ok"), (7200, "step refuse: error")]
    assert [entry for entry in shown if entry not in steps] == [
        (0, "run began"),
        (0, "sleep begins"),
        (3600, "sleep: ok"),
        (3600, "receive paid begins"),
        (7200, "receive paid: ok"),
        (7200, "call pack begins"),
        (7200, "call pack: ok"),
        (7200, "sleep#2 begins"),
        (10800, "sleep#2: ok"),
        (10800, "1.late/sleep begins"),
        (14400, "1.late/sleep: ok"),
        (14400, "first: ok"),
    ]
    (refused,) = (it for it in line_of(job).operations if it.name == "refuse")
    assert (refused.outcome, refused.note) == ("error", "card refused")


def test_what_a_run_waits_for_and_messages_that_nothing_has_taken(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.receive("paid", timeout=10 * HOUR)

    job = order.enqueue()
    tester.run_due()
    tester.fast_forward(HOUR)
    job.send("news", 1)
    line = line_of(job)

    assert seconds(job) == [
        (0, "run began"),
        (0, "receive paid begins"),
        (3600, "message on topic news, which nothing has taken"),
    ]
    assert line.operations == (
        OperationRecord("receive paid", "receive", "waiting", line.operations[0].began_at_ms, 0, HOUR * 1000, "paid"),
    )
    assert line.due_at_ms - line.enqueued_at_ms == pytest.approx(10 * HOUR * 1000, abs=1000)


def test_a_run_that_waits_for_a_message_for_good_has_no_due_instant(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.receive("paid")

    job = order.enqueue()
    tester.run_due()

    assert [event.what for event in line_of(job).steps] == ["enqueued", "run began", "operation"]


def test_the_next_try_of_a_step_is_shown(tester: QueueTester, queue: Queue):
    def call_bank() -> None:
        raise ValueError("no")

    @queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.step(call_bank)

    job = order.enqueue()
    tester.run_due()

    (event,) = (event for event in line_of(job).steps if event.what == "next try")
    assert event.text == "step call_bank: next try"
    assert event.operation is not None
    assert event.operation.note == "ValueError: no"
    assert seconds(job)[-1][0] == 60


def test_a_run_that_started_over(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def order(ctx: WorkflowContext, turn: int = 0) -> None:
        await ctx.sleep(HOUR)
        if not turn:
            await ctx.start_over(1)

    job = order.enqueue()
    tester.fast_forward()

    assert seconds(job) == [(3600, "started over"), (3600, "sleep begins"), (7200, "sleep: ok")]


def test_a_plain_job_has_none_of_it(queue: Queue):
    job = queue.task(name="plain")(charge).enqueue()

    line = line_of(job)

    assert (line.run_began_at_ms, line.operations, line.messages) == (0, (), ())
    assert [event.what for event in line.steps] == ["enqueued"]


def test_a_damaged_record_is_shown_as_far_as_it_can_be_read(tester: QueueTester, queue: Queue):
    @queue.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.step(charge)
        await ctx.receive("paid")

    job = order.enqueue()
    tester.run_due()
    key = queue.settings.keys.job(job.id)
    fields = (
        "step:odd",
        "[1",
        "tries:odd",
        "x",
        "until:odd",
        "y",
        "inbox:odd",
        "z\n\nz",
        "waits",
        "[[1]]",
        "run",
        "v=x",
    )
    queue._client.execute([plain("HSET", key, *fields)])

    assert [event.text for event in line_of(job).steps] == ["enqueued", "step charge: ok"]
