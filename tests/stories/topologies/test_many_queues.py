"""Many queues on a cluster: connections and threads of a process grow with the nodes, not with the queues."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from schedq import Queue
from schedq.worker.process import run_promoters
from tests.servers import Server
from tests.stories.topologies.cluster import Cluster, ask, has_all
from tests.stories.topologies.conftest import Logs, MakeLoad
from tests.stories.topologies.load import done
from tests.stories.topologies.test_cluster import Served, move_at_once, move_by_keys
from tests.stories.topologies.test_shard_channels import needs_shard_channels
from tests.waiting import until
from tests.worker.crew import Crew, Gate, Post, frozen

pytestmark = pytest.mark.topologies

OpenQueue = Callable[..., Queue]
QUEUES = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four primaries; one that is gone stops only its own slots."""
    with Cluster(4, cluster_require_full_coverage=False) as cluster:
        yield cluster


def clients(node: Server) -> dict[str, dict[str, str]]:
    """The connections of schedq to a node, by id."""
    with node.client() as client:
        found: list[dict[str, str]] = client.client_list()
    return {one["id"]: one for one in found if one["name"].startswith("schedq-")}


def kinds(node: Server) -> Counter[str]:
    """How many connections there are to a node for requests of several queues, for `due` channels, and for markers."""
    found: Counter[str] = Counter()
    for one in clients(node).values():
        found["requests"] += "+" in one["name"]
        found["due"] += one["name"].endswith("-due")
        found["markers"] += "b" in one["flags"]
    return found


def names_at(cluster: Cluster, count: int = QUEUES, nodes: int = 4) -> list[str]:
    """Names of queues, spread evenly."""
    return [cluster.name_at(cluster.nodes[n % nodes]) for n in range(count)]


def lease_ends(node: Server, queue: Queue) -> list[float]:
    """When the leases of a queue end."""
    with node.client() as client:
        return [end for _, end in client.zrange(queue.settings.keys.leases, 0, -1, withscores=True)]


def are_later(nodes: Sequence[Server], queues: Sequence[Queue], ends: Sequence[list[float]]) -> bool:
    """Whether the leases of all queues end later than they did."""
    return all(lease_ends(node, queue) > before for node, queue, before in zip(nodes, queues, ends, strict=True))


