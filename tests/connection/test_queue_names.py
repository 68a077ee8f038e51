"""The list of queues, after Redis has lost it."""

from __future__ import annotations

import asyncio

import pytest

from schedq import Queue
from schedq.background.reconnecting_client import Availability
from schedq.background.shared_connections import SharedConnections
from schedq.connection import request as request_module
from schedq.model.keys import QUEUES_KEY
from schedq.worker.process import _Daemon
from tests.conftest import MakeQueue
from tests.servers import Server
from tests.waiting import until


def test_a_process_that_only_enqueues_puts_its_queue_on_the_list_again(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = 100.0

    monkeypatch.setattr(request_module, "monotonic", lambda: Clock.now)
    with Server(topology="single") as server:
        queue = make_queue(at=server)
        queue.enqueue("a")
        queue.redis.flushall()

        for _ in range(16):
            Clock.now += 1
            queue.enqueue("b")

        assert queue.redis.smembers(QUEUES_KEY) == {queue.name}
        queue.redis.flushall()


def test_keeping_the_list_costs_a_plain_job_no_request(make_queue: MakeQueue, server: Server) -> None:
    queue = make_queue()
    queue.enqueue("a")

    with server.requests() as requests:
        queue.enqueue_many(["b"] * 3)
        queue.enqueue("c")

    assert [request.words[0].upper() for request in requests] == ["EVALSHA", "EVALSHA"]


def test_a_client_that_only_reads_never_adds_a_name(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "AGAIN_S", 0.0)
    with Server() as own, own.client() as client, Queue.for_operator("mistyped", redis=own.unix_url) as queue:
        for _ in range(3):
            queue.stats()

        assert client.smembers(QUEUES_KEY) == set()


@pytest.mark.parametrize("topology", ["single", "cluster"])
def test_a_promoter_puts_its_queue_on_the_list_again(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    monkeypatch.setattr("schedq.connection.topology._ENLIST_AGAIN_S", 0.0)
    with Server(topology=topology) as server:
        queue = make_queue(at=server)

        async def main() -> None:
            shared = SharedConnections([queue.queue], Availability("here"))
            daemon = _Daemon(queue.queue, shared)
            await daemon._read_settings()
            await asyncio.to_thread(until, lambda: queue.redis.smembers(QUEUES_KEY))
            daemon.answered.set()
            queue.redis.flushall()
            await daemon._read_settings()
            await asyncio.to_thread(until, lambda: queue.redis.smembers(QUEUES_KEY))
            assert queue.redis.smembers(QUEUES_KEY) == {queue.name}
            await daemon.leave()
            await shared.aclose()

        asyncio.run(main())
