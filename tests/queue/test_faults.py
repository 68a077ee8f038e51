"""What a queue does when its server forgets scripts, disappears, comes back, is slow, or is not the expected one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from schedq import Fixed, NewJob, Queue, StoreUnavailable, UsageError
from schedq.model import outcome
from schedq.model.outcome import Policy
from schedq.transitions import claim, scripts, settle
from tests.conftest import MakeQueue
from tests.doors import Handle, in_thread
from tests.servers import Server
from tests.waiting import until


@pytest.fixture(scope="module")
def durable() -> Iterator[Server]:
    """A separate server that keeps its data when it is killed."""
    with Server(appendonly=True, appendfsync="always") as server:
        yield server


# -- scripts


def test_scripts_may_be_forgotten_at_any_moment(queue: Handle):
    """SCRIPT FLUSH every millisecond, even in the middle of pipelines."""
    done = threading.Event()

    def flush() -> None:
        with queue.server.client() as client:
            while not done.is_set():
                client.script_flush()
                time.sleep(0.001)

    flushing = in_thread(flush)
    try:
        ids = queue.enqueue_many(range(5000))
        jobs = [queue.claim(0) for _ in range(150)]
        assert all(queue.renew(job) for job in jobs)
        assert all(queue.complete(job) for job in jobs)
        assert queue.cancel(ids[-1]) == "cancelled"
    finally:
        done.set()
        flushing.result(60)

    assert queue.places() == {"pending": ids[150:-1], "completed": ids[:150], "cancelled": ids[-1:]}


def test_only_unknown_scripts_are_sent_again_with_their_source(queue: Handle):
    """A pipeline is not a transaction: commands that were carried out must not be carried out twice."""
    queue.enqueue("known")
    queue.claim(0)
    queue.redis.script_flush()

    with queue.server.requests() as sent:
        queue.enqueue_many(range(450))

        queue.enqueue_many(range(150))

    assert [request.name for request in sent] == ["EVALSHA", "EVALSHA", "EVALSHA", "EVAL", "EVAL", "EVAL", "EVALSHA"]
    assert queue.state().totals() == {"enqueued_total": 601}


def test_a_free_place_wakes_a_worker_if_the_server_had_forgotten_how_to_settle(queue: Handle):
    """A worker settles and claims in one request. If only the claim is known, it comes before the place is free."""
    queue.gate("api", key_concurrency=1)
    queue.enqueue_many([NewJob(number, gate="api", key="a") for number in range(3)])
    job = queue.claim(0)
    assert queue.claim(0) is None
    queue.redis.delete(queue.keys.wake)
    queue.redis.script_flush()
    queue.redis.script_load(scripts.load("claim").source)

    end = outcome.succeeded(job, None, Policy(1, Fixed(0), 1000))
    ends = settle.settle(queue.settings, [end], claims=True)
    _, found = queue.execute([ends, claim.claim(queue.settings, "request", 1)])

    assert not found.jobs
    assert queue.redis.exists(queue.keys.wake)


# -- a server that stops and comes back


def test_a_call_waits_for_a_server_that_is_restarted(make_queue: MakeQueue, durable: Server):
    queue = make_queue(at=durable, retry_for=30)
    first = queue.enqueue("before")
    durable.kill()

    future = queue.start("enqueue", "while it is away")
    time.sleep(0.15)
    assert not future.done()
    durable.start()

    second = future.result(60)
    assert queue.places() == {"pending": [first, second]}
    assert queue.claim(0).id == first


def test_a_waiting_claim_continues_after_a_restart(make_queue: MakeQueue, durable: Server):
    queue = make_queue(at=durable, retry_for=30)
    future = queue.start("claim", 60_000)
    time.sleep(0.1)

    durable.kill()
    time.sleep(0.1)
    durable.start()
    job_id = queue.enqueue("after")

    assert future.result(60).id == job_id


def test_a_wait_for_a_result_continues_after_a_restart(make_queue: MakeQueue, durable: Server):
    queue = make_queue(at=durable, retry_for=30)
    job_id = queue.enqueue(1)
    job = queue.claim(0)
    future = queue.start("result", job_id, 60)
    time.sleep(0.1)

    durable.kill()
    time.sleep(0.1)
    durable.start()
    queue.complete(job, "done")

    assert future.result(60) == "done"


def test_events_go_on_after_a_restart(make_queue: MakeQueue, durable: Server):
    queue = make_queue(at=durable, retry_for=30)
    heard = queue.events(timeout=60)
    first = queue.start_iteration(heard)
    time.sleep(0.1)
    durable.kill()
    time.sleep(0.1)
    durable.start()
    until(lambda: queue.redis.pubsub_numsub(queue.keys.events)[0][1])

    job_id = queue.enqueue(1)
    queue.cancel(job_id)

    assert first.result(60)["id"] == job_id
    heard.close()


def test_a_server_that_is_frozen_does_not_freeze_its_callers(make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch):
    """Connections stay open without replies, so the caller's own clock must end the wait."""
    monkeypatch.setattr("schedq.transitions.claim._LONGEST_WAIT_S", 0.5)  # seconds until a waiting claim asks again
    with Server() as frozen:
        queue = make_queue(at=frozen, retry_for=0.2)
        queue.enqueue("before", delay=60)
        waiting = queue.start("claim", 120_000)
        until(lambda: any(client["cmd"] == "bzpopmin" for client in queue.redis.client_list()))
        frozen.freeze()
        try:
            with monkeypatch.context() as patch:
                shorten_replies(queue, patch, 0.3)
                with pytest.raises(StoreUnavailable):
                    queue.enqueue("meanwhile")
                with pytest.raises(StoreUnavailable):
                    waiting.result(60)
        finally:
            frozen.thaw()

        assert queue.stats()["delayed_depth"] == 1


