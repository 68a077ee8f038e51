"""What a worker holds: attempts under way, known to the event loop and to the renewal thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from schedq.clocks import monotonic
from schedq.escaping import harmless
from schedq.job import ClaimedJob
from schedq.observer import AttemptFacts
from schedq.running import CurrentJob


@dataclass(eq=False, slots=True)
class Attempt:
    """One attempt under way.

    Attributes:
        job: what was claimed.
        queue: name of its queue.
        worker: id of this worker.
        name: of the task, for logs.
        current: what the handler can know of it.
        facts: what those who watch were told of it; None if there are none.
        began_at: when, on the monotonic clock.
        task: runs the handler.
        thread_id: of the thread that a plain handler runs in, while it does.
        has_begun: the task is under way, so that cancelling it reaches the handler.
        is_lost: the lease is another's now; whatever the handler does, nothing is written.
        is_released: the worker goes; the job is given back.
        is_cancelled: somebody asked the job to stop; any end but success makes it a cancelled one.
        is_timed_out: its timeout has struck.
        timeout_s: what it may take, or None.
        is_settled: how it ends has been decided.
    """

    job: ClaimedJob
    queue: str = ""
    worker: str = ""
    name: str = ""
    current: CurrentJob | None = None
    facts: AttemptFacts | None = None
    began_at: float = 0.0
    task: asyncio.Task[None] | None = field(default=None)
    thread_id: int | None = None
    has_begun: bool = False
    is_lost: bool = False
    is_released: bool = False
    is_cancelled: bool = False
    is_timed_out: bool = False
    timeout_s: float | None = None
    is_settled: bool = False

    @property
    def is_suspect(self) -> bool:
        """The job lost two leases or more: it may kill its worker."""
        return self.job.crashes >= 2

    def fields(self, error: str = "") -> dict[str, str | int | float]:
        """What a line of the log about it carries; see `schedq.logs`."""
        found: dict[str, str | int | float] = {
            "job_id": harmless(self.job.id),
            "queue": self.queue,
            "task": harmless(self.name),
            "attempt": self.job.attempts,
            "worker": self.worker,
        }
        if self.began_at:
            found["duration_s"] = round(monotonic() - self.began_at, 6)
        return found | ({"error": error} if error else {})

    def interrupt(self) -> None:
        """Tell the handler to end: an async one is cancelled, a plain one can see it in `current_job()`.

        A task that is cancelled before its first step never runs, and could not say how the attempt ended.
        """
        if self.current is not None:
            self.current.cancel()
        if self.task is not None and self.has_begun:
            self.task.cancel()


class Held:
    """The attempts of one queue in one process. Any thread may use it.

    Args:
        interrupt: tells the handler of an attempt to end, on the worker's loop.
    """

    def __init__(self, interrupt: Callable[[Attempt], None] = Attempt.interrupt) -> None:
        self.interrupt = interrupt
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self.changed = threading.Event()
        self._listeners = [self.changed]

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, attempt: Attempt) -> bool:
        return self._attempts.get(attempt.job.id) is attempt

    def tell(self, event: threading.Event) -> None:
        """Also set this event when an attempt begins; who listens clears it."""
        self._listeners.append(event)

    def add(self, attempt: Attempt) -> None:
        """An attempt began. An older one at the same job is told to end: its lease must have ended unnoticed."""
        with self._lock:
            older = self._attempts.get(attempt.job.id)
            self._attempts[attempt.job.id] = attempt
            for event in self._listeners:
                if not event.is_set():
                    event.set()
        if older is not None and not older.is_settled:
            older.is_lost = True
            self.interrupt(older)

    def remove(self, attempt: Attempt) -> None:
        """An attempt has been settled, or was lost."""
        with self._lock:
            if self._attempts.get(attempt.job.id) is attempt:
                del self._attempts[attempt.job.id]

    def release(self) -> list[asyncio.Task[None]]:
        """Tell all that still runs to end, to be given back; answers the tasks of handlers that have yet to end."""
        running = []
        for attempt in self.all():
            if not attempt.is_settled:
                attempt.is_released = True
                self.interrupt(attempt)
                if attempt.task is not None:
                    running.append(attempt.task)
        return running

    def all(self) -> list[Attempt]:
        """The attempts now."""
        with self._lock:
            return list(self._attempts.values())
