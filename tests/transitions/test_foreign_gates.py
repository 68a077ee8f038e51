"""Gates in a queue that other programs use: producers that know them, and workers that do not."""

from __future__ import annotations

import pytest

from schedq import Rate
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """A queue with a gate that runs one job of a key at a time."""
    found = make_queue(clock=clock)
    found.gates.set("api", key_concurrency=1)
    return found


def produce(queue: Handle, job_id: str, **fields: str) -> None:
    """Enqueue as the guide does: the record, then its id in `pending`."""
    payload = {"payload": '{"task":"t"}', "status": "pending", "attempts": "0", "enqueued_at_ms": "1"}
    queue.redis.hset(queue.keys.job(job_id), mapping={"id": job_id, **payload, **fields})
    queue.redis.lpush(queue.keys.pending, job_id)


def take(queue: Handle) -> str | None:
    """Claim as the guide does, without a look at any limit."""
    found = queue.redis.lmove(queue.keys.pending, queue.keys.processing, "RIGHT", "LEFT")
    return None if found is None else str(found)


@pytest.mark.breaks("totals", because="the job was made by another program")
def test_a_foreign_producer_enqueues_to_a_gate(queue: Handle):
    for number in range(3):
        produce(queue, f"j{number}", gate="api", key="a")

    first = queue.claim(0)

    assert first.id == "j0"
    assert queue.claim(0) is None, "one of a key at a time"
    queue.complete(first)
    assert queue.claim(0).id == "j1"


def test_a_foreign_worker_does_not_see_what_waits_in_a_gate(queue: Handle):
    gated = [queue.enqueue(number, gate="api", key="a") for number in range(3)]

    assert take(queue) is None

    plain = queue.enqueue("plain")
    assert queue.claim(0).id in (gated[0], plain)


@pytest.mark.breaks("totals", "leases", "ttl", because="other programs made the jobs and ran one")
def test_what_a_foreign_worker_runs_counts_for_the_limit_of_the_queue(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.gates.set(None, concurrency=1)
    produce(queue, "theirs")
    produce(queue, "ours")
    assert take(queue) == "theirs"
    queue.reclaim_stuck()  # notes the lease of the foreign claim

    assert queue.claim(0) is None
    queue.redis.hset(queue.keys.job("theirs"), "status", "completed")
    queue.redis.lrem(queue.keys.processing, 0, "theirs")
    queue.redis.lpush(queue.keys.completed, "theirs")
    clock.pass_time(2)
    queue.promote_due()

    assert queue.claim(0).id == "ours"


@pytest.mark.breaks("totals", because="the jobs were made by another program")
def test_a_gate_that_no_code_defines_has_no_limits_until_one_does(queue: Handle, clock: Clock):
    for number in range(2):
        produce(queue, f"j{number}", gate="later", key="a")
    assert {queue.claim(0).id, queue.claim(0).id} == {"j0", "j1"}

    queue.gates.set("later", key_rate=Rate(1, per=60))
    for number in range(2, 4):
        produce(queue, f"j{number}", gate="later", key="b")

    assert queue.claim(0).id == "j2"
    assert queue.claim(0) is None
    clock.pass_time(60)
    queue.promote_due()
    assert queue.claim(0).id == "j3"
