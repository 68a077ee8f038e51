"""A primary and its replica, and the data on their disks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from tests.servers import Server
from tests.stories.topologies.cluster import ask, info, is_in_step
from tests.waiting import until

PATIENCE_S = 60.0


class Pair:
    """A primary and a replica of it."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary = stack.enter_context(Server(topology="single", repl_diskless_sync_delay=0))
        self.replica = stack.enter_context(Server(topology="single", repl_diskless_sync_delay=0))

    def join(self) -> None:
        """Make the replica follow the primary."""
        ask(self.replica, "REPLICAOF", "127.0.0.1", self.primary.port)
        until(lambda: is_in_step(self.replica), within=PATIENCE_S)
        until(lambda: int(info(self.primary, "replication")["connected_slaves"]) == 1, within=PATIENCE_S)

    def part(self) -> None:
        """Make it a primary of its own, with the data that it has."""
        ask(self.replica, "REPLICAOF", "NO", "ONE")
        until(lambda: int(info(self.primary, "replication")["connected_slaves"]) == 0, within=PATIENCE_S)


@pytest.fixture(scope="module")
def lasting_pair() -> Iterator[Pair]:
    """Two servers shared by all tests that leave them running."""
    with ExitStack() as stack:
        yield Pair(stack)


@pytest.fixture
def pair(lasting_pair: Pair) -> Iterator[Pair]:
    """A replica in sync with its primary."""
    if not is_in_step(lasting_pair.replica):
        lasting_pair.join()
    yield lasting_pair
    lasting_pair.replica.thaw()
    ask(lasting_pair.primary, "CONFIG", "SET", "maxmemory", 0)


@pytest.fixture
def mortal_pair() -> Iterator[Pair]:
    """A replica in sync with its primary, for tests that kill one of them."""
    with ExitStack() as stack:
        pair = Pair(stack)
        pair.join()
        yield pair


def can_wait_for_a_disk(server: Server) -> bool:
    """Whether the server has WAITAOF."""
    try:
        return ask(server, "WAITAOF", 0, 0, 1) is not None
    except redis.ResponseError as error:
        assert "unknown command" in str(error)
        return False
