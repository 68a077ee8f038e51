"""The connections to the nodes of a cluster that several queues share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from schedq import Queue, UsageError
from schedq.connection import resolver
from schedq.connection.node_connections import ClusterConnections, QueueConnection
from schedq.connection.node_pubsub import NodePubSub
from schedq.worker.attempt import Attempt, InFlight
from schedq.worker.cluster_renewal import ClusterRenewal
from schedq.worker.renewal import Held
from tests.servers import Server
from tests.stories.topologies.cluster import Cluster, ask
from tests.stories.topologies.test_cluster import move_by_keys
from tests.stories.topologies.test_many_queues import clients, lease_ends, subscribed
from tests.waiting import until

pytestmark = pytest.mark.topologies

OpenQueue = Callable[..., Queue]
Steps = Callable[[ClusterConnections, Sequence[Queue]], Awaitable[None]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three primaries."""
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def do(cluster: Cluster, open_queue: OpenQueue) -> Callable[..., None]:
    """Takes some steps with connections that two queues on the first node and one on the second share."""

    def run(steps: Steps) -> None:
        nodes = [cluster.nodes[n] for n in (0, 0, 1)]
        queues = [open_queue(cluster.name_at(node), cluster.url) for node in nodes]

        async def main() -> None:
            connections = ClusterConnections(queues[0].address, *(queue.settings for queue in queues))
            await steps(connections, queues)
            await connections.aclose()

        asyncio.run(main())
        until(lambda: [shared(node) for node in cluster.nodes] == [[]] * 3)

    return run


def shared(node: Server) -> list[str]:
    """The connections of several queues to a node."""
    return [number for number, one in clients(node).items() if "+" in one["name"]]


async def stored(line: QueueConnection, queue: Queue, retries: int = 100) -> Any:
    """What Redis replies about a key of a queue, in the end."""
    for _ in range(retries):
        (reply,) = await line.ask([("EXISTS", queue.settings.keys.pending)])
        if not isinstance(reply, Exception):
            break
        await asyncio.sleep(0.05)
    return reply


def test_a_queue_that_has_moved_leaves_the_requests_of_others_alone(cluster: Cluster, do: Callable[..., None]):
    async def steps(connections: ClusterConnections, queues: Sequence[Queue]) -> None:
        lines = [connections.of(queue.settings) for queue in queues]
        for line, queue in zip(lines, queues, strict=True):
            assert await stored(line, queue) == 0
        before = shared(cluster.nodes[0])
        moving = asyncio.create_task(
            asyncio.to_thread(move_by_keys, cluster, queues[0].settings.keys.prefix, cluster.nodes[2])
        )

        while not moving.done() or len(shared(cluster.nodes[2])) == 0:
            found = await asyncio.gather(*(stored(line, queue) for line, queue in zip(lines, queues, strict=True)))
            assert found == [0, 0, 0]

        assert (shared(cluster.nodes[0]), len(shared(cluster.nodes[2]))) == (before, 1)

    do(steps)


def test_the_connection_to_a_node_without_queues_is_closed(cluster: Cluster, do: Callable[..., None]):
    async def steps(connections: ClusterConnections, queues: Sequence[Queue]) -> None:
        line = connections.of(queues[2].settings)
        assert await stored(line, queues[2]) == 0
        await asyncio.to_thread(move_by_keys, cluster, queues[2].settings.keys.prefix, cluster.nodes[2])

        assert await stored(line, queues[2]) == 0

        until(lambda: (shared(cluster.nodes[1]), len(shared(cluster.nodes[2]))) == ([], 1))

    do(steps)


def test_a_connection_that_is_closed_because_of_a_new_password_is_opened_again_for_all(do: Callable[..., None]):
    async def steps(connections: ClusterConnections, queues: Sequence[Queue]) -> None:
        first, second, other = (connections.of(queue.settings) for queue in queues)
        for line, queue in zip((first, second, other), queues, strict=True):
            assert await stored(line, queue) == 0
        waiting = asyncio.create_task(second.ask([("BLPOP", queues[1].settings.keys.pending, 3)]))
        await asyncio.sleep(0)

        first.close("the password was changed")

        with pytest.raises(ConnectionLost, match="the password was changed"):
            await waiting
        assert (second.is_connected, other.is_connected) == (False, True)
        assert [await stored(first, queues[0]), await stored(second, queues[1])] == [0, 0]

    do(steps)


