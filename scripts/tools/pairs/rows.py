"""One run of one row, in a process of its own: `python rows.py NAME JOBS`; prints the CPU seconds as JSON.

It runs with the package of either commit on PYTHONPATH, so it uses only names that both have.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import redis

from schedq import Queue
from schedq.worker import Worker

queue = Queue("pairs", redis=os.environ["PAIRS_REDIS"], completed_history=1000)
store = redis.Redis.from_url(os.environ["PAIRS_REDIS"])


@queue.task
def plain(number: int) -> None:
    """Does nothing, in a thread."""


@queue.task
async def quick(number: int) -> None:
    """Does nothing, on the event loop."""


def one(jobs: int) -> None:
    """Enqueue payloads, one request each."""
    for number in range(jobs):
        queue.enqueue({"number": number})


def task(jobs: int) -> None:
    """Enqueue calls of a task, one request each."""
    for number in range(jobs):
        plain.enqueue(number)


def delay(jobs: int) -> None:
    """Enqueue calls with a delay."""
    later = plain.options(delay=3600)
    for number in range(jobs):
        later.enqueue(number)


def many(jobs: int) -> None:
    """Enqueue payloads in bulk."""
    queue.enqueue_many([{"number": number} for number in range(jobs)])


def many_task(jobs: int) -> None:
    """Enqueue calls of a task in bulk."""
    plain.enqueue_many([((number,), {}) for number in range(jobs)])


def aio(jobs: int) -> None:
    """Enqueue calls from a coroutine, one after the other."""

    async def run() -> None:
        for number in range(jobs):
            await quick.aenqueue(number)
        await queue.aio.aclose()

    asyncio.run(run())


def hand(_: int) -> None:
    """Claim and complete by hand what was enqueued before."""
    while job := queue.claim(timeout_ms=0):
        queue.complete(job)


def promote(_: int) -> None:
    """Promote due jobs."""
    while queue.promote_due():
        pass


def drain(_: int) -> None:
    """Run what was enqueued before in a worker."""
    asyncio.run(Worker([queue], burst=True, concurrency=32).run())


ROWS: dict[str, tuple[Callable[[int], None], Callable[[int], None] | None, int]] = {
    "one": (one, None, 6000),
    "task": (task, None, 6000),
    "delay": (delay, None, 6000),
    "many": (many, None, 40_000),
    "many_task": (many_task, None, 40_000),
    "aio": (aio, None, 5000),
    "hand": (hand, many_task, 4000),
    "promote": (promote, lambda jobs: _due(jobs), 30_000),
    "plain": (drain, many_task, 12_000),
    "async": (drain, lambda jobs: _quick(jobs), 20_000),
}
"""For each row: what is measured, what is prepared before, and the number of jobs."""


def _quick(jobs: int) -> None:
    quick.enqueue_many([((number,), {}) for number in range(jobs)])


def _due(jobs: int) -> None:
    plain.options(delay=0.05).enqueue_many([((number,), {}) for number in range(jobs)])
    time.sleep(0.1)


def used() -> float:
    """CPU seconds so far of this process and of Redis."""
    cpu: Any = store.info("cpu")
    own = resource.getrusage(resource.RUSAGE_SELF)
    return float(own.ru_utime + own.ru_stime + cpu["used_cpu_user"] + cpu["used_cpu_sys"])


def main() -> None:
    """Prepare, warm up, measure."""
    measured, prepare, usual = ROWS[sys.argv[1]]
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else usual
    store.flushall()
    plain.enqueue(0)  # connects, and loads the script
    queue.purge()
    if prepare is not None:
        prepare(jobs)
    before = used()
    measured(jobs)
    cost = used() - before
    found = queue.stats()
    waiting = 0 if measured in (hand, drain) else jobs
    if found["pending_depth"] + found["delayed_depth"] != waiting or found["processing_depth"]:
        sys.exit(f"{sys.argv[1]}: {jobs} jobs, but afterwards {found}")
    print(json.dumps({"cpu_s": cost, "jobs": jobs}))


if __name__ == "__main__":
    main()
