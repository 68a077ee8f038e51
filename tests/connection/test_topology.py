"""What is known of a cluster: host names in the replies of nodes, slots, and the list of its queues."""

from __future__ import annotations

import pytest

from schedq.connection.endpoint import Endpoint
from schedq.connection.topology import Cluster, SlotMap, read_slots


def test_a_node_without_a_name_is_the_one_that_was_asked():
    slots = [[0, 99, [None, 7001, "id"], ["", 7002, "id"]], [100, 200, ["b", 7003, "id", ["hostname", "c"]]]]

    assert list(read_slots(slots, ("a", 7000))) == [(0, 99, [("a", 7001), ("a", 7002)]), (100, 200, [("b", 7003)])]


def test_a_node_whose_name_is_not_known_yet_is_left_out():
    slots = [[0, 99, ["?", 7001, "id"], ["b", 7002, "id"]], [100, 200, ["b", 7003, "id"], ["?", 7004, "id"]]]

    assert list(read_slots(slots, ("a", 7000))) == [(100, 200, [("b", 7003)])]


def test_a_slot_belongs_to_the_node_whose_range_has_it():
    slots = SlotMap.of([(100, 200, [("b", 1)]), (0, 98, [("a", 1), ("c", 1)])])

    assert [slots.owner(n) for n in (0, 98, 99, 100, 200, 201)] == [("a", 1), ("a", 1), None, ("b", 1), ("b", 1), None]
    assert slots.primaries == {("a", 1), ("b", 1)}
    assert slots.nodes == {("a", 1), ("b", 1), ("c", 1)}
    assert not slots.is_complete
    assert SlotMap.of([(0, 16_383, [("a", 1)])]).is_complete


def test_the_names_of_queues_in_use_are_added_to_the_list_again_together(monkeypatch: pytest.MonkeyPatch):
    class Clock:
        now = 0.0

    sent: list[list[str]] = []

    def send(cluster: Cluster) -> None:
        sent.append(sorted(cluster._unlisted))
        cluster._unlisted.clear()

    monkeypatch.setattr("schedq.connection.topology.monotonic", lambda: Clock.now)
    monkeypatch.setattr(Cluster, "_start_enlisting", send)
    cluster = Cluster(Endpoint("Connection", {}), (("a", 7000),))
    for name in ("mail", "reports", "gone"):
        cluster.enlist(name)
        cluster.enlist(name)
    assert sent == [["mail"], ["reports"], ["gone"]]
    for _ in range(3):
        sent.clear()
        Clock.now += 9
        for name in ("mail", "reports"):
            Clock.now += 0.5
            cluster.enlist(name, again=True)

    assert sent == [["mail", "reports"]]
