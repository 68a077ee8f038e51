"""Host names in the replies of cluster nodes."""

from __future__ import annotations

from schedq.connection.topology import read_slots


def test_a_node_without_a_name_is_the_one_that_was_asked():
    slots = [[0, 99, [None, 7001, "id"], ["", 7002, "id"]], [100, 200, ["b", 7003, "id", ["hostname", "c"]]]]

    assert list(read_slots(slots, ("a", 7000))) == [(0, 99, [("a", 7001), ("a", 7002)]), (100, 200, [("b", 7003)])]


def test_a_node_whose_name_is_not_known_yet_is_left_out():
    slots = [[0, 99, ["?", 7001, "id"], ["b", 7002, "id"]], [100, 200, ["b", 7003, "id"], ["?", 7004, "id"]]]

    assert list(read_slots(slots, ("a", 7000))) == [(100, 200, [("b", 7003)])]
