"""Queues with jobs in every state, for commands to show and to act on."""

from __future__ import annotations

import time

from schedq import ClaimedJob, Discard, Queue
from schedq.transitions import heartbeat
from tests.inspect.scenes import report


def one_of_each(queue: Queue) -> None:
    """A job in each state, its id the state's name, and figures of the task of the failed one."""
    report(queue, "send", failed=1, run_ms=[3], late_ms=[0])
    queue.enqueue({"n": 1}, job_id="completed")
    queue.complete(claimed(queue), {"sent": True})
    queue.enqueue({"task": "send", "args": ["ada"]}, job_id="failed")
    queue.fail(claimed(queue), Discard("no [bold]such[/bold]\x1b[31m user\nsecond line"))
    queue.enqueue({"n": 3}, job_id="cancelled")
    queue.cancel("cancelled")
    queue.enqueue({"n": 4}, job_id="processing")
    queue.claim(0)
    queue.enqueue({"n": 5}, job_id="pending")
    queue.enqueue({"n": 6}, job_id="delayed", delay=290)


def claimed(queue: Queue) -> ClaimedJob:
    """The next job."""
    job = queue.claim(0)
    assert job is not None
    return job


def failed_jobs(queue: Queue, count: int) -> list[str]:
    """Failed jobs, oldest first."""
    ids = queue.enqueue_many(range(count))
    for _ in ids:
        queue.fail(claimed(queue), Discard("no use"))
    return ids


def beat(queue: Queue, worker_id: str, **facts: str | int) -> None:
    """Let a worker say that it lives."""
    known: dict[str, str | int] = {
        "host": "vm",
        "pid": 7,
        "started_at_ms": int(time.time() * 1000) - 5000,
        "concurrency": 10,
    }
    queue._ask(heartbeat.beat(queue.settings, worker_id, known | facts))
