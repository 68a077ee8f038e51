"""WAIT, on which durability relies. For WAITAOF, which Redis before 7.2 lacks, see tests/stories/durability."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import MakeWire
from tests.servers import Server
from tests.stories.durability.conftest import Pair, lasting_pair
from tests.stories.topologies.cluster import ask, info, is_in_step

__all__ = ["lasting_pair"]


@pytest.fixture
def primary(lasting_pair: Pair) -> Iterator[Server]:
    """A primary whose only replica is stopped and has everything written before the test."""
    if not is_in_step(lasting_pair.replica):
        lasting_pair.join()
    with lasting_pair.primary.client() as client:
        client.set("before", 1)
        assert client.wait(1, 60_000) == 1
    lasting_pair.replica.freeze()
    yield lasting_pair.primary
    lasting_pair.replica.thaw()


def test_a_script_is_a_write_like_any_other(make_wire: MakeWire, primary: Server, key: str):
    wire = make_wire(primary)
    wire.ask("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, key)

    assert wire.ask("WAIT", 1, 100) == 0


def test_writing_the_same_value_counts_as_a_write(make_wire: MakeWire, primary: Server, key: str):
    """So a repeated enqueue waits on a connection that has written nothing yet."""
    other, wire = make_wire(primary), make_wire(primary)
    other.ask("HSET", key, "id", "a")

    assert (
        wire.ask("EVAL", "redis.call('ZREM', KEYS[2], '') redis.call('HSET', KEYS[1], 'id', 'a')", 2, key, "no") is None
    )
    assert wire.ask("WAIT", 1, 100) == 0


def test_waiting_for_zero_replicas_returns_at_once(server: Server):
    assert info(server, "replication")["connected_slaves"] == 0
    assert ask(server, "WAIT", 0, 1) == 0
