"""The effect of a run's network on requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from scripts.tools.chaos.network import Network
from tests.servers import Server
from tests.waiting import until

LATE_S = 0.2
COUNT = "chaos-count"


@pytest.fixture
def network(server: Server) -> Iterator[Network]:
    with Network(server.port) as network:
        yield network


@pytest.fixture
def connect(network: Network) -> Iterator[Callable[[str], redis.Redis]]:
    """Creates clients behind the proxy of a name, which send each command once."""
    made: list[redis.Redis] = []

    def connect(name: str) -> redis.Redis:
        made.append(redis.Redis.from_url(network.url(name), retry=Retry(NoBackoff(), 0), socket_timeout=60))
        made[-1].delete(COUNT)
        return made[-1]

    yield connect
    for client in made:
        client.close()


def count(client: redis.Redis) -> None:
    """Change something with a script."""
    client.eval("return redis.call('INCR', KEYS[1])", 1, COUNT)


def _ping(connection: redis.Connection) -> object:
    connection.send_command("PING")
    return connection.read_response()


def test_it_passes_large_requests_and_replies(connect: Callable[[str], redis.Redis]):
    client = connect("a")

    client.set("chaos-large", "x" * 3_000_000)

    assert client.get("chaos-large") == b"x" * 3_000_000


def test_a_cut_ends_the_connections_of_one_process_only(network: Network, connect: Callable[[str], redis.Redis]):
    one, other = (connect(name).connection_pool.get_connection() for name in ("one", "other"))
    network.cut("one")

    with pytest.raises(redis.ConnectionError):
        _ping(one)
    assert _ping(other) == b"PONG"
    assert _ping(one) == b"PONG", "a new connection is let through"
    for connection in (one, other):
        connection.disconnect()


def test_a_lost_reply_is_that_of_a_request_that_was_carried_out(
    network: Network, connect: Callable[[str], redis.Redis]
):
    client = connect("a")
    network.lose_replies("a")

    assert client.ping(), "requests that only read are not affected"
    with pytest.raises(redis.ConnectionError):
        count(client)

    assert client.get(COUNT) == b"1"
    assert network.lost() == 1


@pytest.mark.parametrize("keeps", [True, False])
def test_data_sent_into_a_black_hole_arrives_late_or_never(
    network: Network, connect: Callable[[str], redis.Redis], keeps: bool
):
    client, witness = connect("a"), connect("b")
    ended = threading.Event()

    def ask() -> None:
        try:
            count(client)
        except redis.ConnectionError:
            assert not keeps
        ended.set()

    network.close("a")
    thread = threading.Thread(target=ask)
    thread.start()
    assert not ended.wait(LATE_S)
    assert witness.get(COUNT) is None

    network.open("a", keeps=keeps)

    thread.join(60)
    assert ended.is_set()
    assert client.ping()
    if keeps:
        assert witness.get(COUNT) == b"1"


def test_a_request_on_a_connection_that_its_client_has_closed_may_still_arrive(
    network: Network, connect: Callable[[str], redis.Redis]
):
    client, witness = connect("a"), connect("b")
    network.close("a")
    connection = client.connection_pool.get_connection()
    connection.send_command("INCR", COUNT)
    connection.disconnect()

    network.open("a")

    assert until(lambda: witness.get(COUNT)) == b"1"


def test_a_slow_wire_delivers_late_and_whole(network: Network, connect: Callable[[str], redis.Redis]):
    client = connect("a")
    network.slow("a", LATE_S)
    began = time.monotonic()

    client.set("chaos-large", "value" * 1000)

    assert time.monotonic() - began >= 2 * LATE_S
    network.slow("a", 0)
    assert client.get("chaos-large") == b"value" * 1000
