"""Flows that run again in part: what is new, what stays, and which race is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schedq import BatchResults, Fixed, JobFailed, Queue, Task, WorkflowContext
from schedq.testing import QueueTester


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    """A queue whose retries follow at once."""
    return Queue("shop", backoff=Fixed(0))


class Parts:
    """A task that fails for some names, and notes with what it was called."""

    def __init__(self, queue: Queue) -> None:
        self.ran: list[Any] = []
        self.bad: set[Any] = set()
        self.version = 1
        parts = self

        @queue.task(max_attempts=1)
        def part(name: Any) -> Any:
            parts.ran.append(name)
            if name in parts.bad:
                raise ValueError(f"no {name}")
            return name

        @queue.task(max_attempts=1)
        def version(times: int = 0) -> Any:
            return [f"v{parts.version}"] * times or f"v{parts.version}"

        @queue.workflow
        async def slow(ctx: WorkflowContext, seconds: int) -> str:
            await ctx.sleep(seconds)
            await ctx.step(parts.ran.append, f"slow {seconds}")
            return f"slow {seconds}"

        self.part: Task[[Any], Any] = part
        self.new_version: Task[..., Any] = version
        self.slow: Task[..., Any] = slow

    def mend(self) -> None:
        """Let all names succeed, and forget the calls until now."""
        self.bad.clear()
        self.ran.clear()


@pytest.fixture
def parts(queue: Queue) -> Parts:
    """The tasks of these flows."""
    return Parts(queue)


def test_a_race_whose_winner_runs_again_is_decided_again(tester: QueueTester, queue: Queue, parts: Parts):
    parts.bad.add("x")
    flow = queue.flow("race")
    winner = flow.options(after=flow.call(parts.part, "x"), when="ended").call(parts.part, "w")
    job = flow.start(flow.first(winner, flow.call(parts.slow, 500)))
    tester.fast_forward()
    assert (job.status(), parts.ran) == ("failed", ["x", "w"])
    parts.mend()
    assert job.requeue()
    tester.fast_forward()

    assert job.result(0) == "w"
    assert parts.ran == ["x", "w"]


@pytest.mark.parametrize("kind", ["call", "map", "error"])
def test_what_follows_is_given_what_is_new(kind: str, tester: QueueTester, queue: Queue, parts: Parts):
    @queue.task
    def joined(rows: BatchResults[str]) -> str:
        return " ".join(rows)

    parts.bad |= {"x", "v1", "part: ValueError: no x"}
    flow = queue.flow("fresh")
    bad = flow.call(parts.part, "x")
    new = flow.options(after=bad, when="ended").call(parts.new_version, 2 if kind == "map" else 0)
    end: dict[str, Callable[[], Any]] = {
        "call": lambda: flow.call(parts.part, new.result),
        "map": lambda: flow.call(joined, flow.map(parts.part, new.result).result),
        "error": lambda: flow.options(after=new, when="ended").call(parts.part, bad.error),
    }
    job = flow.start(end[kind]())
    tester.run_due()
    assert job.status() == "failed"
    parts.mend()
    parts.version = 2
    assert job.requeue()
    tester.run_due()

    assert job.result(0) == {"call": "v2", "map": "v2 v2", "error": None}[kind]


def test_a_race_in_a_race(tester: QueueTester, queue: Queue, parts: Parts):
    flow = queue.flow("nested")
    inner = flow.first(flow.call(parts.slow, 100), flow.call(parts.slow, 200))
    job = flow.start(flow.first(inner, flow.call(parts.slow, 10)))
    tester.fast_forward()

    assert job.result(0) == "slow 10"
    assert parts.ran == ["slow 10"]


@pytest.mark.parametrize("seconds", [5, 50])
def test_a_racer_that_fails_is_none_of_the_flow_whenever_it_does(
    seconds: int, tester: QueueTester, queue: Queue, parts: Parts
):
    @queue.workflow(max_attempts=1)
    async def failing(ctx: WorkflowContext) -> None:
        await ctx.sleep(seconds)
        raise RuntimeError("broken")

    flow = queue.flow("racers")
    bad = flow.call(failing)
    flow.options(after=bad).call(parts.part, "after it")
    job = flow.start(flow.first(bad, flow.call(parts.slow, 20)))
    tester.fast_forward()

    assert job.result(0) == "slow 20"


def test_rounds_without_end_fit_into_the_record(tester: QueueTester, queue: Queue, parts: Parts):
    flow = queue.flow("many")
    bad = flow.call(parts.part, "x")
    for _ in range(20):
        flow.options(after=bad, when="ended").call(parts.part, "clean")
    job = flow.start(bad)
    parts.bad.add("x")
    tester.run_due()
    for _ in range(4):
        assert job.requeue()
        tester.run_due()
    fields = job.record().fields

    assert sum(name.startswith("step:") for name in fields) == 22
    assert " steps=22 " in fields["run"]


def test_a_pause_ends_with_the_flow(tester: QueueTester, queue: Queue, parts: Parts):
    @queue.task(max_attempts=1)
    def pausing() -> None:
        if parts.version == 1:
            assert job.pause()
        raise ValueError("paused")

    flow = queue.flow("paused")
    job = flow.start(flow.options(after=flow.call(pausing), when="ended").call(parts.part, "end"))
    tester.run_due()
    assert job.status() == "delayed"
    assert job.resume()
    tester.run_due()
    assert job.status() == "failed"
    assert job.requeue()
    tester.run_due()
    assert "paused" in job.why().text
    assert job.cancel() == "cancelled"
    assert not job.resume()
    parts.mend()
    parts.version = 2
    assert job.requeue()
    assert job.pause()
    tester.run_due()
    assert parts.ran == []
    assert job.resume()
    tester.run_due()

    assert parts.ran == ["end"]


def test_a_map_over_a_batch_that_was_deleted_fails_alone(tester: QueueTester, queue: Queue, parts: Parts):
    flow = queue.flow("deleted")
    rows = flow.map(parts.part, ["a"])
    flow.options(after=flow.call(parts.slow, 60)).map(parts.part, rows.result)
    flow.options(after=flow.call(parts.slow, 90)).call(parts.part, "other")
    job = flow.start()
    tester.run_due()
    (batch,) = [each for each in queue.list_batches() if each.total == 1 and each.completed == 1]
    queue.batch(batch.id).delete()
    tester.fast_forward()

    assert "other" in parts.ran
    with pytest.raises(JobFailed, match="node part 2: queue shop has no batch"):
        job.result(0)


def test_a_flow_whose_result_was_skipped_says_so(tester: QueueTester, queue: Queue, parts: Parts):
    flow = queue.flow("skipped")
    job = flow.start(flow.options(after=flow.call(parts.part, "x"), when="failure", name="alarm").call(parts.part, "y"))
    tester.run_due()

    with pytest.raises(JobFailed, match="node alarm, whose result is that of the flow, was skipped"):
        job.result(0)
