"""One run of jobs that use one part of schedq: `python features.py NAME JOBS`; prints CPU seconds and commands as JSON.

The jobs are enqueued one by one and run by a worker in this process, on its event loop. `none` uses no part.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import redis

from schedq import AttemptFacts, CallNext, Depends, EnqueueFacts, Observer, Queue, Task, Worker, current_job

queue = Queue("features", redis=os.environ["PAIRS_REDIS"], completed_history=1000)
store = redis.Redis.from_url(os.environ["PAIRS_REDIS"])
HEADERS: Final = {"tenant": "acme", "request_id": "0f9a5c0e7d7b4c51"}
WHEN: Final = datetime.fromisoformat("2030-01-01T09:00:00+00:00")
Enqueue = Callable[[int], object]


async def quick(number: int) -> None:
    """Does nothing."""


async def dated(number: int, when: datetime) -> None:
    """Does nothing; its argument is no JSON type."""


async def reporting(number: int) -> None:
    """Reports progress once."""
    current_job().progress(number)


async def session() -> AsyncIterator[int]:
    """A dependency with a clean-up."""
    yield 1


async def injected(number: int, *, db: int = Depends(session)) -> None:
    """Does nothing with its dependency."""


async def around(_: AttemptFacts, call_next: CallNext) -> Any:
    """Middleware that changes nothing."""
    return await call_next()


@contextmanager
def context(_: AttemptFacts) -> Iterator[None]:
    """A context manager that changes nothing."""
    yield


async def succeeded(_: AttemptFacts, result: object) -> None:
    """A hook."""


def add_header(job: EnqueueFacts) -> None:
    """A function for `before_enqueue`."""
    job.headers["tenant"] = "acme"


def _task(function: Callable[..., Any] = quick, **options: Any) -> Task[..., Any]:
    return queue.task(**options)(function)


def _with(**options: Any) -> Enqueue:
    return _task().options(**options).enqueue


def _attached(attach: Callable[[Any], object], what: Any) -> Enqueue:
    attach(what)
    return _task().enqueue


def _typed() -> Enqueue:
    task = _task(dated)
    return lambda number: task.enqueue(number, WHEN)


FEATURES: Final[dict[str, Callable[[], Enqueue]]] = {
    "none": lambda: _task().enqueue,
    "headers": lambda: _with(headers=HEADERS),
    "before_enqueue": lambda: _attached(queue.before_enqueue, add_header),
    "expires": lambda: _with(expires=3600),
    "completed_ttl": lambda: _with(completed_ttl=600),
    "typed": _typed,
    "progress": lambda: _task(reporting).enqueue,
    "dependency": lambda: _task(injected).enqueue,
    "observer": lambda: _attached(queue.observe, Observer()),
    "middleware": lambda: _attached(queue.use, around),
    "around": lambda: _attached(queue.around, context),
    "on_success": lambda: _task(on_success=succeeded).enqueue,
    "only": lambda: _task().enqueue,
}
"""For each part: makes the function that enqueues a job."""
WORKERS: Final[dict[str, dict[str, Any]]] = {"only": {"only": ["quick"]}}
"""Options of the worker, for parts that are some."""


def used() -> tuple[float, int]:
    """CPU seconds of this process and of Redis, and commands that clients have sent, so far."""
    cpu: Any = store.info("cpu")
    sent: Any = store.info("stats")
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + cpu["used_cpu_user"] + cpu["used_cpu_sys"], sent["total_commands_processed"]


def main() -> None:
    """Prepare, warm up, measure."""
    name, jobs = sys.argv[1], int(sys.argv[2])
    store.flushall()
    enqueue = FEATURES[name]()
    enqueue(0)
    queue.purge()
    cpu_s, commands = used()
    for number in range(jobs):
        enqueue(number)
    asyncio.run(Worker([queue], burst=True, concurrency=32, **WORKERS.get(name, {})).run())
    cpu_s, commands = used()[0] - cpu_s, used()[1] - commands
    completed = queue.stats()["completed_total"]
    if completed != jobs:
        sys.exit(f"{name}: {completed} of {jobs} jobs are completed")
    print(json.dumps({"cpu_s": cpu_s, "jobs": jobs, "commands": commands}))


if __name__ == "__main__":
    main()