def shorten_replies(queue: Handle, patch: pytest.MonkeyPatch, most_s: float) -> None:
    """Allow replies less time from now on, those on the open connections too."""
    patch.setattr("schedq.connection.endpoint.REPLY_S", most_s)
    patch.setattr("schedq.connection.async_connection.REPLY_S", most_s)
    patch.setattr("schedq.connection.async_connection.AsyncConnection.ask.__defaults__", (most_s,))
    for connection in queue.queue.blocking._client._pool._idle:
        connection._socket._socket.settimeout(most_s)


@pytest.mark.parametrize("verb", ["enqueue", "claim", "stats", "wait", "result"])
def test_patience_has_an_end(make_queue: MakeQueue, verb: str):
    with Server() as away:
        queue = make_queue(at=away, retry_for=0.2)
        queue.stats()
        away.kill()
        began = time.monotonic()

        with pytest.raises(StoreUnavailable, match="does not respond"):
            getattr(queue, verb)(*{"enqueue": [1], "claim": [0]}.get(verb, ["any-job"] if verb != "stats" else []))

        assert time.monotonic() - began < 20


def test_a_server_that_was_never_there_is_named_without_its_password(make_queue: MakeQueue, server: Server):
    queue = make_queue(url="redis://ada:s3cret@127.0.0.1:1/0", retry_for=0)

    with pytest.raises(StoreUnavailable, match=r"redis://127\.0\.0\.1:1/0") as refused:
        queue.stats()

    assert "s3cret" not in str(refused.value) + repr(refused.value) + repr(queue.queue)


def test_a_server_that_is_busy_or_loading_is_waited_for(make_queue: MakeQueue):
    with Server(lua_time_limit=50) as slow:
        queue = make_queue(at=slow, retry_for=30)
        queue.enqueue("known")
        busy = in_thread(_hog, slow)
        time.sleep(0.2)

        job_id = queue.enqueue("asked while busy")

        assert busy.result(60)
        assert queue.state().ids("pending")[-1] == job_id


def _hog(server: Server) -> bool:
    script = (
        "local t = redis.call('TIME') local til = t[1] + t[2] / 1e6 + 0.6 "
        "repeat local n = redis.call('TIME') until n[1] + n[2] / 1e6 > til"
    )
    with server.client() as client:
        client.execute_command("EVAL", script, 0)
    return True


def test_a_primary_that_becomes_a_replica_is_left_for_a_new_connection(make_queue: MakeQueue):
    """Its host name may point to another server by then."""
    with Server(topology="single") as primary:
        queue = make_queue(at=primary, retry_for=30)
        queue.enqueue("known")
        before = _connections(queue)
        queue.redis.replicaof("127.0.0.1", 1)

        future = queue.start("enqueue", "when it may be written")
        until(lambda: not before & _connections(queue))
        queue.redis.replicaof("NO", "ONE")
        future.result(60)

        after = _connections(queue)
        assert after
        assert not before & after


def _connections(queue: Handle) -> set[str]:
    return {client["id"] for client in queue.redis.client_list() if client["name"].startswith("schedq")}


# -- a server that can't be trusted with jobs


def test_a_server_that_may_evict_keys_is_refused_however_often_it_is_asked(make_queue: MakeQueue):
    with Server(maxmemory="100mb", maxmemory_policy="allkeys-lru") as lossy:
        queue = make_queue(at=lossy)

        for _ in range(3):
            with pytest.raises(UsageError, match="allow_eviction"):
                queue.enqueue(1)

        assert queue.state().keys == {}
        assert make_queue(at=lossy, allow_eviction=True).enqueue(1)


@pytest.mark.parametrize("place", ["url", "unix_url"])
def test_a_wrong_password_is_reported_at_once_and_not_shown(make_queue: MakeQueue, place: str):
    with Server(requirepass="right") as guarded:
        queue = make_queue(at=guarded, url=getattr(guarded, place).replace("right", "wr0ng"), retry_for=30)
        began = time.monotonic()

        with pytest.raises(UsageError) as refused:
            queue.enqueue(1)

        assert time.monotonic() - began < 15
        assert "wr0ng" not in str(refused.value)
        assert make_queue(at=guarded).enqueue(1)


@pytest.mark.parametrize("place", ["url", "unix_url"])
def test_a_missing_database_is_reported_at_once(make_queue: MakeQueue, server: Server, place: str):
    url = getattr(server, place).removesuffix("0") + "99"
    queue = make_queue(url=url, retry_for=30)
    began = time.monotonic()

    for verb in (queue.stats, lambda: queue.enqueue(1), lambda: queue.claim(100), lambda: queue.wait("any-job", 1)):
        with pytest.raises(UsageError, match="99.* has no such database"):
            verb()

    assert time.monotonic() - began < 25


def test_a_cluster_node_is_refused(make_queue: MakeQueue):
    with Server(topology="single", cluster_enabled=True) as node:
        queue = make_queue(url=node.url)

        with pytest.raises(UsageError, match=rf"use the URL redis\+cluster://127\.0\.0\.1:{node.port}$"):
            queue.stats()


def test_a_refused_server_leaves_no_connection_behind():
    with Server(maxmemory="100mb", maxmemory_policy="allkeys-lru") as lossy:
        queue = Queue("refused", redis=lossy.unix_url)
        for _ in range(5):
            with pytest.raises(UsageError):
                queue.stats()

        with lossy.client() as client:
            until(lambda: "schedq-refused" not in [entry["name"] for entry in client.client_list()])
        queue.close()
