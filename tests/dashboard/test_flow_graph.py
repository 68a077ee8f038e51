"""The graph of a flow on the page of its job."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from schedq import Queue
from schedq.dashboard.graphs import MOST_DRAWN, drawing
from schedq.inspect.flows import NodeView
from schedq.testing import run_due
from tests.dashboard.conftest import Visitor


@pytest.fixture
def flow_id(queue: Queue) -> str:
    """A flow in which one node has failed, one was skipped, and one ran afterwards."""

    @queue.task(max_attempts=1)
    def load(path: str) -> str:
        if "bad" in path:
            raise ValueError("no <header>")
        return path

    flow = queue.flow("etl")
    good, bad = flow.call(load, "good"), flow.options(name="read <b>bad<b> names of many files").call(load, "bad")
    end = flow.options(name="end", after=good).call(load, bad.result)
    flow.options(name="page", after=end, when="failure").call(load, "page")
    flow.options(name="late", after=end).map(load, ["a"])
    job = flow.start(end, job_id="etl-1")
    run_due(queue)
    return job.id


def node(number: int, *after: int, **facts: Any) -> NodeView:
    """A node of a flow."""
    given = {"name": f"n{number}", "kind": "call", "status": "completed", "when": "success", "task": "load"} | facts
    return NodeView(number=number, after=after, **given)


def test_the_page_draws_nodes_and_what_they_wait_for(visitor: Visitor, flow_id: str) -> None:
    page = visitor.page(f"/queues/mail/jobs/{flow_id}")

    for label in ("✓ load", "✗ read &lt;b&gt;bad&lt;b&gt; name…", "– end", "✓ page", "– late"):
        assert f">{label}</text>" in page
    assert "<title>page: completed, " in page
    assert "runs after a failure</title>" in page
    assert "ValueError: no &lt;header&gt;</title>" in page
    assert " etl</dd>" in page
    assert page.count('<path class="') == 4
    assert "5 nodes: 2 completed, 1 failed, 2 skipped. The table has each." in page


def test_columns_follow_the_longest_way_from_the_beginning() -> None:
    found = drawing([node(0), node(1), node(2, 0), node(3, 2), node(4, 1, 3)])

    assert found is not None
    columns = sorted({box.x for box in found.boxes})
    assert [columns.index(box.x) for box in found.boxes] == [0, 0, 1, 2, 3]
    assert found.boxes[0].y < found.boxes[1].y
    assert len(found.arrows) == 4
    assert max(box.x for box in found.boxes) + 164 < found.width


def test_a_node_stands_at_the_height_of_those_before_it() -> None:
    found = drawing([node(0), node(1), node(2, 1), node(3, 0)])

    assert found is not None
    assert found.boxes[3].y < found.boxes[2].y


def test_very_large_graphs_are_not_drawn() -> None:
    assert drawing([]) is None
    assert drawing([node(number) for number in range(MOST_DRAWN + 1)]) is None
    assert drawing([node(number) for number in range(MOST_DRAWN)]) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"step:1.77/load": '["call","ok",1,1,2,1,9]'},
        {"step:1.0/load": "[]"},
        {"payload": '{"task":"schedq.flow","args":["etl",{"nodes":[5],"result":null}]}'},
        {"payload": '{"task":"schedq.flow","args":[]}'},
    ],
)
def test_the_page_of_a_damaged_flow_is_shown(
    fields: Any, visitor: Visitor, queue: Queue, flow_id: str, raw: redis.Redis
) -> None:
    raw.hset(queue.settings.keys.job(flow_id), mapping=fields)

    assert f'<bdi class="id">{flow_id}</bdi>' in visitor.page(f"/queues/mail/jobs/{flow_id}")
