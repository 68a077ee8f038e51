"""Redis rejects a user, a password or an operation: a mistake at the start, and an outage later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schedq import Queue, UsageError
from schedq.background.reconnecting_client import Availability
from schedq.worker.process import run_promoters
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, broken_laws

Acl = Callable[..., None]
REFUSALS = {
    "another password": (["SETUSER", "ada", "resetpass", ">other"], "rejects the user name or password"),
    "switched off": (["SETUSER", "ada", "off"], "rejects the user name or password"),
    "deleted": (["DELUSER", "ada"], "rejects the user name or password"),
    "no commands": (["SETUSER", "ada", "-@all"], "o permissions"),
    "no scripts": (["SETUSER", "ada", "-evalsha", "-eval"], "o permissions"),
    "no keys": (["SETUSER", "ada", "resetkeys"], "o permissions"),
}
WELCOME = ("SETUSER", "ada", "reset", "on", ">ada", "~*", "&*", "+@all")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with a user ada."""
    with Server(topology="single", users={"ada": "~* &* +@all"}) as server:
        yield server


@pytest.fixture
def acl(guarded: Server) -> Iterator[Acl]:
    """Changes the access rules and closes ada's connections."""
    with guarded.client() as client:

        def change(*words: str, cut: bool = True) -> None:
            client.execute_command("ACL", *words)
            if cut:
                client.execute_command("CLIENT", "KILL", "USER", "ada") if "DELUSER" not in words else None

        yield change
        change(*WELCOME, cut=False)


def work(queue: Handle, gate: Gate) -> None:
    """Tasks that wait at a gate, in a thread and on the loop, and one that enqueues."""

    @queue.task
    def hold() -> str:
        gate.wait()
        return "held"

    @queue.task
    async def along() -> str:
        await gate.passed()
        return "along"

    @queue.task
    def ok() -> str:
        return "ok"


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("place", ["socket", "port"])
def test_a_worker_survives_a_rejection_and_every_job_ends_once(
    make_queue: MakeQueue, guarded: Server, acl: Acl, crew: Crew, gate: Gate, logs: Logs, refusal: str, place: str
) -> None:
    url = guarded.url_as("ada") if place == "socket" else f"redis://ada:ada@127.0.0.1:{guarded.port}/0"
    queue = make_queue(at=guarded, url=url, visibility_ms=20_000)
    work(queue, gate)
    post = crew.start(queue)
    held = queue.enqueue_many([{"task": "hold"}, {"task": "along"}])
    gate.until_held(2)
    words, reason = REFUSALS[refusal]

    acl(*words)
    until(lambda: [line for line in logs() if reason in line])
    gate.open()
    until(lambda: [line for line in logs() if "lost (" in line])  # the fetch loop has met the rejection as well
    assert post.is_working
    with Queue(queue.queue.name, redis=guarded.url_as("tests")) as another:
        added = another.enqueue({"task": "ok"})
    acl(*WELCOME, cut=False)

    until(lambda: len(queue.places().get("completed", [])) == 3)
    assert {queue.fields(job_id)["attempts"] for job_id in [*held, added]} == {"1"}
    assert post.error is None
    until(lambda: [line for line in logs() if "back after" in line])
    assert "ada:ada" not in "".join(logs())


@pytest.mark.parametrize("rules", ["~* &* -@all", "~* &* +@all -evalsha -eval", "&* +@all", "~* +@all -evalsha"])
def test_a_rejection_at_the_start_is_final(
    make_queue: MakeQueue, guarded: Server, acl: Acl, crew: Crew, gate: Gate, rules: str
) -> None:
    queue, other = make_queue(at=guarded, url=guarded.url_as("ada")), make_queue()
    for each in (queue, other):
        work(each, gate)
    acl("SETUSER", "ada", "reset", "on", ">ada", *rules.split())
    job_id = other.enqueue({"task": "along"})

    post = crew.start(queue, other)
    post.join()

    assert isinstance(post.error, UsageError)
    assert "the Redis user may not do this" in str(post.error)
    assert other.places() == {"pending": [job_id]}  # jobs that can be settled at another queue's server are released
    post.error = None


