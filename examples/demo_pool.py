"""Mock workers for demo_server.py: they claim real jobs, pretend to work, and fail or hang as often as configured."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from schedq import ClaimedJob, Queue, SchedqError

MOST_WORKERS: Final = 50
_CLAIM_MS: Final = 500
"""How long a stopping worker may still wait for a job."""


@dataclass(frozen=True)
class Tuning:
    """How the workers behave. They read it before each job, so a change takes effect with the next one.

    Attributes:
        size: number of workers, 0 to 50.
        latency_ms: duration of a job, 0 to 600,000.
        failure_rate: share of jobs that fail, 0 to 1.
        hang_rate: share of jobs that are abandoned as if their worker had died, 0 to 1.
    """

    size: int = 2
    latency_ms: int = 800
    failure_rate: float = 0.1
    hang_rate: float = 0.0

    def __post_init__(self) -> None:
        for name, value, most in (("size", self.size, MOST_WORKERS), ("latency_ms", self.latency_ms, 600_000)):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise ValueError(f"{name} must be a whole number from 0 to {most}, got {value!r}")
        for name, rate in (("failure_rate", self.failure_rate), ("hang_rate", self.hang_rate)):
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
                raise ValueError(f"{name} must be a number from 0 to 1, got {rate!r}")


class Pool:
    """Threads that work on a queue; they can be started, stopped and re-tuned while running."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._tuning = Tuning()
        self._working: list[_MockWorker] = []
        self._leaving: list[_MockWorker] = []
        self._lock = threading.Lock()
        self._counts = {"completed": 0, "failed": 0, "hung": 0}

    @property
    def tuning(self) -> Tuning:
        """The current tuning."""
        return self._tuning

    def state(self) -> dict[str, Any]:
        """The tuning, the number of running workers (also those finishing a last job), and counters since the start."""
        with self._lock:
            self._leaving = [worker for worker in self._leaving if worker.is_alive()]
            running = len(self._working) + len(self._leaving)
            return {**asdict(self._tuning), "running": running, **self._counts}

    def start(self) -> None:
        """Start or stop workers until their number matches the tuning; surplus workers finish their job first."""
        self._resize(self._tuning.size)

    def stop(self) -> None:
        """Stop all workers after their current job."""
        self._resize(0)

    def tune(self, tuning: Tuning) -> None:
        """Apply a new tuning; if workers are running, adjust their number, too."""
        self._tuning = tuning
        if self._working:
            self.start()

    def close(self) -> None:
        """Stop, and wait until all threads have ended."""
        self.stop()
        for worker in self._leaving:
            worker.join()

    def count(self, what: str) -> None:
        """Increment a counter."""
        with self._lock:
            self._counts[what] += 1

    def _resize(self, size: int) -> None:
        with self._lock:
            while len(self._working) > size:
                worker = self._working.pop()
                worker.leave()
                self._leaving.append(worker)
            while len(self._working) < size:
                worker = _MockWorker(self._queue, self)
                self._working.append(worker)
                worker.start()


class _MockWorker(threading.Thread):
    """Repeatedly claims a job, sleeps, and completes, fails or abandons it."""

    def __init__(self, queue: Queue, pool: Pool) -> None:
        super().__init__(name="mock worker", daemon=True)
        self._queue = queue
        self._pool = pool
        self._leaving = threading.Event()

    def leave(self) -> None:
        """Stop after the current job."""
        self._leaving.set()

    def run(self) -> None:
        while not self._leaving.is_set():
            try:
                job = self._queue.claim(timeout_ms=_CLAIM_MS)
                if job is not None:
                    self._work(job)
            except SchedqError as error:
                print(f"mock worker: {error}")
                self._leaving.wait(1)

    def _work(self, job: ClaimedJob) -> None:
        tuning, dice = self._pool.tuning, random.random()  # noqa: S311
        if dice < tuning.hang_rate:
            # Neither completed, failed nor renewed: the reclaim sweep finds it once the lease has expired.
            self._pool.count("hung")
            return
        if not self._sleep(job, tuning.latency_ms / 1000):
            return
        if dice < tuning.hang_rate + (1 - tuning.hang_rate) * tuning.failure_rate:
            if self._queue.fail(job, "mock failure, as tuned"):
                self._pool.count("failed")
        elif self._queue.complete(job, {"took_ms": tuning.latency_ms}):
            self._pool.count("completed")

    def _sleep(self, job: ClaimedJob, seconds: float) -> bool:
        """Sleep this long while renewing the lease; False if the job now belongs to another worker."""
        part = self._queue.settings.visibility_ms / 3000
        while seconds > part:
            time.sleep(part)
            seconds -= part
            if not self._queue.renew(job):
                return False
        time.sleep(seconds)
        return True
