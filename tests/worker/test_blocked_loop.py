"""Handlers that block the worker's event loop: the queue is still served."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from schedq import current_job
from schedq.observer import Observer
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate, beat_every, renew_every

VISIBILITY_MS = 1000


@pytest.fixture
def held(make_queue: MakeQueue, gate: Gate) -> Handle:
    """A second queue, whose jobs block their worker's event loop until the gate is open."""
    queue = make_queue(visibility_ms=30_000)
    renew_every(1, queue)

    @queue.task(name="hold")
    async def hold() -> None:
        gate.wait()

    return queue


def test_a_blocked_holder_of_the_promoter_lease_delays_no_other_worker(
    make_queue: MakeQueue, held: Handle, crew: Crew, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat_every(0.2, monkeypatch)
    queue = make_queue()
    ran: list[str] = []
    queue.task(name="note")(lambda: ran.append("job"))
    queue.every(1)(queue.task(name="tick")(lambda: ran.append("tick")))
    holder = crew.start(queue, held)
    until(lambda: queue.redis.exists(queue.keys.promoter))
    crew.start(queue, promotes=False)
    until(lambda: queue.redis.zcard(queue.keys.workers) == 2)
    job_id = held.enqueue({"task": "hold"})
    gate.until_held()
    blocked_at_ms = int(time.time() * 1000)
    lease_end_ms = queue.redis.zscore(held.keys.leases, job_id)

    due = queue.enqueue({"task": "note"}, delay=0.2)
    ticks = ran.count("tick")

    assert queue.result(due, 60) is None
    until(lambda: ran.count("tick") >= ticks + 2)
    until(lambda: queue.redis.zscore(queue.keys.workers, holder.worker.id) > blocked_at_ms + 1000)
    until(lambda: queue.redis.zscore(held.keys.leases, job_id) > lease_end_ms + 1000)
    assert held.places() == {"processing": [job_id]}


def test_a_dead_workers_job_is_taken_back_even_if_leases_are_shorter_than_the_blocks(
    make_queue: MakeQueue, crew: Crew
) -> None:
    queue = make_queue(visibility_ms=VISIBILITY_MS)
    blocks: list[str] = []
    is_over = threading.Event()

    @queue.task(name="block")
    async def block() -> None:
        blocks.append(current_job().id)
        is_over.wait(1.3)

    dead = queue.enqueue({"task": "block"})
    assert queue.claim(timeout_ms=0)
    queue.redis.zadd(queue.keys.leases, {dead: int(time.time() * 1000) + 3_600_000})
    crew.start(queue, concurrency=1)
    queue.enqueue_many([{"task": "block"}] * 50)
    until(lambda: len(blocks) >= 2)

    queue.redis.zadd(queue.keys.leases, {dead: int(time.time() * 1000)})
    until(lambda: queue.stats()["reclaimed_total"] or len(blocks) >= 15)

    is_over.set()
    assert len(blocks) < 15, "a worker whose loop is blocked again and again never looked"


def thieves(count: int, queue: Handle, make_queue: MakeQueue, crew: Crew, gate: Gate) -> None:
    """Workers that wait for the queue's marker, and whose event loop is blocked by a job of another queue."""
    for _ in range(count):
        other = make_queue()
        begun = threading.Event()

        @other.task(name="hold")
        async def hold(begun: threading.Event = begun) -> None:
            await asyncio.sleep(0.1)  # the worker waits for markers again
            begun.set()
            gate.wait()

        other.enqueue({"task": "hold"})
        crew.start(queue, other, promotes=False)
        assert begun.wait(60)


@pytest.mark.usefixtures("rare_looks")
def test_due_jobs_do_not_wait_for_a_blocked_worker_that_took_their_wake_marker(
    make_queue: MakeQueue, crew: Crew, gate: Gate
) -> None:
    queue = make_queue()
    queue.task(name="ok")(lambda: "ok")
    crew.start(queue)
    until(lambda: queue.redis.exists(queue.keys.promoter))
    thieves(2, queue, make_queue, crew, gate)
    first = queue.enqueue({"task": "ok"})  # from now on the idle worker is the last to get a marker
    assert queue.result(first, 60) == "ok"

    due = queue.enqueue({"task": "ok"}, delay=0.2)

    assert queue.result(due, 20) == "ok"  # on its own the promoter checks every half a minute


def test_a_new_job_waits_at_most_a_second_however_many_blocked_workers_take_its_wake_marker(
    make_queue: MakeQueue, crew: Crew, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.background.promoter._LONGEST_SLEEP_S", 3)  # instead of a second
    queue = make_queue()
    queue.task(name="ok")(lambda: "ok")
    crew.start(queue)
    until(lambda: queue.redis.exists(queue.keys.promoter))
    thieves(5, queue, make_queue, crew, gate)
    first = queue.enqueue({"task": "ok"})  # from now on the idle worker is the last to get a marker
    assert queue.result(first, 60) == "ok"
    began = time.monotonic()

    assert queue.result(queue.enqueue({"task": "ok"}), 60) == "ok"

    assert time.monotonic() - began < 12  # one check of the promoter, and not one for each of them


def test_observers_are_notified_of_background_events_on_the_workers_loop(
    make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat_every(0.05, monkeypatch)
    queue = make_queue(visibility_ms=VISIBILITY_MS)
    queue.task(name="ok")(lambda: None)
    threads: dict[str, set[int]] = {}

    class Ear(Observer):
        def worker_started(self, worker: str, queues: Sequence[str]) -> None:
            self.note("started")

        def beat_answered(self, queue: str) -> None:
            self.note("beat")

        def jobs_reclaimed(self, queue: str, job_ids: Sequence[str]) -> None:
            self.note("reclaimed")

        def note(self, event: str) -> None:
            threads.setdefault(event, set()).add(threading.get_ident())

    queue.enqueue({"task": "ok"})
    assert queue.claim(timeout_ms=0)
    crew.start(queue, observers=[Ear()])
    until(lambda: {"beat", "reclaimed"} <= threads.keys())

    assert threads["beat"] == threads["reclaimed"] == threads["started"]
