"""Handlers occupy the event loop's default thread pool: the worker needs none of its threads to reconnect to Redis."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from schedq import Queue
from schedq.embedded import ensure_server, stop_server
from tests.servers import Server
from tests.stories.topologies.sentinel import Sentinel, url_of
from tests.worker.crew import Crew, Gate

pytestmark = pytest.mark.topologies

JOB_STATES = ("a host by its name", "embedded", "Sentinel", "Cluster")


class Place:
    """A way to a server: its URL, and a client that can close its connections."""

    def __init__(self, url: str, client: redis.Redis) -> None:
        self.url = url
        self.client = client

    def cut(self) -> None:
        """Close all connections, as when Redis is restarted."""
        for kind in ("normal", "pubsub"):
            self.client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


@pytest.fixture(params=JOB_STATES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """One of each kind that has to be looked up before a connection can be opened."""
    with ExitStack() as stack:
        if request.param == "embedded":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="schedq-", dir="/tmp")))
            stack.callback(stop_server, folder)
            client = stack.enter_context(redis.Redis(unix_socket_path=ensure_server(folder), protocol=2))
            yield Place(f"embedded://{folder}", client)
            return
        server = stack.enter_context(Server(topology="cluster" if request.param == "Cluster" else "single"))
        url = server.url.replace("127.0.0.1", "localhost")
        if request.param == "Sentinel":
            url = url_of(stack.enter_context(Sentinel(server, 1))).replace("127.0.0.1", "localhost")
        yield Place(url, stack.enter_context(server.client()))


def test_a_worker_reconnects_to_redis_while_handlers_fill_the_loops_threads(place: Place):
    gate, crew = Gate(), Crew()
    with Queue("mail", redis=place.url) as queue:

        @queue.task
        async def hold() -> None:
            await asyncio.gather(*(asyncio.to_thread(gate.wait) for _ in range(40)))

        @queue.task
        async def ok() -> str:
            return "ok"

        @queue.task
        async def ask_for_more() -> list[str]:
            job = await ok.aenqueue()
            assert await job.aresult(60) == "ok"
            return await queue.aio.list_queues()

        post = crew.start(cast(Any, SimpleNamespace(queue=queue)))
        try:
            held = hold.enqueue()
            gate.until_held(5)  # as many threads as the loop has at least

            place.cut()
            first, more = ok.enqueue(), ask_for_more.enqueue()

            assert first.result(60) == "ok"
            assert more.result(60) == ["mail"]
            assert held.status() == "processing"
            gate.open()
            held.result(60)
        finally:
            gate.open()
            crew.end()
        assert post.error is None
        assert post.complaints == []
