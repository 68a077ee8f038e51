"""A password never appears: not in a repr, an error or its causes, the most verbose log, or an event."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis
from redis.credentials import UsernamePasswordCredentialProvider

from schedq import AsyncQueue, Queue, SchedqError, StoreUnavailable, UsageError
from schedq.connection.address import Address
from tests.conftest import MakeQueue
from tests.servers import Server
from tests.stories.processes import app
from tests.stories.processes.scene import APP, Process, Scene
from tests.stories.processes.stage import scenes

CANARY = "c4nary/wr:0n+g"
"""Contains characters that must be percent-encoded in a URL."""
PIECES = (CANARY, quote(CANARY, safe=""), "c4nary", "0n+g", "%0n")
TYPED = "c4nary0n+g"
"""Needs no encoding; for malformed URLs."""

Place = Callable[[str, int, str], Any]
JOB_STATES: dict[str, Place] = {
    "password": lambda secret, port, path: f"redis://:{quote(secret, safe='')}@127.0.0.1:{port}/0",
    "user and password": lambda secret, port, path: f"redis://default:{quote(secret, safe='')}@127.0.0.1:{port}/0",
    "TLS": lambda secret, port, path: f"rediss://default:{quote(secret, safe='')}@127.0.0.1:{port}/0",
    "unix socket": lambda secret, port, path: f"unix://:{quote(secret, safe='')}@{path}?db=0",
    "query": lambda secret, port, path: f"redis://127.0.0.1:{port}/0?password={quote(secret, safe='')}",
    "query of a socket": lambda secret, port, path: f"unix://{path}?username=default&password={quote(secret, safe='')}",
    "client": lambda secret, port, path: redis.Redis(port=port, password=secret),
    "asyncio client": lambda secret, port, path: redis.asyncio.Redis(unix_socket_path=path, password=secret),
    "provider": lambda secret, port, path: redis.Redis(
        port=port, credential_provider=UsernamePasswordCredentialProvider("default", secret)
    ),
}


def telling(*texts: str) -> list[str]:
    """Those that contain the password."""
    return [text for text in texts if any(piece in text for piece in PIECES)]


def everything_about(error: BaseException) -> str:
    """Everything that a program may print of an error and its causes."""
    texts = [str(error), repr(error), repr(error.args), *traceback.format_exception(error)]
    texts += [everything_about(led) for led in (error.__cause__, error.__context__) if led is not None]
    return "\n".join(texts)


@pytest.mark.parametrize("form", JOB_STATES)
def test_no_representation_contains_the_password(form: str) -> None:
    place = JOB_STATES[form](CANARY, 6379, "/tmp/r.sock")
    address, queue, twin = Address(place), Queue("mail", redis=place), AsyncQueue("mail", redis=place)

    shown = (address, queue, twin, queue.aio, queue.settings, queue.job("a"), queue.registry, queue._client)

    at = address.find("queue:mail:")
    assert telling(address.label, *map(repr, shown), *map(str, shown), repr({address: 1})) == []
    assert telling(at.label, repr(at), repr(at.connection("name")), repr(at.async_connection("name"))) == []


@pytest.fixture(scope="module")
def away() -> Iterator[Server]:
    """A server that is not running."""
    server = Server()
    yield server
    server.stop()


@pytest.mark.parametrize("form", JOB_STATES)
def test_no_error_about_an_unavailable_server_contains_the_password(
    make_queue: MakeQueue, away: Server, form: str
) -> None:
    queue = make_queue(url=JOB_STATES[form](CANARY, 1, away.socket_path), at=away, retry_for=0)

    for verb in (queue.stats, lambda: queue.enqueue(1), lambda: queue.claim(0), lambda: next(queue.events(1))):
        with pytest.raises(StoreUnavailable) as refused:
            verb()
        assert telling(everything_about(refused.value)) == []


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with a different password."""
    with Server(requirepass="right") as server:
        yield server


