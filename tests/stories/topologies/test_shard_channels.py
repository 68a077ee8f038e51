"""On a cluster, events stay on the node of their queue, wherever that is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from schedq import Queue
from schedq.connection.client import Client
from schedq.connection.pubsub import PubSub
from schedq.doctor.roles import ROLES, setuser
from tests.servers import Server
from tests.stories.topologies.cluster import Cluster, ask, info
from tests.stories.topologies.test_cluster import Served
from tests.waiting import until
from tests.worker.crew import Crew

pytestmark = pytest.mark.topologies

OpenQueue = Callable[..., Queue]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three primaries."""
    with Cluster(3) as cluster:
        yield cluster


def needs_shard_channels(cluster: Cluster) -> None:
    """Skip a test on a server without them."""
    if info(cluster.nodes[0], "server")["redis_version"] < "7":
        pytest.skip("shard channels came with Redis 7.0")


class Listener:
    """Notes what a channel says, with a client of either kind; '' when it listens, or listens again."""

    def __init__(self, kind: str, queue: Queue, channel: str) -> None:
        self.heard: list[str] = []
        self._channel = channel
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=getattr(self, f"_{kind}"), args=(queue,))
        self._thread.start()

    def _blocking(self, queue: Queue) -> None:
        client = Client(queue.address, queue.settings)
        messages = client.messages(self._channel)
        self._note(next(messages))
        while not self._is_over.is_set():
            self._note(messages.send(0.05))
        messages.close()
        client.close()

    def _asyncio(self, queue: Queue) -> None:
        async def listen() -> None:
            subscription = PubSub(queue.address, queue.settings)
            await subscription.subscribe(self._channel, self._note)
            while not self._is_over.is_set():
                await asyncio.sleep(0.02)
            await subscription.aclose()

        asyncio.run(listen())

    def _note(self, text: str | None) -> None:
        if text is not None:
            self.heard.append(text)

    def hears(self, word: str) -> bool:
        """Whether a message had this word."""
        return any(word in text for text in self.heard)

    def stop(self) -> None:
        """Stop listening."""
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    """Starts listeners, which are stopped after the test."""
    made: list[Listener] = []

    def start(kind: str, queue: Queue, channel: str = "") -> Listener:
        made.append(Listener(kind, queue, channel or queue.settings.keys.events))
        until(lambda: made[-1].heard == [""])
        return made[-1]

    yield start
    for each in made:
        each.stop()


def run_one(queue: Queue) -> str:
    """The id of a job that has run."""
    job_id = queue.enqueue(1)
    job = queue.claim()
    assert job is not None
    queue.complete(job)
    return job_id


def sent(cluster: Cluster) -> int:
    """How many messages the nodes have sent to each other for PUBLISH and SPUBLISH."""
    kinds = ("cluster_stats_messages_publish_sent", "cluster_stats_messages_publishshard_sent")
    return sum(int(ask(node, "CLUSTER INFO").get(kind, 0)) for node in cluster.nodes for kind in kinds)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_an_event_reaches_its_listeners_and_no_other_node(
    cluster: Cluster, open_queue: OpenQueue, listen: Callable[..., Listener], kind: str
):
    needs_shard_channels(cluster)
    queue = open_queue(cluster.name_at(cluster.nodes[1]), cluster.url_of(cluster.nodes[0]))
    listener = listen(kind, queue)
    before = sent(cluster)

    job_id = run_one(queue)

    until(lambda: listener.hears(job_id))
    assert sent(cluster) == before


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_listeners_follow_a_queue_to_another_node(
    cluster: Cluster, open_queue: OpenQueue, listen: Callable[..., Listener], kind: str
):
    queue = open_queue(cluster.name_at(cluster.nodes[1]), cluster.url, retry_for=20)
    prefix = queue.settings.keys.prefix
    listener = listen(kind, queue)
    run_one(queue)

    source = cluster.begin_move(prefix, cluster.nodes[2])
    cluster.carry(cluster.keys(prefix, source), source, cluster.nodes[2])
    cluster.end_move(prefix, source, cluster.nodes[2])

    ids: list[str] = []  # what comes before it listens on the other node is missed

    def is_heard() -> bool:
        ids.append(run_one(queue))
        return any(map(listener.hears, ids))

    until(is_heard)
    assert cluster.owner(prefix) is cluster.nodes[2]


@pytest.mark.parametrize("listens", ["with all rights", "with the same rules"])
@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_user_whose_rules_have_no_shard_channels_is_heard(
    cluster: Cluster, open_queue: OpenQueue, listen: Callable[..., Listener], kind: str, listens: str
):
    needs_shard_channels(cluster)
    node: Server = cluster.nodes[1]
    name = cluster.name_at(node)
    for each in cluster.nodes:
        ask(
            each,
            "ACL SETUSER",
            "older",
            "on",
            ">pw",
            "~*",
            "&*",
            "+@all",
            *("-spublish", "-ssubscribe", "-sunsubscribe"),
        )
    url = cluster.url.replace("redis+cluster://", "redis+cluster://older:pw@")
    listener = listen(kind, open_queue(name, cluster.url if listens == "with all rights" else url))
    before = sent(cluster)

    job_id = run_one(open_queue(name, url))

    until(lambda: listener.hears(job_id))
    assert sent(cluster) > before, "it is heard on the channel that all nodes share"


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_users_with_the_rules_that_the_doctor_prints_use_shard_channels(
    cluster: Cluster, open_queue: OpenQueue, listen: Callable[..., Listener], kind: str
):
    needs_shard_channels(cluster)
    name = cluster.name_at(cluster.nodes[1])
    for node in cluster.nodes:
        for role in ("worker", "viewer"):
            ask(node, *setuser(ROLES[role], name, user=role, tagged=True).split(), ">pw")
    worker, viewer = (cluster.url.replace("://", f"://{role}:pw@") for role in ("worker", "viewer"))
    listener = listen(kind, open_queue(name, viewer))
    before = sent(cluster)

    job_id = run_one(open_queue(name, worker))

    until(lambda: listener.hears(job_id))
    assert sent(cluster) == before


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_queue_on_another_node_hears_that_a_job_of_its_flow_has_ended(
    cluster: Cluster, open_queue: OpenQueue, listen: Callable[..., Listener], crew: Crew, kind: str
):
    shop, gpu = (open_queue(cluster.name_at(node), cluster.url) for node in cluster.nodes[:2])
    listener = listen(kind, shop, shop.settings.keys.due)

    @gpu.task
    def render(frame: int) -> int:
        return frame

    shop.task(name="another")(print)  # because a worker needs one

    flow = shop.flow("film")
    flow.start(flow.call(render, 1))
    for queue in (shop, gpu):
        crew.start(Served(queue), debug=False)

    text = until(lambda: [text for text in listener.heard if text.startswith("ended ")])[0]
    assert gpu.batch(text.partition(" ")[2]).progress().total == 1
