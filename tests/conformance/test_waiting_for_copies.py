"""WAIT: what durability stands on. Those of WAITAOF are in tests/durability, as Redis below 7.2 does not know it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import MakeWire
from tests.durability.conftest import Pair, lasting_pair
from tests.servers import Server
from tests.topologies.cluster import ask, info, is_in_step

__all__ = ["lasting_pair"]


@pytest.fixture
def primary(lasting_pair: Pair) -> Iterator[Server]:
    """A primary whose only replica stands still, with all that was written before the test."""
    if not is_in_step(lasting_pair.replica):
        lasting_pair.join()
    with lasting_pair.primary.client() as client:
        client.set("before", 1)
        assert client.wait(1, 60_000) == 1
    lasting_pair.replica.freeze()
    yield lasting_pair.primary
    lasting_pair.replica.thaw()


def test_a_replica_that_stands_still_does_not_confirm_a_write(make_wire: MakeWire, primary: Server, key: str):
    wire = make_wire(primary)
    wire.ask("SET", key, 1)

    assert wire.ask("WAIT", 1, 100) == 0


def test_a_script_is_a_write_like_any_other(make_wire: MakeWire, primary: Server, key: str):
    wire = make_wire(primary)
    wire.ask("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, key)

    assert wire.ask("WAIT", 1, 100) == 0


def test_writing_what_is_there_counts_as_a_write(make_wire: MakeWire, primary: Server, key: str):
    """So a job that is sent again is waited for on a connection that has written nothing yet."""
    other, wire = make_wire(primary), make_wire(primary)
    other.ask("HSET", key, "id", "a")

    assert (
        wire.ask("EVAL", "redis.call('ZREM', KEYS[2], '') redis.call('HSET', KEYS[1], 'id', 'a')", 2, key, "no") is None
    )
    assert wire.ask("WAIT", 1, 100) == 0


@pytest.mark.xfail(
    strict=False, reason="nothing that it wrote is missing anywhere; Redis before 7.2 waits all the same"
)
def test_who_wrote_nothing_is_not_made_to_wait(make_wire: MakeWire, primary: Server, key: str):
    other, wire = make_wire(primary), make_wire(primary)
    other.ask("SET", key, 1)

    assert wire.ask("GET", key) == "1"
    assert wire.ask("WAIT", 1, 100) == 1


def test_waiting_for_nobody_is_answered_at_once_without_a_replica(server: Server):
    assert info(server, "replication")["connected_slaves"] == 0
    assert ask(server, "WAIT", 0, 1) == 0
