"""The checks that a server must pass before a queue uses it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ResponseError

from schedq import StoreUnavailable, UsageError
from schedq.connection.address import Address
from schedq.connection.handshake import Handshake
from schedq.model.settings import Settings
from tests.conftest import MakeQueue
from tests.doors import Handle, in_thread
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew


@pytest.fixture(scope="module")
def primary() -> Iterator[Server]:
    """A server for replicas to follow, which need not wait for each other."""
    with Server(repl_diskless_sync_delay=0) as server:
        yield server


@pytest.fixture(scope="module")
def settled() -> Iterator[Server]:
    """A server whose settings tests change and restore."""
    with Server(maxmemory="100mb") as server:
        yield server


@pytest.fixture
def crew() -> Iterator[Crew]:
    """Starts workers, which are stopped after the test."""
    crew = Crew()
    yield crew
    crew.end()


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Logs:
    """The messages logged so far."""
    caplog.set_level("INFO", logger="schedq")
    return lambda: [entry.getMessage() for entry in caplog.records if entry.name == "schedq"]


# -- a replica


def follow(server: Server, primary: Server) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", primary.port)
        until(lambda: client.info("replication")["master_link_status"] == "up", within=60)


def test_a_replica_is_refused_with_advice_and_accepted_once_it_is_the_primary(make_queue: MakeQueue, primary: Server):
    with Server() as replica:
        follow(replica, primary)

        with pytest.raises(StoreUnavailable, match=r"is a read-only replica; use the primary's address"):
            make_queue(at=replica, retry_for=0.2).enqueue(1)

        patient = make_queue(at=replica, retry_for=30)
        enqueuing = patient.start("enqueue", 1)
        with replica.client() as client:
            client.replicaof("NO", "ONE")
        job_id = enqueuing.result(30)
        assert patient.places() == {"pending": [job_id]}


def test_a_writable_replica_is_refused_too(make_queue: MakeQueue, primary: Server):
    """What is written there is lost at the next full synchronization."""
    with Server(replica_read_only=False) as replica:
        follow(replica, primary)
        queue = make_queue(at=replica, retry_for=0)

        with pytest.raises(StoreUnavailable, match="replica"):
            queue.enqueue(1)

        assert queue.state().keys == {}


def test_a_worker_on_a_replica_reports_it_and_waits(make_queue: MakeQueue, primary: Server, crew: Crew, logs: Logs):
    with Server() as replica:
        follow(replica, primary)
        queue = make_queue(at=replica, retry_for=30)
        its = make_queue(queue.queue.name, at=replica)
        its.queue.handler(lambda payload: payload)
        crew.start(its)
        until(lambda: any("replica" in line and "trying again" in line for line in logs()), within=60)

        with replica.client() as client:
            client.replicaof("NO", "ONE")

        assert queue.result(queue.enqueue("a"), 30) == "a"
        crew.end()


# -- a server that is loading its data


def test_a_server_that_is_loading_is_reported_and_waited_for(make_queue: MakeQueue):
    with Server(appendonly=True, aof_use_rdb_preamble=False) as server:
        with server.client() as client, client.pipeline(transaction=False) as pipeline:
            for number in range(64_000):
                pipeline.set(f"ballast:{number}", "")
            pipeline.execute()
        server.kill()
        server.options["key-load-delay"] = "200"  # µs for each command; it serves its clients after every 1024
        starting = in_thread(server.start)
        with server.client() as client:
            until(lambda: _is_loading(client), within=60)
        patient, impatient = make_queue(at=server, retry_for=30), make_queue(at=server, retry_for=0)

        enqueuing = patient.start("enqueue", 1)
        with pytest.raises(StoreUnavailable, match="is still loading its data"):
            impatient.enqueue(1)
        assert not enqueuing.done()
        with server.client() as client, suppress(ResponseError):
            client.config_set("key-load-delay", 0)  # Redis 6.2 refuses it while it loads, which takes 13 s then

        starting.result(60)
        job_id = enqueuing.result(60)
        assert patient.places() == {"pending": [job_id]}


def _is_loading(client: redis.Redis) -> bool:
    try:
        return bool(client.info("persistence")["loading"])
    except ConnectionLost:
        return False


# -- a server that may evict jobs


@pytest.mark.parametrize(
    "policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-ttl"]
)
def test_a_server_that_may_evict_is_refused_unless_that_is_allowed(make_queue: MakeQueue, settled: Server, policy: str):
    with settled.client() as client:
        client.config_set("maxmemory-policy", policy)

    began = time.monotonic()
    with pytest.raises(UsageError, match=rf"may evict keys \(maxmemory-policy {policy}\).* allow_eviction=True"):
        make_queue(at=settled, retry_for=30).enqueue(1)
    assert time.monotonic() - began < 10, "it does not pass by waiting"

    assert make_queue(at=settled, allow_eviction=True).enqueue(1)


def test_a_worker_ends_on_a_server_that_may_evict(make_queue: MakeQueue, settled: Server, crew: Crew):
    with settled.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    queue = make_queue(at=settled)
    queue.queue.handler(lambda payload: payload)

    post = crew.start(queue)
    post.join(20)

    assert isinstance(post.error, UsageError)
    assert "allow_eviction" in str(post.error)
    post.error = None


# -- its version


def asked(**facts: str) -> None:
    """Check a server whose INFO has these fields."""
    info = "# Server\r\n" + "".join(f"{name}:{value}\r\n" for name, value in facts.items())
    address = Address("redis://:s3cret@example.org")
    Handshake(address, Settings("mail")).check(address.find("mail"), [("INFO",)], [info])


def refusal(**facts: str) -> str:
    """Why a server whose INFO has these fields is refused; empty if it is accepted."""
    try:
        asked(**facts)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("version", ["2.8.24", "5.0.14", "6.0.16", "6.1.240"])
def test_a_redis_that_is_too_old_is_refused(version: str):
    assert f"redis://example.org:6379/0 is Redis {version}; schedq needs Redis 6.2" in refusal(redis_version=version)


@pytest.mark.parametrize("version", ["6.2.0", "6.2.5", "7.0.15", "7.4.1", "8.2.0", "10.0.0", "255.255.255", "", "next"])
def test_a_redis_that_is_new_enough_is_accepted(version: str):
    assert refusal(redis_version=version) == ""


def test_a_valkey_is_accepted_whatever_redis_version_it_reports():
    assert refusal(redis_version="6.0.0", valkey_version="8.1.0") == ""


def test_a_server_that_does_not_reveal_its_version_is_accepted(make_queue: MakeQueue, primary: Server):
    with primary.client() as client:
        client.execute_command("ACL", "SETUSER", "silent", "on", ">pw", "~*", "&*", "+@all", "-info")
    queue: Handle = make_queue(at=primary, url=f"redis://silent:pw@127.0.0.1:{primary.port}/0")

    assert queue.enqueue(1)


@pytest.mark.parametrize("command", ["evalsha", "hset", "lpush"])
def test_a_user_who_lacks_a_permission_of_the_scripts_gets_an_error_that_says_so(
    make_queue: MakeQueue, primary: Server, command: str
):
    with primary.client() as client:
        client.execute_command("ACL", "SETUSER", "weak", "reset", "on", ">pw", "~*", "&*", "+@all", f"-{command}")
    queue = make_queue(at=primary, url=f"redis://weak:pw@127.0.0.1:{primary.port}/0")

    with pytest.raises(UsageError, match="the Redis user may not do this on redis://127"):
        queue.enqueue(1)

    queue.forget()
