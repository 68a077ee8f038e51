"""The benchmarks of clusters and of many queues count what every node and an idle worker do."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from scripts.tools.bench import queues
from scripts.tools.bench.nodes import LAYOUTS, Drain, Layout, Place, lines
from tests.stories.topologies.cluster import info


@pytest.mark.topologies
def test_a_drain_counts_messages_between_nodes_only_if_events_leave_their_node():
    with ExitStack() as stack:
        place = Place(Layout("two nodes", 2, 2), stack)
        if info(place.nodes[0], "server")["redis_version"] < "7":
            pytest.skip("shard channels came with Redis 7.0")
        found = place.drain(2000)

        assert found.messages == 0
        assert 0 < found.busiest_us < found.all_us
        everywhere = Place(Layout("two nodes, PUBLISH", 2, 2, shards=False), stack)
        assert everywhere.drain(2000).messages >= 1


def test_the_table_has_every_layout_and_the_two_ratios():
    rows = {layout.name: Drain(40.0 + number, 10.0 + number, number)._asdict() for number, layout in enumerate(LAYOUTS)}

    found = list(lines({"rows": rows, "load": 0.1, "jobs": 1000, "rounds": 5}))

    assert len(found) == 1 + len(LAYOUTS) + 2
    assert "four nodes cost 1.05 × a plain server" in found[-2]
    assert "carry 0.9 × one" in found[-2]


def test_an_idle_worker_of_many_queues_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queues, "_SETTLED_S", 1.0)
    monkeypatch.setattr(queues, "_WATCHED_S", 2.0)

    found = queues.measure(12, 2)

    assert (found["queues"], found["with workflows and limits"]) == (12, 2)
    assert found["connections"] <= 6
    assert 0 < found["threads"] <= 4
    assert found["requests/s"] > 0
    assert found["start cpu s"] > 0
    assert "connections" in next(queues.lines([found]))
