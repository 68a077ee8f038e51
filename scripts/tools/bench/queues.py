"""What one worker of many queues costs while nothing happens: `python -m scripts.tools.bench.queues`.

Counted are its connections, its threads besides those of handlers, the processor time until it is ready, and, from the
third minute on, its requests per second and its share of a core. In the second row, workflows and limits are in use on
a tenth of the queues: a run waits for a batch of ten jobs, of which nine wait for an hour, because of a rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from schedq import Queue, Rate, WorkflowContext
from schedq.worker.worker import Worker
from tests.servers import Server, announced
from tests.waiting import until

_QUEUES: Final = 500
_SETTLED_S: Final = 150.0
"""A queue rests when it has not been used for a minute, and is swept once in another."""
_WATCHED_S: Final = 120.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def queues_of(url: str, count: int, used: int) -> list[Queue]:
    """The queues; on the first `used` ones, a workflow and a limit."""
    queues = [Queue(f"tenant{number:04}", redis=url) for number in range(count)]
    for number, queue in enumerate(queues):
        queue.task(name="nothing")(_nothing)
        if number < used:
            _use(queue)
    return queues


async def _nothing() -> None: ...


def _use(queue: Queue) -> None:
    @queue.task(name="item", rate=Rate(1, per=3600))
    async def item(number: int) -> None: ...

    @queue.workflow(name="run")
    async def run(ctx: WorkflowContext) -> None:
        await ctx.map(item, range(10))


def work(url: str, count: int, used: int) -> None:
    """Serve the queues in this process."""
    queues = queues_of(url, count, used)
    asyncio.run(Worker(queues, concurrency=100).run())


def measure(count: int, used: int) -> dict[str, Any]:
    """Start a worker, and count what it costs."""
    load = os.getloadavg()[0]
    with Server(topology="single", save="", appendonly=False) as server, server.client() as client:
        for queue in queues_of(server.url, used, used):
            with queue:
                queue.enqueue({"task": "run"})
        with _worker(server, count, used):
            pass  # it has begun the runs
        with _worker(server, count, used) as worker:
            started_s = _worked_s(worker.pid)
            time.sleep(_SETTLED_S)
            connections = sum(one["name"].startswith("schedq-") for one in client.client_list())
            before_s = _worked_s(worker.pid)
            with server.requests() as requests:
                time.sleep(_WATCHED_S)
            spent_s = _worked_s(worker.pid) - before_s
            threads = _threads(worker.pid)
    return {
        "queues": count,
        "with workflows and limits": used,
        "connections": connections,
        "threads": threads - 1,
        "requests/s": round(len(requests) / _WATCHED_S, 1),
        "cpu %": round(100 * spent_s / _WATCHED_S, 2),
        "start cpu s": round(started_s, 2),
        "load": round(load, 2),
    }


@contextmanager
def _worker(server: Server, count: int, used: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker; the context begins when it is idle."""
    words = ["--worker", server.url, str(count), str(used)]
    worker = subprocess.Popen([sys.executable, "-m", "scripts.tools.bench.queues", *words])
    try:
        with server.client() as client:
            until(lambda: client.info("clients")["blocked_clients"], 60)
        yield worker
    finally:
        worker.terminate()
        worker.wait(60)


def _worked_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _threads(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The table."""
    for row in rows:
        yield ", ".join(f"{name} {value}" for name, value in row.items())
    yield "at most 6 connections, 4 threads besides the main one, 110 requests/s and 1.5 s of CPU until it is ready"


def main(argv: Sequence[str]) -> int:
    """Measure and print the table; figures are never an error."""
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.bench.queues", description=__doc__)
    parser.add_argument("--queues", type=int, default=_QUEUES, help=f"how many [{_QUEUES}]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the figures")
    parser.add_argument("--worker", nargs=3, metavar=("URL", "COUNT", "USED"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        url, *numbers = options.worker
        work(url, *map(int, numbers))
        return 0
    announced("scripts.tools.bench.queues")
    rows = [measure(options.queues, used) for used in (0, options.queues // 10)]
    print(*lines(rows), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
