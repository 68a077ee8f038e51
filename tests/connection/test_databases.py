"""Databases of one Redis share its channels, but each queue receives only the messages of its own database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from schedq import AsyncQueue, Queue
from schedq.doctor.roles import ROLES
from tests.servers import Server
from tests.waiting import until
from tests.worker.crew import Crew

NAME = "mail"


@pytest.fixture(scope="module")
def alone() -> Iterator[Server]:
    """A server whose databases are used by no other test."""
    with Server(topology="single") as server:
        yield server


@pytest.fixture
def databases(alone: Server) -> Iterator[list[Queue]]:
    """A queue of the same name in each of two databases."""
    with ExitStack() as stack:
        yield [stack.enter_context(Queue(NAME, redis=url(alone, db))) for db in (0, 1)]
    with alone.client() as client:
        client.flushall()


@dataclass
class One:
    """The queue that a worker gets."""

    queue: Any


def url(server: Server, db: int) -> str:
    """The URL of one database."""
    return f"{server.url.rpartition('/')[0]}/{db}"


def done(queue: Queue) -> str:
    """Run one job and return its id."""
    job_id = queue.enqueue("a")
    job = queue.claim(1000)
    assert job is not None
    assert queue.complete(job)
    return job_id


def listeners(server: Server, *queues: Queue) -> list[int]:
    """The number of subscribers to the events of each queue."""
    with server.client() as client:
        return [client.pubsub_numsub(queue.settings.keys.events)[0][1] for queue in queues]


def test_a_queue_receives_only_events_of_its_own_database(databases: list[Queue], alone: Server) -> None:
    events = [queue.events(10) for queue in databases]
    with ThreadPoolExecutor() as pool:
        heard = [pool.submit(next, each) for each in events]
        until(lambda: listeners(alone, *databases) == [1, 1])

        ids = [done(queue) for queue in databases[::-1]][::-1]

        assert [each.result(60)["id"] for each in heard] == ids
    for each in events:
        each.close()


def test_an_asyncio_queue_receives_only_events_of_its_own_database(databases: list[Queue], alone: Server) -> None:
    async def first(db: int) -> str:
        async with AsyncQueue(NAME, redis=url(alone, db)) as queue:
            async for event in queue.events(10):
                return str(event["id"])
        raise AssertionError("nothing was heard")

    async def main() -> None:
        heard = [asyncio.create_task(first(db)) for db in (0, 1)]
        await asyncio.to_thread(until, lambda: listeners(alone, *databases) == [1, 1])
        ids = [await asyncio.to_thread(done, queue) for queue in databases[::-1]][::-1]
        assert await asyncio.wait_for(asyncio.gather(*heard), 60) == ids

    asyncio.run(main())


def test_a_promoter_is_notified_of_due_jobs_of_its_own_database_only(
    databases: list[Queue], alone: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "schedq.background.promoter._LONGEST_SLEEP_S", 30
    )  # so a promoter that wakes earlier was notified
    crew, ran = Crew(), threading.Event()
    heard: list[str] = []
    theirs, ours = databases
    ours.task(name="ok")(ran.set)
    post = crew.start(One(ours))
    try:
        with alone.client() as client:
            until(lambda: client.pubsub_channels("*due") == [ours.settings.keys.due])
            promoter = post.queue_worker.promoter
            assert promoter is not None
            monkeypatch.setattr(promoter, "_wake_at", lambda ms: heard.append(str(ms)))

            theirs.enqueue("later", delay=3600)
            assert client.publish(ours.settings.keys.due, "1") == 1  # it would be received after the other one

        until(lambda: heard)
        assert heard == ["1"]
    finally:
        crew.end()


def test_a_result_is_published_in_its_own_database_only(databases: list[Queue]) -> None:
    for queue in databases:
        queue.enqueue("a", job_id="same")
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(databases[1].wait("same", 30)))
    waiting.start()
    channel = until(lambda: databases[1].get_job("same").fields.get("waiter"))
    assert channel == databases[1].settings.keys.waiter("same") != databases[0].settings.keys.waiter("same")

    job = databases[1].claim(1000)
    assert job is not None
    databases[1].complete(job)
    waiting.join(30)

    assert answers == [True]
    assert databases[0].get_job("same").status == "pending"


@pytest.mark.parametrize("name", ["*", NAME])
def test_access_rules_apply_in_every_database(name: str) -> None:
    with Server(topology="single", users={role.name: role.rules(name) for role in ROLES.values()}) as server:
        place = f"redis://%s@127.0.0.1:{server.port}/1"
        with Queue(NAME, redis=place % "worker:worker") as worker, Queue(NAME, redis=place % "viewer:viewer") as viewer:
            events = viewer.events(10)
            with ThreadPoolExecutor() as pool:
                heard = pool.submit(next, events)
                until(lambda: listeners(server, worker) == [1])
                job_id = done(worker)
                assert heard.result(60)["id"] == job_id
            assert worker.wait(job_id, 60)
            events.close()