def test_a_worker_of_many_queues_has_few_connections_to_each_node_and_few_threads(
    cluster: Cluster, open_queue: OpenQueue, crew: Crew, gate: Gate
):
    queues = [open_queue(name, cluster.url, visibility_ms=3000) for name in names_at(cluster)]
    tasks = [gate.task(queue) for queue in queues]
    threads = threading.active_count()
    crew.start(*map(Served, queues), concurrency=QUEUES)
    jobs = [task.enqueue() for task in tasks]
    gate.until_held(QUEUES)
    nodes = [*cluster.nodes] * (QUEUES // 4)

    until(partial(are_later, nodes, queues, [*map(lease_ends, nodes, queues)]))
    until(lambda: all(kinds(node)["due"] for node in cluster.nodes))
    until(lambda: not any(kinds(node)["markers"] for node in cluster.nodes))  # those from before the jobs have ended
    busy = [kinds(node) for node in cluster.nodes]
    until(lambda: threading.active_count() - threads <= 4)  # what looks for nodes has ended
    gate.open()

    assert [job.result(60) for job in jobs] == ["held"] * QUEUES
    assert busy == [Counter(requests=3, due=1, markers=0)] * 4
    until(lambda: [kinds(node) for node in cluster.nodes] == [Counter(requests=3, due=1, markers=QUEUES // 4)] * 4)


@contextmanager
def promoting(queues: list[Queue]) -> Iterator[None]:
    """Run their promoters in a thread."""
    over = threading.Event()

    async def main() -> None:
        work = asyncio.create_task(run_promoters(queues))
        while not over.is_set():
            assert not work.done(), work
            await asyncio.sleep(0.02)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def test_a_promoter_of_many_queues_has_two_connections_to_each_node(
    cluster: Cluster, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.worker.process._obey", lambda _: None)
    queues = [open_queue(name, cluster.url) for name in names_at(cluster)]
    with promoting([open_queue(queue.name, cluster.url) for queue in queues]):
        until(lambda: all(kinds(node)["due"] for node in cluster.nodes))
        found = [kinds(node) for node in cluster.nodes]
        for queue in queues:
            queue.enqueue("later", delay=0.2)
        until(lambda: all(queue.stats()["pending_depth"] for queue in queues))

    assert found == [Counter(requests=1, due=1, markers=0)] * 4


@pytest.mark.parametrize("move", [move_by_keys, move_at_once])
def test_when_a_slot_moves_under_load_the_connections_of_other_queues_stay(
    cluster: Cluster, make_load: MakeLoad, crew: Crew, move: Callable[[Cluster, str, Server], None]
):
    source, to = cluster.nodes[1:3]
    loads = [make_load(cluster.name_at(node), cluster.url, retry_for=30) for node in (source, source, to)]
    post = crew.start(*loads, debug=False)
    for load in loads:
        load.start()
        load.grows()
    prefix = loads[0].queue.settings.keys.prefix
    shared = f"schedq-{loads[0].queue.name}+2"
    until(lambda: [one["name"] for one in clients(source).values()].count(shared) == 2)
    before = {number for number, one in clients(source).items() if one["name"] == shared}

    move(cluster, prefix, to)

    for load in loads:
        load.grows()
        load.stop()
    assert before <= set(clients(source))
    done(*loads, post=post)
    for load, node in zip(loads, (to, source, to), strict=True):
        load.check(node)
        assert {job_id for job_id, count in load.starts.items() if count > 1} == {
            job.id for job in load.completed() if job.attempts == 2
        }


def test_a_queue_whose_slot_has_moved_is_promoted_at_its_new_node(cluster: Cluster, open_queue: OpenQueue, crew: Crew):
    needs_shard_channels(cluster)  # messages of an older server reach all nodes
    source, to = cluster.nodes[:2]
    queues = [open_queue(cluster.name_at(source), cluster.url, retry_for=20) for _ in range(3)]
    for queue in queues:
        queue.task(name="echo")(lambda word: word)
    crew.start(*map(Served, queues), debug=False)
    heard = [queue.settings.keys.due for queue in queues]
    until(lambda: subscribed(source) >= set(heard))

    move_by_keys(cluster, queues[0].settings.keys.prefix, to)

    until(lambda: subscribed(to) >= {heard[0]} and subscribed(source) >= set(heard[1:]))
    for queue in queues:
        job_id = queue.enqueue({"task": "echo", "args": ["later"]}, delay=0.1)
        assert queue.result(job_id, 60) == "later"


def subscribed(node: Server) -> set[str]:
    """The channels with listeners at a node."""
    return set(ask(node, "PUBSUB CHANNELS"))


def lost(post: Post) -> set[str]:
    """The names of a worker's queues that count as lost."""
    return {each.queue for each in post.worker.health() if each.lost_for_s}


def test_a_node_that_is_gone_stops_only_its_own_queues(
    open_queue: OpenQueue, make_load: MakeLoad, crew: Crew, logs: Logs
):
    with Cluster(3, cluster_require_full_coverage=False, appendonly=True, appendfsync="always") as cluster:
        loads = [make_load(name, cluster.url, retry_for=30) for name in names_at(cluster, 6, 3)]
        gone = {load.queue.name for load in loads[::3]}
        post = crew.start(*loads, debug=False)
        for load in loads:
            load.start()
            load.grows()

        cluster.nodes[0].kill()
        until(lambda: lost(post) == gone)
        for load in loads:
            if load.queue.name not in gone:
                load.grows(50)
        assert lost(post) == gone
        cluster.nodes[0].start()

        for load in loads:
            load.grows()
            load.stop()
        done(*loads, post=post)
        until(lambda: not lost(post))
        told = [line for line in logs() if "lost (" in line or "back after" in line]
        assert [line.partition(": ")[0] for line in told] == [f"WARNING a node of {cluster.url}"] * 2, told
        for load, node in zip(loads, cluster.nodes * 2, strict=True):
            load.check(node)


def test_while_a_node_is_frozen_the_leases_on_other_nodes_are_renewed(
    cluster: Cluster, open_queue: OpenQueue, crew: Crew, gate: Gate
):
    queues = [open_queue(name, cluster.url, visibility_ms=1500) for name in names_at(cluster, 8)]
    jobs = [gate.task(queue).enqueue() for queue in queues]
    crew.start(*map(Served, queues), concurrency=8, debug=False)
    gate.until_held(8)
    nodes, others = zip(*((cluster.nodes[n % 4], queue) for n, queue in enumerate(queues) if n % 4), strict=True)

    with frozen(cluster.nodes[0]):
        for _ in range(4):
            until(partial(are_later, nodes, others, [*map(lease_ends, nodes, others)]))
    gate.open()

    assert [job.result(60) for job in jobs] == ["held"] * 8
    assert [job.record().attempts for n, job in enumerate(jobs) if n % 4] == [1] * 6


def test_when_a_replica_takes_over_all_queues_of_its_node_move_with_it(make_load: MakeLoad, crew: Crew):
    with Cluster(3, replicas=1, cluster_require_full_coverage=False) as cluster:
        first, *others, replica = cluster.nodes
        loads = [make_load(name, cluster.url, retry_for=30, visibility_ms=3000) for name in names_at(cluster, 6, 3)]
        post = crew.start(*loads, debug=False)
        for load in loads:
            load.start()
            load.grows()
        for load in loads[::3]:
            load.stop()
        assert has_all(first)
        first.kill()
        for load in loads[::3]:
            load.start()

        for load in loads:
            load.grows()
            load.stop()
        done(*loads, post=post)
        for load, node in zip(loads, [replica, *others] * 2, strict=True):
            load.check(node)
        assert kinds(replica)["due"] == 1
