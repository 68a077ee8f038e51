"""Passwords that change: read from a file or from a provider for each connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from schedq import Queue, StoreUnavailable, UsageError
from schedq.connection.address import Address
from schedq.connection.endpoint import CredentialAdapter
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.stories.topologies.sentinel import Sentinel, url_of

URLS: dict[str, Callable[[Server], str]] = {
    "port": lambda server: f"redis://ada@127.0.0.1:{server.port}/0",
    "socket": lambda server: f"unix://ada@{server.socket_path}",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with a user ada."""
    with Server(topology="single", users={"ada": "~* &* +@all"}) as server:
        yield server


@pytest.fixture
def passwords(guarded: Server) -> Iterator[Callable[[str], None]]:
    """Changes ada's password and closes her connections."""
    with guarded.client() as client:

        def change(password: str) -> None:
            client.execute_command("ACL", "SETUSER", "ada", "resetpass", f">{password}")
            client.execute_command("CLIENT", "KILL", "USER", "ada")

        yield change
        change("ada")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Contains ada's password, followed by a line break as an editor saves it."""
    file = tmp_path / "secret"
    file.write_text("ada\n")
    return file


def use(queue: Handle) -> None:
    """Make requests, which need a connection."""
    queue.enqueue("a")
    job = queue.claim(1000)
    assert queue.complete(job)


@pytest.mark.parametrize("how", ["URL", "environment"])
@pytest.mark.parametrize("place", URLS)
def test_a_password_file_is_read_for_each_connection(
    make_queue: MakeQueue,
    guarded: Server,
    passwords: Callable[[str], None],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    place: str,
) -> None:
    url = URLS[place](guarded)
    if how == "URL":
        url += f"?password_file={file}"
    else:
        monkeypatch.setenv("SCHEDQ_REDIS_PASSWORD_FILE", str(file))
    queue = make_queue(at=guarded, url=url, retry_for=10)
    use(queue)

    passwords("n€w/p@ss:#")
    file.write_text("n€w/p@ss:#\r\n")

    use(queue)
    assert "ada@" not in queue.queue.address.label
    assert "n€w" not in repr(queue.queue) + repr(queue.queue.address._target)


@pytest.mark.topologies
@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
def test_a_password_file_serves_clusters_and_sentinels(make_queue: MakeQueue, file: Path, kind: str) -> None:
    topology = "cluster" if kind == "cluster" else "single"
    with Server(topology=topology, users={"ada": "~* &* +@all"}) as server:
        if kind == "cluster":
            use(make_queue(at=server, url=f"redis+cluster://ada@127.0.0.1:{server.port}?password_file={file}"))
            return
        own = file.with_name("sentinels")
        own.write_text("sam's")
        with Sentinel(server, 1) as sentinel:
            with sentinel.client() as client:
                client.execute_command("ACL", "SETUSER", "sam", "on", ">sam's", "~*", "&*", "+@all")
                client.execute_command("SENTINEL", "SET", "main", "auth-user", "tests")
                client.execute_command("SENTINEL", "SET", "main", "auth-pass", "tests")
            more = f"?password_file={file}&sentinel_username=sam&sentinel_password_file={own}"
            use(make_queue(at=server, url=url_of(sentinel).replace("//", "//ada@") + more))
            own.write_text("another's")
            with pytest.raises(UsageError, match="rejects the user name or password"):
                make_queue(at=server, url=url_of(sentinel) + more).stats()


@pytest.mark.parametrize("place", URLS)
@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "can't be read: No such file"), (b"\n", "is empty"), (b"\xff\xfes", "is not UTF-8 text")],
)
def test_a_password_file_without_a_password_is_named(
    make_queue: MakeQueue, guarded: Server, file: Path, place: str, text: bytes | None, reason: str
) -> None:
    file.unlink() if text is None else file.write_bytes(text)
    queue = make_queue(at=guarded, url=f"{URLS[place](guarded)}?password_file={file}", retry_for=20)

    with pytest.raises(UsageError, match=f"the password file {file} {reason}"):
        queue.stats()


def test_a_url_with_a_password_and_a_file_is_refused() -> None:
    with pytest.raises(UsageError, match="both password and password_file; use only one") as refused:
        Address("redis://:s3cret@h?password_file=/run/secrets/redis")
    assert "s3cret" not in str(refused.value)


def test_a_url_with_a_password_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDQ_REDIS_PASSWORD_FILE", "/run/secrets/redis")

    assert "credential_provider" not in Address("redis://:pw@h").find("").settings
    assert Address("redis://ada@h").find("").settings["credential_provider"].get_credentials
    assert Address("redis://h") == Address("redis://h")


# -- a provider of the application


class Provider(redis.CredentialProvider):
    """Returns or raises what the test has set."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.threads: list[str] = []

    def get_credentials(self) -> Any:
        self.threads.append(threading.current_thread().name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("place", URLS)
def test_a_provider_that_fails_is_named(make_queue: MakeQueue, guarded: Server, place: str) -> None:
    where: dict[str, Any] = {"port": guarded.port} if place == "port" else {"unix_socket_path": guarded.socket_path}
    provider = Provider(LookupError("no such role"))
    client = redis.Redis(**where, credential_provider=provider)
    queue = make_queue(at=guarded, url=client, retry_for=0)

    with pytest.raises(UsageError, match="the credential provider failed: LookupError: no such role"):
        queue.stats()
    provider.answer = TimeoutError("no token in time")
    with pytest.raises(StoreUnavailable, match="no token in time"):
        queue.stats()
    provider.answer = ("ada", "ada")
    use(queue)


def test_a_provider_that_blocks_does_not_block_the_event_loop() -> None:
    provider = Provider(("ada", "ada"))

    assert asyncio.run(CredentialAdapter(provider).get_credentials_async()) == ("ada", "ada")
    assert provider.threads == ["schedq-resolver"]


def test_a_provider_is_used_through_a_cluster() -> None:
    with Server(topology="cluster", users={"ada": "~* &* +@all"}) as server:
        with redis.RedisCluster(host="127.0.0.1", port=server.port, username="ada", password="ada") as client:
            client.nodes_manager.connection_kwargs["credential_provider"] = Provider(("ada", "ada"))
            for name in ("username", "password"):
                client.nodes_manager.connection_kwargs.pop(name, None)
            queue = Queue("mail", redis=client)
        with queue:
            assert queue.enqueue("a")
