"""A queue's whole life on a cluster of one node: a short version of the suite.

`SCHEDQ_TEST_TOPOLOGY=cluster scripts/test tests/transitions tests/worker` runs all of it.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio
from click.testing import CliRunner
from redis.crc import key_slot

from schedq import Fixed, Queue, UsageError
from schedq.cli import cli
from schedq.connection.address import Address
from schedq.model.keys import QUEUES_KEY
from schedq.worker.process import run_promoters
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.waiting import until
from tests.worker.crew import Crew

pytestmark = pytest.mark.topologies


@pytest.fixture(scope="module")
def node() -> Iterator[Server]:
    with Server(topology="cluster", requirepass="s3cret") as node:
        yield node


@pytest.fixture
def queue(make_queue: MakeQueue, node: Server) -> Handle:
    return make_queue(at=node, backoff=Fixed(0.05))


def test_a_job_is_claimed_fails_is_retried_and_completes(queue: Handle):
    now = queue.enqueue("now")
    assert queue.fail(queue.claim(0), "no")
    later = queue.enqueue("later", delay=0.2)

    for job_id in (now, later):
        job = queue.claim(60_000)
        assert job.id == job_id
        assert queue.renew(job)
        assert queue.complete(job, "well")

    assert queue.result(now) == "well"
    assert queue.places() == {"completed": [now, later]}
    assert {key_slot(key.encode()) for key in queue.redis.keys(queue.keys.prefix + "*")} == {
        key_slot(queue.keys.prefix.encode())
    }
    until(lambda: queue.redis.sismember(QUEUES_KEY, queue.name))


def test_events_are_received(queue: Handle):
    events = queue.events(5)
    first = queue.start_iteration(events)
    until(lambda: queue.redis.pubsub_numsub(queue.keys.events)[0][1])

    job_id = queue.enqueue("to cancel")
    queue.cancel(job_id)

    assert (first.result(60)["id"], first.result(60)["status"]) == (job_id, "cancelled")
    events.close()


@pytest.mark.parametrize("door", ["blocking"])
def test_a_worker_waits_for_the_markers_of_two_queues_in_different_slots(
    make_queue: MakeQueue, node: Server, crew: Crew
):
    queues = [make_queue(at=node) for _ in range(2)]
    for queue in queues:
        queue.task(name="echo")(lambda word: word)
    crew.start(*queues)
    for queue in queues:  # idle, each on a connection of its own
        until(partial(blocked, queue))

    for queue in queues:
        job_id = queue.enqueue({"task": "echo", "args": ["now"]})
        assert queue.result(job_id, 60) == "now"
        job_id = queue.enqueue({"task": "echo", "args": ["later"]}, delay=0.1)
        assert queue.result(job_id, 60) == "later"


def blocked(queue: Handle) -> list[str]:
    names = [one["name"] for one in queue.redis.client_list() if one["cmd"].lower() == "bzpopmin"]
    return [name for name in names if name == f"schedq-{queue.name}"]


@pytest.mark.parametrize("door", ["blocking"])
def test_a_promoter_without_the_application_moves_due_jobs(queue: Handle):
    queue.enqueue("later", delay=0.2)

    async def promote() -> None:
        work = asyncio.create_task(run_promoters([Queue(queue.name, redis=queue.server.url)]))
        while not queue.stats()["promoted_total"]:
            assert not work.done(), work
            await asyncio.sleep(0.02)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(asyncio.wait_for(promote(), 60))

    assert queue.state().holds("wake", "zset")


@pytest.mark.parametrize("door", ["blocking"])
def test_the_command_line_finds_the_queue(queue: Handle):
    queue.enqueue(1)

    told = CliRunner().invoke(cli, ["stats", queue.name, "--json", "--redis", queue.server.url])

    assert json.loads(told.output)["pending_depth"] == 1


@pytest.mark.parametrize("kind", [redis.RedisCluster, redis.asyncio.RedisCluster])
def test_a_cluster_client_is_used_for_its_address(node: Server, kind: Any):
    async def make() -> Any:
        client = kind(host="127.0.0.1", port=node.port, password="s3cret")
        address = Address(client)
        closing = client.close() if kind is redis.RedisCluster else client.aclose()
        if closing is not None:
            await closing
        return address

    address = asyncio.run(make())

    assert address == Address(node.url)
    assert address.find("any").ask(("PING",)) == ["PONG"]


def test_a_wrong_password_is_refused_at_once_and_not_shown(node: Server):
    with (
        Queue("refused", redis=node.url.replace("s3cret", "wr0ng")) as queue,
        pytest.raises(UsageError, match="rejects the user name or password") as refused,
    ):
        queue.stats()

    assert "wr0ng" not in "".join(traceback.format_exception(refused.value))


def test_a_single_server_behind_the_url_of_a_cluster_is_refused_with_the_right_url():
    with (
        Server(topology="single") as server,
        Queue("refused", redis=f"redis+cluster://127.0.0.1:{server.port}") as queue,
        pytest.raises(
            UsageError, match=rf"is a single server, not a cluster; use the URL redis://127\.0\.0\.1:{server.port}$"
        ),
    ):
        queue.stats()
