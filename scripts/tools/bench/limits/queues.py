"""Queues of gated and of plain jobs, driven by hand, and what their scripts took in Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from schedq import Queue, Task
from schedq.model.ids import new_request
from schedq.model.outcome import Policy, succeeded
from schedq.model.records import ClaimedJob
from schedq.transitions import claim, settle
from scripts.tools.bench import processes
from tests.doors import Clock
from tests.servers import Server

BATCH: Final = 50
"""Jobs in a claim, and in a settlement."""
_PART: Final = 500


class Driven:
    """A queue whose jobs are enqueued, claimed and settled one call after the other; nothing else runs.

    Args:
        server: where it is.
        name: its name.
        gates: gate → its limits; empty for a queue of plain jobs.
        clock: a clock that only moves by hand, if needed.
    """

    def __init__(
        self, server: Server, name: str, gates: Mapping[str, Mapping[str, Any]], clock: Clock | None = None
    ) -> None:
        self.queue = Queue(name, redis=server.unix_url, clock=clock, max_pending=None)
        self.tasks: list[Task[Any, Any]] = []
        for gate, limits in gates.items():
            defined = self.queue.gate(gate, **limits)
            self.tasks.append(self.queue.task(name=gate, gate=defined, key="key")(_nothing))
        if not gates:
            self.tasks.append(self.queue.task(name="plain")(_nothing))
        self._policy = Policy(3, self.queue.settings.backoff, 262_144)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.close()

    def fill(self, keys: Sequence[str], task: int = 0) -> None:
        """Enqueue a job for each of these keys."""
        for first in range(0, len(keys), _PART):
            self.tasks[task].enqueue_many([((key,), {}) for key in keys[first : first + _PART]])

    def claim(self, count: int = BATCH) -> Sequence[ClaimedJob]:
        """Claim up to `count` jobs by one script."""
        found: Sequence[ClaimedJob] = self.queue._ask(claim.claim(self.queue.settings, new_request(), count)).jobs
        return found

    def settle(self, jobs: Sequence[ClaimedJob]) -> None:
        """Complete jobs by one script, or as many of them as it takes while very many jobs run."""
        items = [succeeded(job, 1, self._policy) for job in jobs]
        words = self.queue._ask(settle.settle(self.queue.settings, items, claims=True))
        assert set(words) <= {"OK", "AGAIN"}, words

    def work(self, count: int = BATCH) -> Sequence[ClaimedJob]:
        """Claim jobs and complete them."""
        jobs = self.claim(count)
        if jobs:
            self.settle(jobs)
        return jobs


def _nothing(key: str) -> None:
    """Never called."""


class Meter:
    """Processor time of the server, so that time in which it waits for a CPU does not count."""

    def __init__(self, server: Server) -> None:
        self._pid = server.pid
        self.taken_ms: dict[str, list[float]] = {}

    def ms(self, kind: str, call: Callable[[], object]) -> float:
        """Milliseconds of one request with one script of this kind: reading it, the script, and writing the reply."""
        before = self._used_ms()
        call()
        took = self._used_ms() - before
        self.taken_ms.setdefault(kind, []).append(took)
        return took

    def _used_ms(self) -> float:
        """Read while the server sleeps: Linux adds up the time of a process when it stops running."""
        while processes.is_running(self._pid):
            time.sleep(0.0002)
        return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[0]) / 1e6
