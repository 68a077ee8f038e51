"""A cluster of three nodes: queues on each, a slot that moves, a node that dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from redis.crc import key_slot

from schedq import NotAcknowledged, Queue, StoreUnavailable, WorkflowContext
from schedq.model.keys import QUEUES_KEY
from schedq.model.records import ClaimedJob
from tests.doors import in_thread
from tests.proxy import Proxy
from tests.servers import Server
from tests.state import LAYOUT, State
from tests.stories.topologies.cluster import Cluster, ask, hand_over, has_all, info, is_in_step, node_id
from tests.stories.topologies.conftest import MakeLoad
from tests.stories.topologies.load import done
from tests.waiting import until
from tests.worker.crew import Crew

pytestmark = pytest.mark.topologies

OpenQueue = Callable[..., Queue]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three primaries, and a replica of the first."""
    with Cluster(3, replicas=1) as cluster:
        yield cluster


def state(cluster: Cluster, queue: Queue) -> State:
    """The state of a queue on its owner."""
    with cluster.owner(queue.settings.keys.prefix).client() as client:
        return State.of(client, queue.settings.keys)


def test_any_node_leads_to_the_queue_and_the_name_is_on_the_list_of_queues(cluster: Cluster, open_queue: OpenQueue):
    names = [cluster.name_at(node) for node in cluster.nodes[:3]]

    for name, other in zip(names, (*cluster.nodes[1:3], cluster.nodes[0]), strict=True):
        queue = open_queue(name, cluster.url_of(other))
        job_id = queue.enqueue("here")
        assert state(cluster, queue).ids("pending") == [job_id]

    until(lambda: set(names) <= set(ask(cluster.owner(QUEUES_KEY), "SMEMBERS", QUEUES_KEY)))


def test_queues_are_listed_whatever_their_node(cluster: Cluster, open_queue: OpenQueue):
    names = [cluster.name_at(node) for node in cluster.nodes[:3]]
    queues = [open_queue(name, cluster.url_of(cluster.nodes[0])) for name in names]
    for queue in queues:
        queue.enqueue(1)
    until(lambda: set(names) <= set(queues[0].list_queues()))
    with cluster.owner("queue:{theirs}:").client() as client:
        client.lpush("queue:{theirs}:pending", "job")

    assert "theirs" not in queues[0].list_queues()
    assert {*names, "theirs"} <= set(queues[1].list_queues(scan=True))


def test_the_configured_nodes_may_all_disappear_once_the_others_are_known(cluster: Cluster, open_queue: OpenQueue):
    with Proxy(cluster.nodes[1]) as named:
        url = named.url.replace("redis://", "redis+cluster://")
        queue = open_queue(cluster.name_at(cluster.nodes[2]), url, retry_for=0)
        queue.stats()
    for client in cluster.nodes[:3]:
        ask(client, "CLIENT KILL", "TYPE", "normal")
    newcomer = open_queue(queue.name, url, retry_for=0)

    with pytest.raises(StoreUnavailable, match="does not respond"):  # this is how it notices the lost connection
        queue.stats()
    assert queue.stats()["pending_depth"] == 0
    assert newcomer.stats()["pending_depth"] == 0  # queues of one process share what they know of a cluster


def test_queues_that_connect_at_the_same_time_ask_once_who_holds_which_slots(
    cluster: Cluster, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
):
    names = [cluster.name_at(cluster.nodes[n % 3]) for n in range(12)]
    url = cluster.url_of(cluster.nodes[2], cluster.nodes[0])
    monkeypatch.setattr("schedq.connection.topology.monotonic", lambda: 1.0)
    before = slots_asked(cluster)

    depths = [in_thread(lambda name=name: open_queue(name, url).stats()["pending_depth"]) for name in names]

    assert [each.result(60) for each in depths] == [0] * 12
    assert slots_asked(cluster) == before + 1


def slots_asked(cluster: Cluster) -> int:
    """How often the nodes were asked who holds which slots."""
    calls = [info(node, "commandstats") for node in cluster.nodes]
    return sum(
        (found.get("cmdstat_cluster|slots") or found.get("cmdstat_cluster") or {"calls": 0})["calls"] for found in calls
    )


def test_a_configured_node_that_has_become_another_server_does_no_harm(cluster: Cluster, open_queue: OpenQueue):
    with Server(topology="single") as stranger, Server(topology="single", requirepass="theirs") as locked:
        url = cluster.url_of(stranger, locked, cluster.nodes[1])
        for _ in range(5):  # nodes are asked in random order
            assert open_queue(cluster.name_at(cluster.nodes[2]), url, retry_for=0).stats()


# -- a slot moves


