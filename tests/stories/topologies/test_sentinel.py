"""Sentinels that promote another server under load; and which of their replies are trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
import redis.sentinel

from schedq import Queue, StoreUnavailable, UsageError
from schedq.connection.address import Address
from tests.servers import Server
from tests.stories.topologies.cluster import ask, has_all, info, is_in_step
from tests.stories.topologies.conftest import MakeLoad
from tests.stories.topologies.load import done
from tests.stories.topologies.sentinel import SERVICE, Sentinel, Watched, role, url_of
from tests.waiting import until
from tests.worker.crew import Crew

pytestmark = pytest.mark.topologies

OpenQueue = Callable[..., Queue]


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """A primary, a replica and three Sentinels."""
    with Watched() as watched:
        yield watched


def test_a_service_that_no_sentinel_knows_is_refused(watched: Watched, open_queue: OpenQueue):
    queue = open_queue("unknown", watched.url.replace(f"/{SERVICE}/", "/mian/"))

    with pytest.raises(UsageError, match="the Sentinels do not know the service 'mian'"):
        queue.stats()


def test_one_sentinel_is_enough(watched: Watched, open_queue: OpenQueue):
    with Server(topology="single") as gone:
        gone.kill()  # its port stays reserved

        assert open_queue("one-left", url_of(gone, watched.sentinels[0]), retry_for=0).stats()
        with pytest.raises(StoreUnavailable, match="does not respond"):
            open_queue("none-left", url_of(gone), retry_for=0).stats()


def test_a_database_is_the_servers_not_the_sentinels(watched: Watched, open_queue: OpenQueue):
    queue = open_queue("third", url_of(*watched.sentinels, db=3))
    queue.enqueue(1)

    assert "db3" in info(watched.primary(), "keyspace")


def test_a_client_of_the_primary_is_used_for_its_sentinels(watched: Watched, open_queue: OpenQueue):
    sentinel = redis.sentinel.Sentinel([("127.0.0.1", one.port) for one in watched.sentinels])
    with sentinel.master_for(SERVICE, db=0) as client, sentinel.slave_for(SERVICE) as other:
        assert Address(client) == Address(watched.url)
        assert open_queue("taken", client).stats()
        with pytest.raises(UsageError, match=r"connects to replicas; .* redis\+sentinel://"):
            Address(other)


def test_a_server_that_sentinels_name_must_confirm_that_it_is_the_primary(open_queue: OpenQueue):
    with Server(topology="single") as server:
        ask(server, "REPLICAOF", "127.0.0.1", 1)
        with Sentinel(server, 1) as sentinel:
            queue = open_queue("named", url_of(sentinel), retry_for=0.2)
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="the Sentinels name .*, but it is not the primary"):
                    queue.stats()
            ask(server, "REPLICAOF", "NO", "ONE")

            assert queue.stats()["pending_depth"] == 0


def test_the_primary_hands_over_under_load_and_no_job_is_lost(watched: Watched, make_load: MakeLoad, crew: Crew):
    old, new = watched.primary(), watched.replica()
    load = make_load("handed-over", watched.url, retry_for=30)
    post = crew.start(load, debug=False)
    load.start()
    load.grows()

    if not watched.hand_over(new):
        # The old primary is informed seconds after the new one: what it accepts until then is lost.
        load.stop()
        assert has_all(old)
        watched.replace_primary(new)
        until(lambda: role(old) == "slave", within=60)
        load.start()
    load.grows()

    load.stop()
    done(load, post=post)
    load.check(new)


def test_the_primary_dies_under_load_and_is_not_used_when_it_returns(
    watched: Watched, make_load: MakeLoad, open_queue: OpenQueue, crew: Crew
):
    old, new = watched.primary(), watched.replica()
    until(lambda: is_in_step(new), within=60)
    load = make_load("killed", watched.url, retry_for=30, visibility_ms=3000)
    post = crew.start(load, debug=False)
    load.start()
    load.grows()
    load.stop()  # the last writes may be lost with the server, because the replica lags behind
    assert has_all(old)

    old.kill()
    load.start()  # from the first moment without a primary
    load.grows()
    until(lambda: watched.agree_on(new), within=60)
    old.start()  # it still considers itself a primary
    with Server(topology="single") as other, Sentinel(other, 1) as behind:
        # A Sentinel that missed all this names a server that claims to be the primary.
        open_queue("later", url_of(behind, *watched.sentinels)).enqueue("here")
        assert ask(other, "DBSIZE") == 0
    load.grows()
    assert clients(old) == []

    load.stop()
    done(load, post=post)
    load.check(new)


def clients(server: Server) -> list[str]:
    """The names of our connections to a server."""
    with server.client() as client:
        return [one["name"] for one in client.client_list() if one["name"].startswith("schedq")]
