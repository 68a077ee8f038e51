"""What a flow refuses, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from schedq import Fixed, Flow, FlowNode, Queue, Task, UsageError
from schedq.testing import QueueTester


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    """A queue whose retries follow after a minute."""
    return Queue("shop", backoff=Fixed(60))


@pytest.fixture
def note(queue: Queue) -> Task[[str], str]:
    """A task of it."""

    @queue.task(name="note")
    def note(name: str) -> str:
        return name

    return note


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda q, f, t: f.start(), "has no nodes"),
        (lambda q, f, t: f.start(f.map(t, ["x"])), "runs many jobs"),
        (lambda q, f, t: f.call(t), "missing a required argument"),
        (lambda q, f, t: f.call(print, 1), "takes a task of the queue"),
        (lambda q, f, t: f.map(t.options(delay=5), ["x"]), "can't have delay"),
        (lambda q, f, t: f.call(t.options(job_id="a"), "x"), "can't have job_id"),
        (lambda q, f, t: f.first(), "first takes nodes"),
        (lambda q, f, t: f.first(f.call(t, "x"), f.map(t, ["x"])), "all of them calls or all of them maps"),
        (lambda q, f, t: f.options(when="never"), "when must be one of"),
        (lambda q, f, t: f.options(name="a/b"), "may not contain '/'"),
        (lambda q, f, t: f.options(when="failure").call(t, "x"), "needs nodes that may fail"),
        (lambda q, f, t: f.options(when="ended").call(t, f.call(t, "x").result), "can't take a result"),
        (lambda q, f, t: f.options(after=["x"]), "is no node of a flow"),
        (lambda q, f, t: f.options(after=q.flow("other").call(t, "x")), "is one of flow 'other'"),
        (lambda q, f, t: f.call(t, q.flow("other").call(t, "x").result), "is one of another flow"),
        (lambda q, f, t: f.call(t, [f.map(t, ["x"]).result]), "as a whole argument"),
        (lambda q, f, t: f.map(t, ["x"], tolerate=-1), "tolerate"),
        (lambda q, f, t: f.call(t, f"{f.call(t, 'x').result}.csv"), "can't be part of a text"),
        (lambda q, f, t: f.call(t, f.call(t, "x").result + ".csv"), "inside of a text"),
        (lambda q, f, t: f.call(t, f.call(t, "x").result[0]), "inside of a text"),
        (lambda q, f, t: f.call(t, {f.call(t, "x").result: 1}), "as a key"),
        (lambda q, f, t: f.call(t, "\ue000result 0\ue000"), "inside of a text"),
        (lambda q, f, t: f.map(t, list(f.call(t, "x").result)), "inside of a text"),
        (lambda q, f, t: f.map(t, f.call(t, "x").error), "are .result"),
        (lambda q, f, t: f.map(t, f.call(t, "x")), "not the node itself"),
        (lambda q, f, t: f.map(t, "abc"), "must be a list"),
        (lambda q, f, t: f.map(t, 5), "must be a list"),
        (lambda q, f, t: f.map(t, (n.result for n in [q.flow("other").call(t, "x")])), "is one of another flow"),
        (lambda q, f, t: f.map(t, [t.with_args(q.flow("other").call(t, "x").result)]), "is one of another flow"),
        (lambda q, f, t: f.start(f.call(t, "x").result), "give the node itself"),
        (lambda q, f, t: [f.call(t, "x"), f.start("my-id")], "is no node of a flow"),
        (lambda q, f, t: f.options(after=None), "is no node of a flow"),
        (lambda q, f, t: q.flow("etl")(print), "is decorated by queue.flow"),
        (lambda q, f, t: q.flow("etl", max_attempts=1), "takes no max_attempts"),
        (lambda q, f, t: [f.call(t, "x") for _ in range(1001)], "1000 nodes"),
        (lambda q, f, t: q.flow("a:b"), "may not contain ':'"),
        (lambda q, f, t: f.start(f.call(t, "x"), delay=-1), "delay"),
        (lambda q, f, t: q.flow(version=2), "a flow can't have version"),
        (lambda q, f, t: q.flow(lambda: None), "must be its flow"),
        (lambda q, f, t: q.task(name="schedq.flow")(print), "the library's own"),
    ],
)
def test_mistakes_are_refused_where_they_are_made(
    wrong: Callable[..., Any], message: str, tester: QueueTester, queue: Queue, note: Task[[str], str]
):
    with pytest.raises(UsageError, match=message):
        wrong(queue, queue.flow("mine"), note)
    assert queue.stats().pending_depth == 0


def test_an_async_function_declares_no_flow(queue: Queue):
    with pytest.raises(UsageError, match="must be a plain function"):

        @queue.flow  # type: ignore[arg-type]
        async def wrong(flow: Flow) -> None: ...


@pytest.mark.parametrize(
    "graph",
    [
        None,
        {},
        {"nodes": []},
        {"nodes": [5], "result": None},
        {"nodes": [{"name": "a", "kind": "call"}], "result": None},
        {"nodes": [{"name": "a", "kind": "first", "after": [3]}], "result": 0},
    ],
)
def test_a_damaged_graph_fails_its_job(graph: Any, tester: QueueTester, queue: Queue, note: Any):
    job = queue.job(queue.enqueue({"task": "schedq.flow", "args": ["x", graph]}, max_attempts=1))
    tester.run_due()

    assert job.status() == "failed"
    assert "damaged" in str(job.record().last_error)


def test_an_error_in_the_function_is_tried_again(tester: QueueTester, queue: Queue, note: Any):
    tries = []

    @queue.flow
    def shaky(flow: Flow) -> FlowNode[str]:
        tries.append(1)
        if len(tries) < 2:
            raise OSError("database is away")
        return flow.call(note, "x")

    job = shaky.enqueue()
    tester.fast_forward()

    assert job.result(0) == "x"


# -- results that can't be used


def test_a_result_that_does_not_fit_fails_its_node_and_not_the_flow_at_once(
    tester: QueueTester, queue: Queue, note: Any
):
    @queue.task
    def large() -> str:
        return "x" * 200_000

    @queue.task
    def both(one: str, two: str) -> None: ...

    flow = queue.flow("large")
    big, word = flow.call(large), flow.call(note, "word")
    flow.call(both, big.result, big.result)
    flow.map(note, word.result)
    flow.options(name="fine").call(note, "fine")
    job = flow.start()
    tester.run_due()

    error = str(job.record().last_error)
    assert "node both: its arguments take 400,01" in error
    assert "node word" not in error
    assert "returned 'word', and the items of a map must be a list" in error
    assert "step:1.4/fine" in job.record().fields


def test_a_result_may_be_any_json(tester: QueueTester, queue: Queue):
    values: list[Any] = [
        None,
        True,
        0,
        -1.5,
        "",
        'a"b\\c\n\ue000',
        [],
        {},
        {"a": [1, {"b": None}]},
        "\ue000result 0\ue000",
        2**60,
    ]

    @queue.task
    def give(number: int) -> Any:
        return values[number]

    @queue.task
    def take(*found: Any) -> Any:
        return list(found)

    flow = queue.flow("json")
    nodes = [flow.call(give, n) for n in range(len(values))]
    job = flow.start(flow.call(take, *(node.result for node in nodes)))
    tester.run_due()

    assert json.dumps(job.result(0)) == json.dumps(values)


def test_there_is_nothing_to_replay_in_a_flow(tester: QueueTester, queue: Queue, note: Any):
    flow = queue.flow("stored")
    flow.call(note, "x")
    job = flow.start()
    tester.run_due()

    with pytest.raises(UsageError, match="no code of it runs again"):
        tester.assert_replays(job)
