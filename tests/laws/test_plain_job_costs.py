"""What a plain job costs Redis: every command, including those inside scripts, and every request.

A feature that a job does not use must cost it nothing, so these figures may fall but never rise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from schedq import ClaimedJob, Queue
from tests.servers import TOPOLOGY, Server

pytestmark = pytest.mark.skipif(TOPOLOGY == "cluster", reason="a cluster's client asks where the slots are")

PAYLOAD = {"kind": "email", "to": "ada@example.org"}
Count = dict[str, int]

SCRIPT = {"evalsha": 1, "time": 1}
"""One request, and the one TIME of its script."""
ENQUEUE = SCRIPT | {"exists": 2, "hset": 1, "lpush": 1, "hincrby": 1}
ENQUEUE_DELAYED = SCRIPT | {
    "exists": 3, "llen": 2, "zcard": 1, "hset": 1, "zadd": 1, "zrange": 1, "hincrby": 1, "publish": 1,
}  # fmt: skip
ENQUEUE_100 = SCRIPT | {"exists": 2, "llen": 2, "zcard": 1, "hset": 100, "lpush": 1, "hincrby": 1}
CLAIM = SCRIPT | {
    "exists": 1, "llen": 5, "zcard": 2, "zrange": 1, "lrange": 1, "hmget": 1, "zrem": 1, "lmove": 1, "hset": 1,
    "persist": 1, "zadd": 1,
}  # fmt: skip
RENEW = SCRIPT | {"zcard": 1, "hmget": 1, "zrem": 1, "zadd": 1, "hset": 1}
COMPLETE = SCRIPT | {
    "llen": 8, "zcard": 2, "hmget": 1, "zrem": 1, "lpush": 1, "hset": 1, "hdel": 1, "lrem": 1, "pexpire": 1,
    "hincrby": 1, "publish": 1, "xadd": 1,
}  # fmt: skip
RETRY = SCRIPT | {
    "exists": 2, "llen": 7, "zcard": 2, "zrange": 1, "hmget": 1, "zrem": 1, "zadd": 1, "hset": 1, "hdel": 1,
    "lrem": 1, "hincrby": 1, "publish": 2,
}  # fmt: skip
PROMOTE_100 = SCRIPT | {
    "exists": 1, "llen": 5, "zcard": 3, "zrange": 4, "zrangebyscore": 1, "hmget": 100, "lpush": 1, "hset": 100,
    "zrem": 2, "hincrby": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def queue(own_server: Server) -> Iterator[Queue]:
    with Queue("plain", redis=own_server.unix_url) as queue:
        # Connected, and the server knows every script:
        queue.enqueue(PAYLOAD, delay=3600)
        queue.enqueue_many([PAYLOAD] * 2)
        for end in (queue.complete, queue.fail):
            job = claimed(queue)
            queue.renew(job)
            end(job)
        queue.promote_due()
        queue.purge()
        yield queue


def claimed(queue: Queue) -> ClaimedJob:
    job = queue.claim(timeout_ms=0)
    assert job is not None
    return job


def commands(server: Server, act: Callable[[], object]) -> Count:
    """Calls of each command while `act` runs."""
    with server.client() as client:
        client.config_resetstat()
        act()
        found = client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in found.items()}
    return {name: count for name, count in calls.items() if name not in ("config", "config|resetstat", "info")}


def beyond(found: Count, allowed: Count) -> Count:
    """The calls that are more than allowed."""
    return {name: count for name, count in found.items() if count > allowed.get(name, 0)}


def test_enqueue_costs_no_more_commands(queue: Queue, own_server: Server):
    assert beyond(commands(own_server, lambda: queue.enqueue(PAYLOAD)), ENQUEUE) == {}


def test_enqueue_with_a_delay_costs_no_more_commands(queue: Queue, own_server: Server):
    assert beyond(commands(own_server, lambda: queue.enqueue(PAYLOAD, delay=3600)), ENQUEUE_DELAYED) == {}


def test_enqueue_many_costs_no_more_commands(queue: Queue, own_server: Server):
    assert beyond(commands(own_server, lambda: queue.enqueue_many([PAYLOAD] * 100)), ENQUEUE_100) == {}


def test_claim_costs_no_more_commands(queue: Queue, own_server: Server):
    queue.enqueue(PAYLOAD)

    assert beyond(commands(own_server, lambda: claimed(queue)), CLAIM) == {}


@pytest.mark.parametrize("verb", ["renew", "complete", "fail"])
def test_settling_a_claim_costs_no_more_commands(verb: str, queue: Queue, own_server: Server):
    queue.enqueue(PAYLOAD)
    job = claimed(queue)

    found = commands(own_server, lambda: getattr(queue, verb)(job))

    assert beyond(found, {"renew": RENEW, "complete": COMPLETE, "fail": RETRY}[verb]) == {}


def test_promotion_costs_no_more_commands(queue: Queue, own_server: Server):
    queue.enqueue_many([PAYLOAD] * 100, delay=0.001)
    time.sleep(0.01)

    assert beyond(commands(own_server, queue.promote_due), PROMOTE_100) == {}


def test_a_plain_task_costs_what_its_payload_costs(queue: Queue, own_server: Server):
    @queue.task
    def greet(name: str) -> None: ...

    assert beyond(commands(own_server, lambda: greet.enqueue("Ada")), ENQUEUE) == {}


def test_each_verb_is_one_request(queue: Queue, own_server: Server):
    with own_server.requests() as requests:
        queue.enqueue(PAYLOAD)
        job = claimed(queue)
        queue.renew(job)
        queue.complete(job)
        queue.enqueue_many([PAYLOAD] * 100)

    assert [request.name for request in requests] == ["EVALSHA"] * 5