def test_a_producer_gets_the_error_at_once(make_queue: MakeQueue, guarded: Server, acl: Acl) -> None:
    queue = make_queue(at=guarded, url=guarded.url_as("ada"), retry_for=20)
    queue.enqueue(1)

    acl("SETUSER", "ada", "off")
    began = time.monotonic()
    with pytest.raises(UsageError, match="rejects the user name or password"):
        queue.enqueue(2)
    assert time.monotonic() - began < 15
    acl(*WELCOME, cut=False)

    assert queue.enqueue(3)


# -- a server without scripts


@pytest.mark.parametrize("missing", ["EVALSHA", "TIME"])
def test_a_server_that_lacks_a_command_ends_a_worker_at_its_start(
    make_queue: MakeQueue, crew: Crew, gate: Gate, logs: Logs, missing: str
) -> None:
    with Server(topology="single", rename_command=f"{missing} gone") as server:
        queue = make_queue(at=server, retry_for=20)
        work(queue, gate)

        began = time.monotonic()
        with pytest.raises(UsageError, match="schedq needs all commands of Redis 6.2 or later"):
            queue.enqueue({"task": "ok"}, delay=5)
        assert time.monotonic() - began < 15
        post = crew.start(queue)
        post.join()

        assert isinstance(post.error, UsageError)
        assert "does not know" in str(post.error)
        assert not [line for line in logs() if "ready" in line]
        post.error = None
        assert broken_laws(queue) == {}


def test_a_server_that_lacks_scripts_ends_a_promoter_at_its_start(make_queue: MakeQueue, logs: Logs) -> None:
    with Server(topology="single", rename_command="EVALSHA gone") as server:
        queue = make_queue(at=server)

        with pytest.raises(UsageError, match="does not know the command EVALSHA"):
            asyncio.run(asyncio.wait_for(run_promoters([queue.queue]), 60))

        assert not [line for line in logs() if "ready" in line]
        assert broken_laws(queue) == {}


# -- the log of an outage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The monotonic clock of outages."""

    class Clock:
        now = 100.0

    monkeypatch.setattr("schedq.background.reconnecting_client.monotonic", lambda: Clock.now)
    return Clock


def test_a_lasting_outage_logs_its_reason_once_a_minute(logs: Logs, clock: Any) -> None:
    outage = Availability("redis://here")
    for _ in range(1300):
        outage.lost("pump", ConnectionError("refused"))
        clock.now += 0.1

    assert logs() == [
        "WARNING redis://here: lost (refused); trying again until it is back",
        "WARNING redis://here: still lost after 60 s (refused)",
        "WARNING redis://here: still lost after 120 s (refused)",
    ]


def test_a_lasting_outage_logs_a_new_reason(logs: Logs, clock: Any) -> None:
    outage = Availability("redis://here")
    outage.lost("pump", ConnectionError("the server closed the connection"))
    clock.now += 0.1
    for _ in range(50):
        outage.lost("pump", ConnectionError("certificate verify failed: certificate has expired (_ssl.c:1002)"))
        outage.lost("waker", ConnectionError("refused"))  # different errors of the first seconds mean the same
        clock.now += 0.1

    assert [line.split("still lost after ")[1] for line in logs()[1:]] == [
        "0 s (its certificate is not trusted: certificate has expired)",
        "2 s (refused)",
    ]


def test_an_outage_without_any_reply_is_logged(logs: Logs, clock: Any) -> None:
    Availability("redis://here").lost("pump", TimeoutError())

    assert logs() == ["WARNING redis://here: lost (no reply in time); trying again until it is back"]


def test_reasons_that_all_differ_do_not_flood_the_log(logs: Logs, clock: Any) -> None:
    outage = Availability("redis://here")
    for number in range(590):
        outage.lost("pump", ConnectionError(f"refused {number}"))
        clock.now += 0.1

    assert len(logs()) <= 5
