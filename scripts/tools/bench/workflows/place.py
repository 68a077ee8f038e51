"""A server, a client and worker processes for one measurement after another."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from schedq import Queue
from tests.servers import Server
from tests.waiting import until

ROOT: Final = Path(__file__).parents[4]
_STILL_BYTES: Final = 65_536
APP: Final = "scripts.tools.bench.workflows.app"


class Place:
    """A server of its own; `app` is the module with the tasks, whose queue is on that server."""

    def __init__(self, server: Server, app: Any) -> None:
        self.server, self.app = server, app
        self.queue: Queue = app.queue
        self.store = server.client()

    def __enter__(self) -> Self:
        self.store.flushall()
        before = math.inf
        while before - (now := self.used_bytes()) > _STILL_BYTES:  # what the row before used is freed in the background
            before = now
            time.sleep(0.5)
        return self

    def __exit__(self, *_: object) -> None:
        self.store.flushall()

    @contextmanager
    def worker(self, concurrency: int, *more: str) -> Iterator[None]:
        """A worker process that has run a job; `more` are further queues of it, by their names in the module."""
        command = [
            sys.executable,
            "-m",
            "schedq",
            "worker",
            *(f"{APP}:{name}" for name in ("queue", *more)),
            "--concurrency",
            str(concurrency),
            "--quiet",
        ]
        ours = {"BENCH_REDIS": self.server.url, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | ours, stdin=subprocess.DEVNULL)
        try:
            self.app.child.enqueue(0).result(600)  # after what the row has enqueued before
            yield
        finally:
            process.terminate()
            process.wait(60)

    def used_bytes(self) -> int:
        """Redis's memory."""
        return int(self.store.info("memory")["used_memory"])

    def used_us(self) -> float:
        """Microseconds of processor time that Redis has used."""
        cpu: Any = self.store.info("cpu")
        return 1e6 * float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])

    def until_suspended(self, count: int) -> None:
        """Wait until this many runs wait, and nothing else is left."""

        def all_wait() -> bool:
            found = self.queue.stats()
            return found["delayed_depth"] == count and found["pending_depth"] + found["processing_depth"] == 0

        until(all_wait, within=600)

    def requests_a_second(self, seconds: float) -> float:
        """Requests that the server gets."""
        with self.server.requests() as requests:
            time.sleep(seconds)
        return len(requests) / seconds
