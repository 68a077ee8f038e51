"""A client object as `redis=`: only its address and credentials are used, whatever its other settings are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import ExponentialBackoff
from redis.credentials import UsernamePasswordCredentialProvider
from redis.exceptions import ConnectionError as LineBroken
from redis.retry import Retry

from schedq import Queue, UsageError
from schedq.model.keys import QUEUES_KEY
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.waiting import until

PASSWORD = "s3cret"


@dataclass(frozen=True)
class Kind:
    """redis.Redis or redis.asyncio.Redis, with the classes that belong to it."""

    client: Any
    pool: Any
    blocking_pool: Any
    retry: Any

    def __call__(self, server: Server, **settings: Any) -> Any:
        """A client of the server over TCP."""
        return self.client(**{"host": "127.0.0.1", "port": server.port, "password": PASSWORD} | settings)


BLOCKING = Kind(redis.Redis, redis.ConnectionPool, redis.BlockingConnectionPool, Retry)
ASYNCIO = Kind(
    redis.asyncio.Redis, redis.asyncio.ConnectionPool, redis.asyncio.BlockingConnectionPool, redis.asyncio.retry.Retry
)
SETTINGS: dict[str, Callable[[Kind, Server], Any]] = {
    "plain": lambda kind, server: kind(server),
    "decode_responses": lambda kind, server: kind(server, decode_responses=True),
    "RESP 2": lambda kind, server: kind(server, protocol=2),
    "RESP 3": lambda kind, server: kind(server, protocol=3),
    "RESP 3, decode_responses": lambda kind, server: kind(server, protocol=3, decode_responses=True),
    "another encoding": lambda kind, server: kind(server, encoding="utf-16", decode_responses=True),
    "a Retry policy": lambda kind, server: kind(
        server, retry=kind.retry(ExponentialBackoff(), 5), retry_on_error=[LineBroken]
    ),
    "short timeouts": lambda kind, server: kind(server, socket_timeout=0.001, socket_connect_timeout=0.0001),
    "health checks": lambda kind, server: kind(server, health_check_interval=1),
    "a name": lambda kind, server: kind(server, client_name="application"),
    "one connection": lambda kind, server: kind(server, single_connection_client=True),
    "few connections": lambda kind, server: kind(server, max_connections=1),
    "a unix socket": lambda kind, server: kind.client(unix_socket_path=server.socket_path, password=PASSWORD),
    "a user": lambda kind, server: kind(server, username="ada", password="p@ss:w/rd"),
    "a provider of credentials": lambda kind, server: kind.client(
        host="127.0.0.1",
        port=server.port,
        credential_provider=UsernamePasswordCredentialProvider("ada", "p@ss:w/rd"),
    ),
    "from a URL": lambda kind, server: kind.client.from_url(f"redis://ada:p%40ss%3Aw%2Frd@127.0.0.1:{server.port}/0"),
    "from a URL of a socket": lambda kind, server: kind.client.from_url(f"{server.unix_url}&decode_responses=True"),
    "a pool": lambda kind, server: kind.client(
        connection_pool=kind.pool(host="127.0.0.1", port=server.port, password=PASSWORD)
    ),
    "a pool that makes one wait": lambda kind, server: kind.client(
        connection_pool=kind.blocking_pool(host="127.0.0.1", port=server.port, password=PASSWORD, max_connections=1)
    ),
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for a password, or for the password of the user ada."""
    with Server(requirepass=PASSWORD) as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "ada", "on", ">p@ss:w/rd", "~*", "&*", "+@all")
        yield server


@pytest.fixture(params=[BLOCKING, ASYNCIO], ids=["redis.Redis", "redis.asyncio.Redis"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Both kinds of queues accept both kinds of clients."""
    found: Kind = request.param
    return found


def connected(queue: Handle) -> list[dict[str, str]]:
    """The connections to the server, except the test's own."""
    mine = queue.redis.client_id()
    return [entry for entry in queue.redis.client_list() if int(entry["id"]) != mine]


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_job_runs_whatever_the_clients_settings_are(make_queue: MakeQueue, guarded: Server, kind: Kind, setting: str):
    client = SETTINGS[setting](kind, guarded)
    queue = make_queue(at=guarded, url=client)
    payload = {"text": "ü€😀", "number": 1.5}
    with closing(queue.events(timeout=20)) as events:
        first = queue.start_iteration(events)
        until(lambda: queue.redis.pubsub_numsub(queue.keys.events)[0][1], within=60)

        job_id = queue.enqueue(payload, delay=0.05)
        waiting = queue.start("wait", job_id, 20)
        job = queue.claim(20_000)
        assert (job.id, job.payload) == (job_id, payload)
        assert queue.renew(job)
        assert queue.complete(job, payload)

        assert waiting.result(20) is True
        assert first.result(20)["id"] == job_id
        assert queue.get_job(job_id).result == payload
        assert queue.stats()["completed_total"] == 1
        assert "application" not in {entry["name"] for entry in connected(queue)}, "the client itself was used"


def test_the_client_is_not_used_and_may_be_closed(make_queue: MakeQueue, server: Server):
    client = redis.Redis(host="127.0.0.1", port=server.port, client_name="application")
    queue = make_queue(url=client)
    client.close()
    client.connection_pool.disconnect()

    assert queue.enqueue("a")

    assert "application" not in {entry["name"] for entry in connected(queue)}


def test_a_clients_database_is_kept(make_queue: MakeQueue, guarded: Server, kind: Kind):
    queue = make_queue(at=guarded, url=kind(guarded, db=3))

    job_id = queue.enqueue("a")
    assert queue.complete(queue.claim(1000))

    assert queue.state().keys == {}, "nothing is in database 0"
    with guarded.client() as client:
        client.select(3)
        assert client.hget(queue.keys.job(job_id), "status") == "completed"
        assert client.smembers(QUEUES_KEY) == {queue.queue.name}
        client.flushdb()


def test_credentials_are_read_for_each_connection(make_queue: MakeQueue, guarded: Server, kind: Kind):
    """A password that changes every hour therefore stays valid."""
    asked = []

    class Provider(redis.CredentialProvider):
        def get_credentials(self) -> tuple[str, str]:
            asked.append(1)
            return "ada", "p@ss:w/rd"

        async def get_credentials_async(self) -> tuple[str, str]:
            return self.get_credentials()

    client = kind.client(host="127.0.0.1", port=guarded.port, credential_provider=Provider())
    queue = make_queue(at=guarded, url=client, retry_for=10)
    queue.enqueue("a")
    before = len(asked)
    for entry in connected(queue):
        queue.redis.client_kill_filter(_id=entry["id"])

    queue.enqueue("b")

    assert before >= 1
    assert len(asked) > before


@pytest.mark.parametrize("settings", [{"username": "ada", "password": "wr0ng"}, {"password": "wr0ng"}])
def test_wrong_credentials_are_reported_but_not_shown(
    make_queue: MakeQueue, guarded: Server, kind: Kind, settings: dict[str, str]
):
    queue = make_queue(at=guarded, url=kind(guarded, **settings), retry_for=10)

    with pytest.raises(UsageError, match="rejects the user name or password") as refused:
        queue.enqueue("a")

    assert "wr0ng" not in str(refused.value) + repr(queue.queue)


def test_connections_of_an_unknown_class_are_refused(kind: Kind):
    class Mine(redis.connection.AbstractConnection):
        pass

    client = kind.client(connection_pool=kind.pool(connection_class=Mine))

    with pytest.raises(UsageError, match="unknown class, Mine; pass a URL"):
        Queue("mail", redis=client)
