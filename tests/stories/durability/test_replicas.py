"""`durability="replicated"`: when a call returns the job is on the replica, whatever happens to the primary."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from schedq import AsyncQueue, NewJob, NotAcknowledged, QueueFull, StoreUnavailable
from schedq.transitions import scripts
from tests.conftest import MakeQueue
from tests.doors import Handle, Loop
from tests.proxy import Proxy
from tests.servers import Server
from tests.stories.durability.conftest import PATIENCE_S, Pair
from tests.stories.topologies.cluster import ask
from tests.waiting import until


def ids_on(server: Server, queue: Handle) -> set[str]:
    """The ids of all jobs of a queue on a server."""
    with server.client() as client:
        return {key.removeprefix(queue.keys.jobs) for key in client.keys(f"{queue.keys.jobs}*")}


def known_to_work(queue: Handle, payload: str = "known to work", **options: Any) -> str:
    """Enqueue a job until the replica confirms it, which a busy machine may delay for longer than a call waits."""
    job_id = payload.replace(" ", "-")

    def is_confirmed() -> bool:
        try:
            return bool(queue.enqueue(payload, job_id=job_id, **options) == job_id)
        except (NotAcknowledged, StoreUnavailable):
            return False

    until(is_confirmed, within=PATIENCE_S)
    return job_id


def test_a_job_is_on_the_replica_when_its_producers_call_returns(make_queue: MakeQueue, pair: Pair):
    queue = make_queue(at=pair.primary, durability="replicated", retry_for=30)

    for n in range(20):
        assert queue.enqueue(n) in ids_on(pair.replica, queue)
    assert set(queue.enqueue_many(range(1000), delay=60)) <= ids_on(pair.replica, queue)


def test_a_replica_that_does_not_confirm_is_reported_with_the_id_and_sending_again_confirms(
    make_queue: MakeQueue, pair: Pair
):
    queue = make_queue(at=pair.primary, durability="replicated", retry_for=1)
    known_to_work(queue)
    pair.replica.freeze()

    with pytest.raises(NotAcknowledged, match="0 of 1 replicas confirmed it within 1 s") as told:
        queue.enqueue("new")
    (job_id,) = told.value.stored
    assert f"job_id='{job_id}'" in str(told.value)
    assert queue.get_job(job_id).payload == "new"
    pair.replica.thaw()
    again = make_queue(queue.name, at=pair.primary, durability="replicated", retry_for=30)

    assert again.enqueue("new", job_id=job_id) == job_id
    assert job_id in ids_on(pair.replica, queue)
    assert queue.places()["pending"].count(job_id) == 1


def test_sending_a_stored_job_again_waits_also_on_a_connection_that_has_written_nothing(
    make_queue: MakeQueue, pair: Pair
):
    """Valkey replies to WAIT at once on such a connection."""
    queue = make_queue(at=pair.primary)
    stranger = make_queue(queue.name, at=pair.primary, durability="replicated", retry_for=1)
    known_to_work(stranger)
    pair.replica.freeze()
    queue.enqueue("new", job_id="mine")
    fresh = make_queue(queue.name, at=pair.primary, durability="replicated", retry_for=1)

    for sender in (stranger, fresh):
        with pytest.raises(NotAcknowledged):
            sender.enqueue("new", job_id="mine")

    pair.replica.thaw()


def test_sending_a_stored_job_again_is_confirmed_also_while_memory_is_full(make_queue: MakeQueue, pair: Pair):
    queue = make_queue(at=pair.primary, durability="replicated", retry_for=30)
    queue.enqueue("stored", job_id="mine")
    ask(pair.primary, "CONFIG", "SET", "maxmemory", 1)
    before = queue.dump()

    with pytest.raises(QueueFull):
        queue.enqueue("new", job_id="other")
    assert queue.enqueue("stored", job_id="mine") == "mine"
    assert queue.dump() == before


def test_after_a_lost_reply_the_call_waits_again(make_queue: MakeQueue, pair: Pair):
    with Proxy(pair.primary) as proxy:
        queue = make_queue(at=pair.primary, url=proxy.url, durability="replicated", retry_for=30)
        queue.enqueue("known to work")
        proxy.lose_reply(scripts.load("enqueue").sha)

        job_id = queue.enqueue("new")

        assert proxy.faults == 1
        assert job_id in ids_on(pair.replica, queue)
        assert queue.state().totals() == {"enqueued_total": 2}


def test_of_many_jobs_those_stored_are_named(make_queue: MakeQueue, pair: Pair):
    queue = make_queue(at=pair.primary, retry_for=1)
    known = known_to_work(queue, durability="replicated")
    pair.replica.freeze()

    own = [NewJob(n, job_id=f"job-{n}") for n in range(299)]  # sent in several round trips
    with pytest.raises(NotAcknowledged, match=r"150 of 300 jobs are stored on the primary") as told:
        queue.enqueue_many([*own, NewJob("surely", durability="replicated")])

    pair.replica.thaw()
    assert len(told.value.stored) == 150
    assert set(told.value.stored) == ids_on(pair.primary, queue) - {known}


def test_without_a_replica_nothing_is_stored_and_the_error_says_what_to_do(make_queue: MakeQueue, server: Server):
    queue = make_queue(durability="replicated", retry_for=0)

    for call in (lambda: queue.enqueue(1), lambda: queue.enqueue_many([1, 2])):
        with pytest.raises(StoreUnavailable, match=r"has 0 of 1 replicas; nothing was stored: .*durability='memory'"):
            call()

    assert queue.dump() == {}
    assert queue.enqueue(1, durability="memory")


def test_more_replicas_than_there_are_confirm_nothing(make_queue: MakeQueue, pair: Pair):
    queue = make_queue(at=pair.primary, durability="replicated", replicas=2, retry_for=0)

    with pytest.raises(StoreUnavailable, match="has 1 of 2 replicas"):
        queue.enqueue(1)


def test_a_replica_that_connects_in_time_is_waited_for(make_queue: MakeQueue, pair: Pair):
    pair.part()
    queue = make_queue(at=pair.primary, durability="replicated", retry_for=30)
    future = queue.start("enqueue", "new")

    pair.join()

    assert future.result(PATIENCE_S) in ids_on(pair.replica, queue)


def test_after_a_refusal_the_same_queue_asks_again(make_queue: MakeQueue, pair: Pair):
    """Even if the replica was found before, because it may have gone for good."""
    queue = make_queue(at=pair.primary, durability="replicated", retry_for=1)
    known_to_work(queue)
    pair.part()
    with pytest.raises(NotAcknowledged):
        queue.enqueue(2)

    with pytest.raises(StoreUnavailable, match="nothing was stored"):
        queue.enqueue(3)
    pair.join()

    assert known_to_work(queue, "works again") in ids_on(pair.replica, queue)
    assert queue.stats()["pending_depth"] == 3


def test_after_the_promotion_of_the_replica_no_confirmed_job_is_missing(make_queue: MakeQueue, mortal_pair: Pair):
    queue = make_queue(at=mortal_pair.primary, durability="replicated", retry_for=0)
    answered: list[str] = []

    def produce(_: int) -> None:
        with suppress(StoreUnavailable):
            while True:
                with suppress(NotAcknowledged):  # within a second
                    answered.append(queue.enqueue("x" * 500))
                    answered.extend(queue.enqueue_many(range(50), delay=3600))

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(produce, n) for n in range(4)]
        until(lambda: len(answered) > 1000, within=PATIENCE_S)
        mortal_pair.primary.kill()
        for future in futures:
            future.result(PATIENCE_S)
    ask(mortal_pair.replica, "REPLICAOF", "NO", "ONE")

    assert set(answered) - ids_on(mortal_pair.replica, queue) == set()
    survivor = make_queue(queue.name, at=mortal_pair.replica)
    assert survivor.claim(0).id in answered


def test_a_call_waits_once_per_round_trip_and_not_per_job(make_queue: MakeQueue, pair: Pair):
    queue = make_queue(at=pair.primary, retry_for=30)
    queue.enqueue("known to work", durability="replicated")

    with pair.primary.requests() as seen:
        queue.enqueue("one", durability="replicated")
        queue.enqueue_many(range(10_000), durability="replicated")
        queue.enqueue_many(range(1000))
        queue.enqueue("none")

    assert [request.words for request in seen if request.name == "WAIT"] == [("WAIT", "1", "30000")] * 2


def test_jobs_of_many_coroutines_share_the_wait_of_one(pair: Pair, loop: Loop):
    async def gather() -> list[str]:
        async with AsyncQueue("mail", redis=pair.primary.url, durability="replicated", retry_for=30) as queue:
            await queue.enqueue("known to work")
            return await asyncio.gather(*(queue.enqueue(n) for n in range(200)))

    with pair.primary.requests() as seen:
        ids = loop.run(gather())

    waits = [request for request in seen if request.words[:2] == ("WAIT", "1")]
    assert len(set(ids)) == 200
    assert len(waits) < 50


def test_waiting_for_a_replica_delays_no_other_caller(make_queue: MakeQueue, pair: Pair):
    queue = make_queue(at=pair.primary, retry_for=20)
    queue.enqueue("known to work", durability="replicated")
    pair.replica.freeze()
    slow = queue.start("enqueue", "new", durability="replicated")
    until(lambda: int(ask(pair.primary, "INFO")["blocked_clients"]) == 1, within=PATIENCE_S)

    for n in range(10):
        queue.enqueue(n)
    assert not slow.done()

    pair.replica.thaw()
    assert slow.result(PATIENCE_S) in ids_on(pair.replica, queue)
