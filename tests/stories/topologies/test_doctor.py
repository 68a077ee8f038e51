"""The doctor where Redis is more than one server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schedq import Queue
from schedq.doctor.examination import examine
from tests.doctor.conftest import Found
from tests.stories.topologies.cluster import Cluster
from tests.stories.topologies.sentinel import Watched
from tests.waiting import until

pytestmark = pytest.mark.topologies

OpenQueue = Callable[..., Queue]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips the wait for a takeover, because there is none in these tests."""
    monkeypatch.setattr("schedq.doctor.examination._HANDOVER_S", 0)


def test_on_a_cluster_each_queue_and_each_node_that_holds_one_is_examined(open_queue: OpenQueue):
    with Cluster(2) as cluster:
        names = [cluster.name_at(node) for node in cluster.nodes]
        for name, node in zip(names, cluster.nodes, strict=True):
            open_queue(name, cluster.url).enqueue(1)
            with node.client() as client:
                client.hset(f"queue:{{{name}}}:job:lost-{name}", mapping={"payload": "1", "status": "pending"})
        with Queue.for_operator("look", redis=cluster.url) as look:
            until(lambda: look.list_queues() == sorted(names), within=60)

        found = Found(examine(cluster.url))

    orphans = {finding.queue: finding for finding in found.report.findings if finding.code == "orphan"}
    assert {name: finding.examples for name, finding in orphans.items()} == {name: (f"lost-{name}",) for name in names}
    assert f"LPUSH queue:{{{names[0]}}}:pending ID" in orphans[names[0]].remedy
    assert sorted(found.report.queues) == sorted(names)
    assert [finding.code for finding in found.report.findings].count("no-persistence") == 2
    assert not found.codes & {"conformance", "redis-unavailable", "redis-refuses", "not-permitted"}


def test_on_a_cluster_the_doctor_says_which_node_has_too_many_queues(open_queue: OpenQueue):
    with Cluster(3) as cluster:
        node = cluster.nodes[1]
        names = [cluster.name_at(node) for _ in range(4)]
        for name in names:
            open_queue(name, cluster.url).enqueue(1)
        with Queue.for_operator("look", redis=cluster.url) as look:
            until(lambda: look.list_queues() == sorted(names), within=60)

        found = Found(examine(cluster.url))

    (uneven,) = (finding for finding in found.report.findings if finding.code == "queues-uneven")
    assert uneven.says == f"node 127.0.0.1:{node.port} holds 4 of the 4 queues, and the cluster has 3 nodes"


def test_behind_sentinels_the_primary_is_examined(open_queue: OpenQueue):
    with Watched() as watched:
        open_queue("mail", watched.url).enqueue(1)

        found = Found(examine(watched.url))

    assert found.report.queues == ["mail"]
    assert "no-worker" in found.codes
    assert not found.codes & {"conformance", "redis-unavailable", "redis-refuses", "replica"}
