"""Measure what looks at all queues of a Redis: `schedq stats`, `schedq doctor` and the dashboard's overview.

    python -m scripts.tools.many_queues [QUEUES [TRIES]]

There are 10,000 queues with one job each by default, and as many registered names for which nothing is stored. Each
line has medians of 3 tries: elapsed seconds, CPU seconds of the client, and how often the server read from a
connection, which is about the number of round trips. Stop other work first: the load at the beginning and at the end
is printed.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

import httpx

from schedq.dashboard import create_app
from schedq.model.keys import QUEUES_KEY
from schedq.model.records import Options
from schedq.model.settings import NO_QUEUE, Settings
from schedq.queue.queue import Queue
from schedq.transitions import unwrap
from schedq.transitions.enqueue import enqueue, prepare
from tests.servers import Server

_PAGE: Final = 200


def main(arguments: list[str]) -> int:
    """Measure, print the table, and return the exit code."""
    queues, tries = (*map(int, arguments), *(10_000, 3)[len(arguments) :])
    with Server() as server, server.client() as client:
        fill(server, queues)
        print(f"{queues:,} queues with a job, {queues:,} names without data; load {os.getloadavg()[0]:.1f}", flush=True)
        for what, look in looks(server):
            found = []
            for _ in range(tries):
                reads = client.info("stats")["total_reads_processed"]
                found.append((*measured(look), client.info("stats")["total_reads_processed"] - reads - 1))
            took, worked, read = (median(each) for each in zip(*found, strict=True))
            print(f"{what:24} {took:6.2f} s, {worked:6.2f} s of CPU, {read:9,.0f} reads", flush=True)
        print(f"load {os.getloadavg()[0]:.1f}")
    return 0


def fill(server: Server, count: int) -> None:
    """Make the queues, and the names without data."""
    with Queue.for_operator(NO_QUEUE, redis=server.unix_url) as any_queue, server.client() as client:
        for first in range(0, count, _PAGE):
            numbers = range(first, min(first + _PAGE, count))
            queues = [Settings(f"tenant{n:06}x") for n in numbers]
            jobs = [enqueue(queue, prepare(queue, {"task": "send"}, Options())) for queue in queues]
            for reply in any_queue._client.execute(jobs):
                unwrap(reply)
            client.sadd(QUEUES_KEY, *[queue.name for queue in queues], *[f"gone{n:06}x" for n in numbers])


def looks(server: Server) -> Iterator[tuple[str, Callable[[], None]]]:
    """What is measured, by name."""
    for words in ("stats", "stats --json", "doctor"):
        yield f"schedq {words}", lambda words=words: _command(server, words)  # type: ignore[misc]

    async def overview() -> None:
        app = create_app(server.unix_url, allow_hosts=["localhost"])
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            reply = await http.get("/", headers={"accept": "text/html"})
            reply.raise_for_status()
            assert "tenant000000x" in reply.text

    yield "the dashboard's overview", lambda: asyncio.run(overview())


def _command(server: Server, words: str) -> None:
    environment = os.environ | {"SCHEDQ_REDIS_URL": server.unix_url, "COLUMNS": "120"}
    command = [sys.executable, "-m", "schedq", *words.split()]
    found = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    assert found.returncode in (0, 1), found


def measured(look: Callable[[], None]) -> tuple[float, float]:
    """Elapsed and CPU seconds, of this process and its children."""
    began, worked = time.perf_counter(), _worked_s()
    look()
    return time.perf_counter() - began, _worked_s() - worked


def _worked_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(it.ru_utime + it.ru_stime for it in used)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
