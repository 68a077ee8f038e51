"""Another program's data under a queue's keys: a worker says so, and goes on when it is mended."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, Post, until

LISTS = ("pending", "processing", "completed", "failed", "cancelled", "broken")
ZSETS = ("delayed", "leases", "wake", "workers")
NAMES = (*LISTS, *ZSETS, "stats", "log", "settings", "promoter", "paused", "worker")
SAID = {"pending", "processing", "completed", "failed", "cancelled", "broken", "delayed", "leases"}
"""Without these no script that moves jobs can work; the damage of others shows elsewhere, or nowhere."""


class Case:
    """A worker with a job under way, whose queue gets one key of the wrong type."""

    def __init__(self, name: str, queue: Handle, crew: Crew, gate: Gate) -> None:
        self.name = name
        self.queue = queue

        @queue.task(name="hold")
        async def hold() -> str:
            await gate.passed()
            return "held"

        queue.task(name="ok")(lambda: "ok")
        self.held = queue.enqueue({"task": "hold"})
        self.post: Post = crew.start(queue, debug=False, concurrency=2)
        suffix = f"worker:{self.post.worker.id}" if name == "worker" else name
        self.key = queue.keys.prefix + suffix

    @property
    def is_ready(self) -> bool:
        """The job runs, and the worker has done all that comes with its start."""
        return "processing" in self.queue.places() and bool(self.queue.redis.hlen(self.queue.keys.settings))

    def damage(self) -> None:
        """Put the key aside, and something else in its place."""
        with self.queue.redis.pipeline(transaction=True) as moves:
            if self.queue.redis.exists(self.key):
                moves.rename(self.key, f"aside:{self.key}")
            if self.name == "log":
                moves.sadd(self.key, "not ours")
            else:
                moves.xadd(self.key, {"not": "ours"})
            moves.execute()

    def mend(self) -> None:
        """Put the key back; what came meanwhile, if the damage is gone already, is kept."""
        with self.queue.redis.pipeline(transaction=True) as moves:
            if self.queue.redis.type(self.key) in ("stream", "set"):
                moves.delete(self.key)
                if self.queue.redis.exists(f"aside:{self.key}"):
                    moves.rename(f"aside:{self.key}", self.key)
            moves.delete(f"aside:{self.key}")
            moves.execute()


@pytest.mark.breaks("totals", because="what happens while the totals are of the wrong type is not counted")
def test_a_key_of_the_wrong_type_stops_no_worker(make_queue: MakeQueue, crew: Crew, gate: Gate, logs: Logs) -> None:
    cases = [Case(name, make_queue(visibility_ms=1000), crew, gate) for name in NAMES]
    until(lambda: all(case.is_ready for case in cases))

    for case in cases:
        case.damage()
    time.sleep(1.2)  # all loops meet it
    gate.open()
    for case in cases:
        if case.name == "stats":
            assert case.queue.enqueue({"task": "ok"})  # counts nothing, and serves
    time.sleep(0.3)

    assert [case.name for case in cases if not case.post.is_working] == []
    for case in cases:
        case.mend()
    for case in cases:
        assert case.queue.result(case.held, 5) == "held", case.name
        assert case.queue.result(case.queue.enqueue({"task": "ok"}), 5) == "ok", case.name

    said = Counter(line for line in logs() if "WRONGTYPE" in line)
    assert set(said.values()) == {1}
    for case in cases:
        lines = [line for line in said if f"queue {case.queue.name}: " in line or case.key in line]
        assert bool(lines) or case.name not in SAID, case.name
        assert len(lines) <= 5, lines


def test_a_queue_that_refuses_claims_does_not_keep_the_queues_after_it_waiting(
    make_queue: MakeQueue, crew: Crew, gate: Gate
) -> None:
    first, second = make_queue(), make_queue()
    for queue in (first, second):
        queue.task(name="ok")(lambda: "ok")
    first.redis.set(first.keys.broken, "not a list")
    crew.start(first, second, concurrency=1)
    first_job = first.enqueue({"task": "ok"})

    for _ in range(20):
        assert second.result(second.enqueue({"task": "ok"}), 1) == "ok"
    assert first.places() == {"pending": [first_job]}
    first.redis.delete(first.keys.broken)
    assert first.result(first_job, 3) == "ok"


def test_jobs_whose_ends_are_refused_are_not_followed_by_more(queue: Handle, crew: Crew, logs: Logs) -> None:
    started = []
    queue.task(name="note")(lambda: started.append(1))
    ids = queue.enqueue_many([{"task": "note"}] * 50)
    queue.redis.set(queue.keys.completed, "not a list")
    crew.start(queue, concurrency=2)

    time.sleep(1.2)
    assert 2 <= len(started) <= 6
    assert len([line for line in logs() if f"{queue.name}: the ends of jobs: " in line and "WRONGTYPE" in line]) == 1
    queue.redis.delete(queue.keys.completed)
    assert all(queue.wait(job_id, 5) for job_id in ids)
    assert len(started) == 50
