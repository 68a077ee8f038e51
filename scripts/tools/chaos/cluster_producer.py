"""Enqueues jobs on all nodes until it is stopped: python -m scripts.tools.chaos.cluster_producer JOBS_PER_SECOND SEED.

Each queue has a thread or, in every other producer, a task of the asyncio client, because a node that is gone must not
stop the jobs of others. A request that failed is sent again with the same ids until it is accepted.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from schedq import NewJob, Queue, StoreUnavailable
from scripts.tools.chaos.cluster_app import queues, recorder
from scripts.tools.chaos.record import now

MOST_WAITING: Final = 150
"""If a queue has more pending jobs than this, the producer pauses before it adds others."""
MEMORY: Final = "memory"
"""The first word in the kind of jobs that are accepted before the replica has them."""
_MEMORY_SHARE: Final = 0.2
_LOOKS_EVERY: Final = 10
_TASKS: Final = {"nap": 12, "doze": 4, "stumble": 4}
_SECONDS: Final = (0.0, 0.0, 0.02, 0.05, 0.2, 0.5)
_LONG_SHARE, _LONG_S = 0.01, 6.0
"""Some jobs take longer than a lease."""
_DELAYS_S: Final = (0.05, 0.3, 1.0, 2.5, 6.0)
_AGAIN_S: Final = 0.1

stopped = threading.Event()
_numbers = itertools.count()


class Request:
    """Some jobs that are enqueued together, and their notes."""

    def __init__(self, draw: random.Random, queue: str) -> None:
        self.jobs: list[NewJob] = []
        self.notes: list[list[Any]] = []
        self.number = next(_numbers)
        for n in range(draw.choice((1, 1, 1, 1, 6))):
            task = draw.choices(list(_TASKS), list(_TASKS.values()))[0]
            seconds = _LONG_S if draw.random() < _LONG_SHARE else draw.choice(_SECONDS)
            delay = draw.choice(_DELAYS_S) if draw.random() < 0.3 else None
            is_safe = draw.random() >= _MEMORY_SHARE
            job_id = f"{queue}-{os.environ['CHAOS_KEY']}-{self.number}-{n}"
            args = [job_id, draw.choice((1, 2)) if task == "stumble" else seconds]
            durability: Any = "replicated" if is_safe else MEMORY
            payload = {"task": task, "args": args}
            self.jobs.append(NewJob(payload, delay=delay, job_id=job_id, durability=durability))
            kind = f"{task}" if is_safe else f"{MEMORY} {task}"
            self.notes.append([job_id, None if delay is None else round(delay * 1000), kind, None])


def _requests(queue: str, rate: float, seed: str) -> Iterator[tuple[float, Request]]:
    """Requests at this rate of jobs, each with the seconds to wait before it is sent."""
    draw = random.Random(f"{seed} {os.environ['CHAOS_KEY']} {queue}")
    due = time.monotonic()
    while not stopped.is_set():
        request = Request(draw, queue)
        due = max(due + len(request.jobs) / rate, time.monotonic() - 1)
        yield max(0.0, due - time.monotonic()), request


def _write(kind: str, request: Request, *fields: Any) -> None:
    assert recorder is not None
    recorder.write(kind, now(), request.number, *fields)


def produce(queue: Queue, rate: float, seed: str) -> None:
    """Enqueue with the blocking client."""
    for wait, request in _requests(queue.name, rate, seed):
        stopped.wait(wait)
        _write("do", request, "enqueue", request.notes)
        while True:
            try:
                _write("did", request, queue.enqueue_many(request.jobs))
                break
            except StoreUnavailable as error:
                _write("repeat", request, type(error).__name__, str(error))
                time.sleep(_AGAIN_S)
        while request.number % _LOOKS_EVERY == 0 and not stopped.is_set():
            try:
                if queue.stats()["pending_depth"] <= MOST_WAITING:
                    break
            except StoreUnavailable:
                pass
            stopped.wait(_AGAIN_S)


async def produce_awaiting(queue: Queue, rate: float, seed: str) -> None:
    """The same with the asyncio client."""
    async with queue.aio as aio:
        for wait, request in _requests(queue.name, rate, seed):
            await asyncio.sleep(wait)
            _write("do", request, "enqueue", request.notes)
            while True:
                try:
                    _write("did", request, await aio.enqueue_many(request.jobs))
                    break
                except StoreUnavailable as error:
                    _write("repeat", request, type(error).__name__, str(error))
                    await asyncio.sleep(_AGAIN_S)
            while request.number % _LOOKS_EVERY == 0 and not stopped.is_set():
                try:
                    if (await aio.stats())["pending_depth"] <= MOST_WAITING:
                        break
                except StoreUnavailable:
                    pass
                await asyncio.sleep(_AGAIN_S)


async def _all_awaiting(rate: float, seed: str) -> None:
    await asyncio.gather(*(produce_awaiting(queue, rate, seed) for queue in queues.values()))


def main() -> None:
    rate, seed = float(sys.argv[1]) / len(queues), sys.argv[2]
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    print("ready", flush=True)
    if os.environ["CHAOS_NAME"].endswith("1"):
        asyncio.run(_all_awaiting(rate, seed))
        return
    threads = [threading.Thread(target=produce, args=(queue, rate, seed)) for queue in queues.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # a longer wait blocks signal handlers on some platforms


if __name__ == "__main__":
    main()