@pytest.mark.parametrize("form", [form for form in JOB_STATES if form != "TLS"])
def test_no_error_about_a_wrong_password_contains_it(
    make_queue: MakeQueue, guarded: Server, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    caplog.set_level(logging.DEBUG)
    queue = make_queue(url=JOB_STATES[form](CANARY, guarded.port, guarded.socket_path), at=guarded, retry_for=5)

    for verb in (queue.stats, lambda: queue.enqueue(1), lambda: queue.claim(0), lambda: next(queue.events(1))):
        with pytest.raises(UsageError, match="rejects the user name or password") as refused:
            verb()
        assert telling(everything_about(refused.value)) == []
    assert telling(caplog.text) == []


def test_no_error_about_an_unexpected_password_contains_it(make_queue: MakeQueue, server: Server) -> None:
    queue = make_queue(url=JOB_STATES["password"](CANARY, server.port, ""), retry_for=0)

    with pytest.raises(SchedqError) as refused:
        queue.stats()

    assert telling(everything_about(refused.value)) == []


@pytest.mark.parametrize(
    "url",
    [
        "redis://:{}@h:port/0",
        "redis://ada:{}",
        "redis://ada:{}/0",
        "redis://:{}/x@h",
        "redis://:{}?x@h",
        "redis://:{}#x@h",
        "redis://:x@{}@h:port",
        "redis://:x/{}@h:port",
        "redis://h:port?password={}",
        "redis://h:port/0?password=x@{}",
        "redis://[{}@h",
        "unix://:{}@",
        "unix://?password={}",
        "http://:{}@h",
        "http://h?password={}",
        "{}@h:6379",
        ":{}@redis://h",
        "redis//ada:{}@h",
        "redis:/ada:{}@h",
        "ada:{}",
        "redis:{}",
    ],
)
def test_no_error_about_an_invalid_url_contains_the_password(url: str) -> None:
    with pytest.raises(UsageError, match="URL") as refused:
        Queue("mail", redis=url.format(TYPED))

    assert telling(everything_about(refused.value)) == []


@pytest.mark.parametrize("cut", "/?#[]")
@pytest.mark.parametrize(
    "url",
    [
        "redis://:4711{}9@redis.internal",
        "redis://:4711{}9@redis.internal:6379/0",
        "redis://ada:4711{}9@redis.internal/0",
        "redis://:4711{}a=9@redis.internal/0",
        "redis://:x@4711{}9@redis.internal",
        "redis+cluster://:4711{}9@redis.internal",
        "redis+sentinel://:4711{}9@redis.internal/main",
        "rediss+sentinel://ada:4711{}main/9@redis.internal/main",
        "unix://:4711{}9@/tmp/s",
    ],
)
def test_a_password_cut_by_an_unescaped_character_is_not_shown_as_a_port(url: str, cut: str) -> None:
    with pytest.raises(UsageError, match="%40 %3A %2F %3F %23") as refused:
        Queue("mail", redis=url.format(cut))

    assert "4711" not in str(refused.value)


@pytest.mark.processes
def test_no_process_writes_the_password_however_verbose_it_is() -> None:
    with scenes() as make_scene:
        lasting, refused = talk(make_scene(server={"requirepass": TYPED}, visibility_ms=2000))

        assert [process.code() for process in refused] == [1] * 4 + [2, 2]
        for process in (*lasting, *refused):
            assert telling(process.log, process.output) == []
        assert all("DEBUG" in process.log for process in lasting)


def talk(scene: Scene) -> tuple[list[Process], list[Process]]:
    """Processes that have lost Redis and are back, and processes that Redis or schedq refuses."""
    place = f"127.0.0.1:{scene.server.port}/0"
    right, wrong = f"redis://:{TYPED}@{place}", f"redis://:{TYPED}x@{place}"
    roles = (("worker", APP, "-vv"), ("worker", APP, "-vv", "--processes", "2"), ("promoter", app.NAME, "-vv"))
    lasting = [scene.start(*words, SCHEDQ_REDIS_URL=right) for words in roles]
    ids = [scene.add("brief"), scene.add("fails", max_attempts=1), scene.add("brief", delay=0.2)]
    scene.until(lambda: all(scene.job(job_id).status in ("completed", "failed") for job_id in ids), within=60)
    scene.server.kill()
    scene.until(lambda: all("lost (" in process.log for process in lasting), within=60)
    scene.server.start()
    scene.until(lambda: all("back after" in process.log for process in lasting), within=60)

    refused = [scene.start(*words, SCHEDQ_REDIS_URL=wrong) for words in (*roles, ("stats", app.NAME))]
    refused.append(scene.start("stats", app.NAME, "--redis", f"redis://ada:{TYPED}"))
    refused.append(scene.start("worker", APP, "--redis", f"http://h?password={TYPED}"))
    return lasting, refused