def test_each_queue_checks_the_node_by_itself(cluster: Cluster, open_queue: OpenQueue):
    node = cluster.nodes[0]
    strict, lax = (
        open_queue(cluster.name_at(node), cluster.url, allow_eviction=allows).settings for allows in (False, True)
    )
    ask(node, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")

    async def main() -> None:
        connections = ClusterConnections(open_queue("any", cluster.url).address, strict, lax)
        assert (await connections.of(lax).ask([("EXISTS", lax.keys.pending)])) == [0]
        with pytest.raises(UsageError, match="may evict keys"):
            await connections.of(strict).connect()
        await connections.aclose()

    try:
        asyncio.run(main())
    finally:
        ask(node, "CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_a_node_that_does_not_reply_delays_no_renewals_at_others(cluster: Cluster, open_queue: OpenQueue):
    nodes = cluster.nodes[:2]
    queues = [open_queue(cluster.name_at(node), cluster.url, visibility_ms=1500) for node in nodes]
    held = [Held(queue, InFlight()) for queue in queues]
    for queue, each in zip(queues, held, strict=True):
        queue.enqueue(1)
        job = queue.claim()
        assert job is not None
        each.in_flight.add(Attempt(job))
    ends = [*map(lease_ends, nodes, queues)]
    loop = asyncio.new_event_loop()
    renewal = ClusterRenewal(held, loop)

    async def never(*_: object) -> list[object]:
        return [await asyncio.Event().wait()]

    renewal._lines[queues[0].name].ask = never  # type: ignore[method-assign,assignment]
    renewal._send()
    renewal._close()
    loop.close()

    assert (lease_ends(nodes[0], queues[0]), lease_ends(nodes[1], queues[1]) > ends[1]) == (ends[0], True)


def test_an_attempt_that_reports_keeps_no_other_lease_from_being_renewed(cluster: Cluster, open_queue: OpenQueue):
    node = cluster.nodes[0]
    queues = [open_queue(cluster.name_at(node), cluster.url, visibility_ms=30_000) for _ in range(2)]
    held = [Held(queue, InFlight()) for queue in queues]
    queues[0].enqueue_many([1, 2])
    jobs = [job for job in (queues[0].claim(), queues[0].claim()) if job is not None]
    for job in jobs:
        held[0].in_flight.add(Attempt(job))
    before = lease_ends(node, queues[0])
    loop = asyncio.new_event_loop()
    renewal = ClusterRenewal(held, loop)

    renewal._rest()
    held[0].in_flight.reporters.add(jobs[0].id, jobs[0].claim_token).set_progress(1, None, "")
    renewal._send()
    renewal._due_at = 0
    renewal._send()
    renewal._close()
    loop.close()

    assert len(before) == 2
    assert min(lease_ends(node, queues[0])) > max(before)


def test_queues_that_look_for_their_nodes_at_the_same_time_share_a_thread(
    cluster: Cluster, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
):
    queues = [open_queue(cluster.name_at(cluster.nodes[n % 3]), cluster.url_of(cluster.nodes[2])) for n in range(30)]
    started: list[object] = []
    start = resolver._start

    def counted(function: Callable[[], Any], work: Any) -> None:
        started.append(function)
        start(function, work)

    monkeypatch.setattr(resolver, "_start", counted)
    monkeypatch.setattr("schedq.connection.topology._FRESH_S", -1.0)

    async def main() -> list[Any]:
        return await asyncio.gather(*(queue.address.locate(queue.settings.keys.prefix) for queue in queues))

    found = asyncio.run(main())

    assert [each.settings["port"] for each in found] == [node.port for node in cluster.nodes] * 10
    assert len(started) == 1


def test_a_channel_is_heard_on_a_connection_that_was_opened_after_the_outage(cluster: Cluster, open_queue: OpenQueue):
    queues = [open_queue(cluster.name_at(cluster.nodes[0]), cluster.url) for _ in range(2)]
    channels = [queue.settings.keys.due for queue in queues]
    heard: list[tuple[str, str]] = []

    async def main() -> None:
        pubsub = NodePubSub(queues[0].address, queues[0].settings)
        callbacks = {channel: (lambda text, channel=channel: heard.append((channel, text))) for channel in channels}

        async def listens(channel: str, since: float) -> None:
            heard.clear()
            await pubsub.subscribe(channel, callbacks[channel], since)
            while (channel, "") not in heard:
                await asyncio.sleep(0.01)

        for channel in channels:
            await listens(channel, 0.0)
        (first,) = pubsub._listeners.values()
        await pubsub.unsubscribe(channels[0], callbacks[channels[0]])
        await listens(channels[0], first.opened_at)
        (second,) = pubsub._listeners.values()
        assert second is not first
        while (channels[1], "") not in heard:  # it has moved with the other one
            await asyncio.sleep(0.01)
        await pubsub.unsubscribe(channels[0], callbacks[channels[0]])
        await listens(channels[0], first.opened_at)
        assert [*pubsub._listeners.values()] == [second], "the new connection is not opened again"
        for channel in channels:
            ask(cluster.nodes[0], "PUBLISH", channel, "hello")
        while {(channel, "hello") for channel in channels} - {*heard}:
            await asyncio.sleep(0.01)
        await pubsub.aclose()

    asyncio.run(asyncio.wait_for(main(), 60))
    until(lambda: not subscribed(cluster.nodes[0]))
