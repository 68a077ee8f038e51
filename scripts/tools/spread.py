"""Measure how child processes spread CPU-bound work: 4 jobs of 2 s, in threads of a worker and in its child processes.

    python -m scripts.tools.spread [PAIRS]

Both kinds take turns, in nine pairs by default, each in a worker of its own whose processes have started. The figures
are seconds from the first enqueue to the last result, the ratio of each pair, and the load of the machine before it.
The exit code is 1 if the median of the ratios is above the limit, which two idle cores stay far below.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from schedq import Queue
from tests.servers import Server

ROOT: Final = Path(__file__).parents[2]
LIMIT: Final = 0.65
JOBS: Final = 4
SECONDS: Final = 2.0

queue = Queue("spread", redis=os.environ.get("SPREAD_REDIS"))


@queue.task
def burn(seconds: float) -> None:
    """Compute in pure Python for this many seconds of the processor's time."""
    until = time.thread_time() + seconds
    number = 0
    while time.thread_time() < until:
        for _ in range(1000):
            number = (number * 31 + 7) % 1_000_003


def main(arguments: list[str]) -> int:
    """Measure, print a line for each pair, and return the exit code."""
    pairs = int(arguments[0]) if arguments else 9
    ratios = []
    with Server(topology="single") as server:
        for pair in range(pairs):
            load = os.getloadavg()[0]
            took = {pool: _measured(server.url, pool) for pool in ("thread", "process")}
            ratios.append(took["process"] / took["thread"])
            words = f"threads {took['thread']:.2f} s, processes {took['process']:.2f} s, {ratios[-1]:.2f}"
            print(f"pair {pair + 1}: {words}; load before {load:.2f}", flush=True)
    median = statistics.median(ratios)
    print(f"median of {pairs} pairs: {median:.2f}, at most {LIMIT}; {os.cpu_count()} cores")
    return int(median > LIMIT)


def _measured(url: str, pool: str) -> float:
    """Seconds that the jobs take in a worker with this pool."""
    command = [sys.executable, "-m", "schedq", "worker", "scripts.tools.spread:queue", "--pool", pool]
    worker = subprocess.Popen(
        [*command, "--concurrency", str(JOBS), "--quiet"],
        cwd=ROOT,
        env=os.environ | {"SPREAD_REDIS": url, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
    )
    try:
        with Queue("spread", redis=url) as here:
            _run(here, 1.0)  # so that each child has started
            return _run(here, SECONDS)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()


def _run(here: Queue, seconds: float) -> float:
    began = time.monotonic()
    jobs = here.enqueue_many([{"task": "burn", "args": [seconds]} for _ in range(JOBS)])
    for job_id in jobs:
        here.result(job_id, 600)
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
