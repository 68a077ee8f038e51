"""What is judged on a cluster: how queues are spread over nodes, and where events go."""

from __future__ import annotations

import pytest

from schedq.doctor.cluster import check_events, check_spread
from schedq.doctor.server import ServerInfo


@pytest.mark.parametrize(
    ("counts", "is_uneven"),
    [
        ({"a:1": 0}, False),
        ({"a:1": 9}, False),
        ({"a:1": 3, "b:1": 0, "c:1": 0}, False),  # too few to say
        ({"a:1": 4, "b:1": 0}, False),
        ({"a:1": 4, "b:1": 0, "c:1": 0}, True),
        ({"a:1": 8, "b:1": 4, "c:1": 2, "d:1": 2}, False),
        ({"a:1": 9, "b:1": 3, "c:1": 2, "d:1": 2}, True),
        ({}, False),
    ],
)
def test_a_node_with_more_than_twice_its_share_of_the_queues_is_reported(counts: dict[str, int], is_uneven: bool):
    found = list(check_spread(counts))

    assert [finding.code for finding in found] == ["queues-uneven"] * is_uneven
    for finding in found:
        assert f"node a:1 holds {counts['a:1']} of the {sum(counts.values())} queues" in finding.says


@pytest.mark.parametrize(
    ("info", "is_reported"),
    [
        ({"redis_version": "6.2.20", "redis_mode": "cluster"}, True),
        ({"redis_version": "6.2.20", "redis_mode": "standalone"}, False),
        ({"redis_version": "7.0.15", "redis_mode": "cluster"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.8", "redis_mode": "cluster"}, False),
        ({}, False),
    ],
)
def test_a_cluster_without_shard_channels_is_reported(info: dict[str, str], is_reported: bool):
    assert [finding.code for finding in check_events(ServerInfo(info))] == ["events-on-all-nodes"] * is_reported
