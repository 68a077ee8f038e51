"""`schedq job ID --tree`: what a run consists of."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Discard, Fixed, Queue, WorkflowContext
from schedq.cli.run_tree import show
from schedq.inspect.run_tree import Node, tree
from schedq.testing import QueueTester


@pytest.fixture
def trip(tester: QueueTester) -> Any:  # it makes the queues that are on its server
    queue = Queue("trips", backoff=Fixed(0))

    @queue.task
    def release(number: int) -> None:
        """Undo a step."""

    @queue.task
    def load(number: int) -> int:
        if number == 3:
            raise Discard("no file")
        return number

    def reserve(number: int) -> int:
        return number

    def pay() -> None:
        raise ConnectionError("the bank is away")

    @queue.workflow(name="night")
    async def night(ctx: WorkflowContext, number: int) -> None:
        await ctx.step(reserve, number)
        await ctx.receive("key")

    async def book(ctx: WorkflowContext, name: str) -> None:
        await ctx.options(name=name, undo=release.with_args(1)).step(reserve, 1)
        if name == "car":
            await ctx.options(max_attempts=2, backoff=Fixed(600)).step(pay)
        await ctx.call(night, 2)

    @queue.workflow(name="trip")
    async def trip(ctx: WorkflowContext) -> None:
        await ctx.map(load, [1, 2, 3], tolerate=1)
        await ctx.gather(book(ctx, "car"), book(ctx, "hotel"))

    job = trip.options(job_id="trip-7").enqueue()
    tester.run_due()
    return queue, job


def lines(node: Node, depth: int = 0) -> list[str]:
    below = [line for each in node.below for line in lines(each, depth + 1)]
    return [f"{'  ' * depth}{node.kind} {node.name} {node.state}".rstrip(), *below]


def test_branches_operations_and_jobs_are_below_each_other(trip: Any):
    queue, job = trip
    node = queue._drive(tree(queue.settings, job.id))

    found = lines(node)
    assert found == [
        "job trip-7 delayed",
        "  map map load ok",
        "  branch 1",
        "    step car ok",
        "    step pay waits",
        "  branch 2",
        "    step hotel ok",
        "    call call night waits",
        f"      job {found[8].split()[1]} delayed",
        "        step reserve ok",
        "        receive receive key waits",
    ]
    assert node.below[0].note.startswith("2 of 3 completed, 1 failed; batch run-")
    assert node.below[1].below[0].note == "can be undone"
    assert node.below[1].below[1].note.startswith("until ")


def test_what_was_undone_is_said_at_its_step(trip: Any, tester: QueueTester):
    queue, job = trip
    job.cancel()
    tester.fast_forward(60)

    node = queue._drive(tree(queue.settings, job.id))

    assert (node.state, [each.note for each in node.below[1].below]) == (
        "cancelled",
        ["undone", "try 1 failed with ConnectionError: the bank is away"],
    )


def test_the_command_prints_it_for_people_and_programs(trip: Any, capsys: pytest.CaptureFixture[str]):
    queue, job = trip
    assert show(queue, job.id, as_json=False)
    said = capsys.readouterr().out

    assert "└── branch 2" in said
    assert "step" not in said.splitlines()[0]
    assert show(queue, job.id, as_json=True)
    assert '"kind":"branch"' in capsys.readouterr().out
    assert not show(queue, "nothing", as_json=False)