def claimed(queue: Queue) -> ClaimedJob:
    job = queue.claim()
    assert job is not None
    return job


def fill(queue: Queue) -> ClaimedJob:
    """A job in every state; returns a claim."""
    for _ in range(3):
        queue.enqueue("to end")
    queue.complete(claimed(queue))
    queue.fail(claimed(queue), "no")
    queue.cancel(queue.enqueue("to cancel", delay=60))
    queue.enqueue("later", delay=60)
    job = claimed(queue)
    queue.enqueue("to run")
    return job


def supply(node: Server, queue: Queue) -> list[str]:
    """Create the missing fixed keys, so that no script waits because of those; returns them."""
    commands = {"list": ("LPUSH", "x"), "zset": ("ZADD", 0, "x"), "hash": ("HSET", "x", "x"), "string": ("SET", "x")}
    made = []
    for name, kind in LAYOUT.items():
        key = queue.settings.keys.prefix + name
        # An entry in one of these counts as one more job.
        if "*" not in name and name not in ("broken", "held") and kind in commands and not ask(node, "EXISTS", key):
            verb, *words = commands[kind]
            ask(node, verb, key, *words)
            made.append(key)
    return made


VERBS: dict[str, Callable[[Queue, ClaimedJob], Any]] = {
    "renew": lambda queue, job: queue.renew(job),
    "complete": lambda queue, job: queue.complete(job),
    "release": lambda queue, job: queue.release(job),
    "cancel": lambda queue, job: queue.cancel(job.id) == "asked",
    "purge": lambda queue, job: queue.purge() == 6,
    "list": lambda queue, job: [one.status for one in queue.list_completed()] == ["completed"],
    "requeue_failed": lambda queue, job: queue.requeue_failed() == 1,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_request_about_a_job_that_has_already_moved_waits_for_the_rest_of_the_slot(
    cluster: Cluster, open_queue: OpenQueue, verb: str
):
    """The jobs are on the target, all keys that the script names on the source: it would stop half-way."""
    source, to = cluster.nodes[1:3]
    queue = open_queue(cluster.name_at(source), cluster.url, max_attempts=1, retry_for=20)
    prefix = queue.settings.keys.prefix
    job = fill(queue)
    made = supply(source, queue)

    cluster.begin_move(prefix, to)
    cluster.carry([key for key in cluster.keys(prefix, source) if ":job:" in key], source, to)
    future = in_thread(VERBS[verb], queue, job)
    time.sleep(0.2)
    assert not future.done(), future
    cluster.carry(cluster.keys(prefix, source), source, to)
    cluster.end_move(prefix, source, to)

    assert future.result(60) is True
    assert cluster.owner(prefix) is to
    for key in made:
        ask(to, "DEL", key)
    after = state(cluster, queue)
    assert bool(after.jobs()) != (verb == "purge")
    assert after.broken_laws() == {}


def move_by_keys(cluster: Cluster, prefix: str, to: Server) -> None:
    """One key at a time, like `redis-cli --cluster reshard`."""
    source = cluster.begin_move(prefix, to)
    while names := cluster.keys(prefix, source, 5):
        cluster.carry(names, source, to)
    cluster.end_move(prefix, source, to)


def move_at_once(cluster: Cluster, prefix: str, to: Server) -> None:
    """As Valkey 9 and later do."""
    source, slot = cluster.owner(prefix), key_slot(prefix.encode())
    if "valkey_version" not in info(source, "server") or info(source, "server")["valkey_version"] < "9":
        pytest.skip("only Valkey 9 and later can move a whole slot")
    ask(source, "CLUSTER MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", node_id(to))
    until(lambda: cluster.owner(prefix) is to, within=60)


@pytest.mark.parametrize("move", [move_by_keys, move_at_once])
def test_a_slot_moves_under_load_and_no_job_is_lost_or_done_twice(
    cluster: Cluster, make_load: MakeLoad, crew: Crew, move: Callable[[Cluster, str, Server], None]
):
    source, to = cluster.nodes[1:3]
    load = make_load(cluster.name_at(source), cluster.url, retry_for=30)
    prefix = load.queue.settings.keys.prefix
    load.send(200)
    post = crew.start(load, debug=False)
    load.start()
    load.grows()

    move(cluster, prefix, to)

    load.grows()
    load.stop()
    done(load, post=post)
    load.check(to)
    twice = {job_id for job_id, count in load.starts.items() if count > 1}
    assert twice == {job.id for job in load.completed() if job.attempts == 2}
    assert max(load.starts.values()) <= 2


def test_an_idle_worker_notices_that_its_queue_has_moved(cluster: Cluster, make_load: MakeLoad, crew: Crew):
    source, to = cluster.nodes[1:3]
    load = make_load(cluster.name_at(source), cluster.url, retry_for=30)
    load.send(1)
    post = crew.start(load, debug=False)
    done(load, post=post)
    move_by_keys(cluster, load.queue.settings.keys.prefix, to)

    load.send(1)
    done(load, post=post)

    load.check(to)
    assert load.starts == dict.fromkeys(load.accepted, 1)


# -- a node dies


def test_a_producer_that_waits_for_the_replica_follows_it_when_it_becomes_the_primary(open_queue: OpenQueue):
    """The old primary keeps the connection, and rejects WAIT in words of its own."""
    with Cluster(3, replicas=1) as cluster:
        first, replica = cluster.nodes[0], cluster.nodes[3]
        queue = open_queue(cluster.name_at(first), cluster.url, durability="replicated", retry_for=1)

        async def produce() -> None:
            async with queue.aio as aio:
                await aio.enqueue("known to work")
                replica.freeze()
                with pytest.raises(NotAcknowledged):
                    await aio.enqueue("not acknowledged")
                replica.thaw()
                assert has_all(first)
                hand_over(replica)
                until(lambda: info(first, "replication").get("master_link_status") == "up")
                cluster.wait_for_peace()

                for _ in range(30):  # a busy machine confirms late
                    with suppress(NotAcknowledged):
                        await aio.enqueue("to the new primary", job_id="new")
                        break

        asyncio.run(produce())

        assert "new" in state(cluster, queue).ids("pending")


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_node_that_was_a_replica_meanwhile_confirms_no_job_that_it_lost(open_queue: OpenQueue, *, is_awaited: bool):
    """Valkey does not end a WAIT when a node of a cluster becomes a replica."""
    with Cluster(1, replicas=1) as cluster, ExitStack() as stack, ThreadPoolExecutor() as pool:
        old, new = cluster.nodes
        queue = open_queue(cluster.name_at(old), cluster.url, durability="replicated", retry_for=30)
        runner = stack.enter_context(asyncio.Runner())

        def enqueue(name: str) -> str:
            return runner.run(queue.aio.enqueue(name, job_id=name)) if is_awaited else queue.enqueue(name, job_id=name)

        enqueue("known-to-work")
        connection = stack.enter_context(new.client()).connection_pool.get_connection()
        new.freeze()
        with old.client() as client:
            client.client_kill_filter(_type="replica")
        waiting = pool.submit(enqueue, "new")
        until(lambda: ask(old, "LLEN", queue.settings.keys.pending) == 2)

        connection.send_command("CLUSTER", "FAILOVER", "TAKEOVER")  # read before the replica asks for what is missing
        new.thaw()
        until(lambda: is_in_step(old))
        ask(new, "SET", f"{{{queue.name}}}other", "x" * 10_000)  # WAIT compares amounts of data
        hand_over(old)

        assert waiting.result(60) == "new"
        cluster.wait_for_peace()
        assert sorted(state(cluster, queue).ids("pending")) == ["known-to-work", "new"]


class Served:
    """A queue that a worker serves."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue


def test_a_workflow_waits_for_jobs_on_another_node(cluster: Cluster, open_queue: OpenQueue, crew: Crew):
    url = cluster.url_of(cluster.nodes[0])
    shop, gpu = (open_queue(cluster.name_at(node), url) for node in cluster.nodes[:2])

    @gpu.task
    def render(frame: int) -> int:
        return frame

    @shop.workflow
    async def film(ctx: WorkflowContext) -> int:
        count = await ctx.call(render, 3)
        return sum([each async for each in await ctx.map(render, range(count))])

    flow = shop.flow("film")
    node = flow.call(render, flow.call(render, 5).result)
    for queue in (shop, gpu):
        crew.start(Served(queue), debug=False)
    jobs = film.enqueue(), flow.start(node)

    assert [job.result(60) for job in jobs] == [3, 5]
    until(lambda: [batch.stands_for for batch in shop.list_batches()] == [gpu.name])  # for the results of the map


def test_a_node_dies_under_load_and_its_replica_takes_over(cluster: Cluster, make_load: MakeLoad, crew: Crew):
    first, *others, replica = cluster.nodes
    loads = [
        make_load(cluster.name_at(node), cluster.url, retry_for=30, visibility_ms=3000) for node in cluster.nodes[:3]
    ]
    post = crew.start(*loads, debug=False)
    for load in loads:
        load.start()
        load.grows()
    loads[0].stop()  # the last writes may be lost with the node, because replicas lag behind
    assert has_all(first)
    first.kill()
    loads[0].start()

    for load in loads:
        load.grows()
        load.stop()
    done(*loads, post=post)
    for load, node in zip(loads, (replica, *others), strict=True):
        load.check(node)
