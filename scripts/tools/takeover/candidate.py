"""Candidates for the promoter lease as real processes, forked from a preloaded one: 80 start at once.

`python -m scripts.tools.takeover.candidate` reads a line per process: `worker`, `bystander` (a worker with
--no-promoter) or `promoter`, and the Unix time at which it starts; it prints the pid of each. All end with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from typing import Final

from schedq import Queue
from schedq.background import promoter
from schedq.worker import Worker
from schedq.worker.process import run_promoters, run_worker

NAME: Final = "takeover"
_PR_SET_PDEATHSIG: Final = 1


def _queue() -> Queue:
    queue = Queue(NAME)  # uses SCHEDQ_REDIS_URL

    @queue.task
    async def nothing() -> None:
        pass

    return queue


def _be(part: str) -> None:
    """Behave like `schedq worker` or `schedq promoter`; the name in the lease reveals the pid."""
    promoter.new_request = lambda: f"pid-{os.getpid()}"  # type: ignore[attr-defined]
    logging.disable()
    if part == "promoter":
        asyncio.run(run_promoters([_queue()]))
    else:

        async def work() -> None:
            await run_worker(Worker([_queue()], promotes=part == "worker"))

        asyncio.run(work())


def _serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no code waits for the children
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            part, at = line.split()
            time.sleep(max(0.0, float(at) - time.time()))
            _be(part)
            os._exit(0)
        print(pid, flush=True)


class CandidateStarter:
    """Starts candidates of one queue."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.tools.takeover.candidate"],
            env=os.environ | {"SCHEDQ_REDIS_URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, part: str, at: float = 0.0) -> int:
        """Start one process at that Unix time, or at once; returns its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{part} {at}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """Stop it and everything that it has started."""
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    _serve()
