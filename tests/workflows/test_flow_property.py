"""Random flows that fail, are paused, cancelled and requeued: in the end each node has what the others returned."""

from __future__ import annotations

import random
from typing import Any

import pytest

from schedq import BatchResults, Fixed, Flow, FlowNode, Job, Queue, WorkflowContext
from schedq.inspect.flows import NodeView, nodes
from schedq.model.runs import STEP, Memo
from schedq.testing import QueueTester

SEEDS = range(25)
OVER = {"completed", "failed", "cancelled"}


class Drawn:
    """A random flow, whose nodes return what they were given."""

    def __init__(self, queue: Queue, seed: int) -> None:
        self.draw, self.bad, self.calls = random.Random(seed), set[str](), 0
        drawn = self

        def act(name: str, given: list[Any]) -> list[Any]:
            drawn.calls += 1
            if name in drawn.bad:
                raise ValueError(f"no {name}")
            return [name, drawn.calls, given]

        @queue.task(max_attempts=1)
        def node(name: str, *given: Any) -> list[Any]:
            return act(name, [*given])

        @queue.workflow(max_attempts=1)
        async def slow(ctx: WorkflowContext, name: str, seconds: int, *given: Any) -> list[Any]:
            await ctx.sleep(seconds)
            return await ctx.step(act, name, [*given])

        @queue.task(max_attempts=1)
        def joined(rows: BatchResults[list[Any]]) -> list[Any]:
            return [row[0] for row in rows]

        self._node, self._slow, self._joined = node, slow, joined
        self.flow = queue.flow(f"drawn-{seed}")
        self.made: list[FlowNode[Any]] = []
        self.inputs: dict[int, list[int]] = {}
        for _ in range(self.draw.randint(2, 8)):
            self._add()
        self.fail()

    def _add(self) -> None:
        draw, number = self.draw, len(self.made)
        when: Any = draw.choice(("success", "success", "success", "failure", "ended")) if number else "success"
        inputs = draw.sample(range(number), min(number, draw.randint(0, 2))) if when == "success" else []
        after = [self.made[each] for each in draw.sample(range(number), min(number, draw.randint(0, 2)))]
        if when == "failure" and not after:
            after = [self.made[-1]]
        name, results = f"n{number}", [self.made[each].result for each in inputs]
        flow: Flow = self.flow.options(name=name, after=after, when=when)
        kind = draw.choice(("call", "call", "slow", "map", "first"))
        if kind == "first" and number >= 2:
            self.made.append(self.flow.options(name=name).first(*draw.sample(self.made, 2)))
            return
        if kind == "slow":
            self.made.append(flow.call(self._slow, name, draw.choice((3, 7, 20)), *results))
        elif kind == "map":
            rows = flow.map(
                self._node, [self._node.with_args(f"{name}.{n}", *results) for n in range(3)], concurrency=2
            )
            self.made.append(self.flow.options(name=name + " rows").call(self._joined, rows.result))
            return
        else:
            self.made.append(flow.call(self._node, name, *results))
        self.inputs[self.made[-1]._number] = [self.made[each]._number for each in inputs]

    def fail(self) -> None:
        """Choose which nodes fail from now on."""
        names = [f"n{n}{part}" for n in range(len(self.made)) for part in ("", ".0", ".1", ".2")]
        self.bad = {name for name in names if self.draw.random() < 0.2}

    def disturb(self, job: Job[Any], tester: QueueTester) -> None:
        """Cancel it, or pause it for a while, while it runs."""
        tester.fast_forward(self.draw.choice((0, 1, 5)))
        if (what := self.draw.random()) < 0.2:
            job.cancel()
        elif what < 0.4:
            job.pause()
            tester.fast_forward(self.draw.choice((1, 30)))
            job.resume()
        tester.fast_forward()


def returned(record: Any, view: NodeView) -> Any:
    """What is recorded of a node."""
    found = [Memo.read(text) for name, text in record.fields.items() if name.startswith(f"{STEP}1.{view.number}/")]
    assert len(found) == 1, f"{view.name} has {len(found)} memos"
    assert found[0] is not None
    return found[0].value


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_a_flow(seed: int, tester: QueueTester):
    queue = Queue("shop", backoff=Fixed(0))
    drawn = Drawn(queue, seed)
    job = drawn.flow.start()
    for _ in range(drawn.draw.randint(1, 4)):
        drawn.disturb(job, tester)
        assert job.status() in OVER
        drawn.fail()
        if not job.requeue():
            break
    drawn.bad.clear()
    tester.fast_forward()
    if job.status() != "completed":
        assert job.requeue()
        tester.fast_forward()

    assert job.status() == "completed"
    record: Any = job.record()
    views = {view.number: view for view in nodes(record)}
    for number, inputs in drawn.inputs.items():
        if views[number].status == "completed":
            given = [winner(views, record, each) for each in inputs]
            assert returned(record, views[number])[2] == given, views[number].name
    assert queue.stats()["delayed_depth"] == 0


def winner(views: dict[int, NodeView], record: Any, number: int) -> Any:
    """What a node returned; of a race, what its winner did."""
    value = returned(record, views[number])
    return winner(views, record, value) if views[number].kind == "first" else value
