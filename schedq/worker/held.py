"""What a worker holds: attempts under way, known to the event loop and to the renewal thread."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

from schedq.job import ClaimedJob
from schedq.running import CurrentJob


@dataclass(eq=False, slots=True)
class Attempt:
    """One attempt under way.

    Attributes:
        job: what was claimed.
        name: of the task, for logs.
        current: what the handler can know of it.
        task: runs the handler.
        has_begun: the task is under way, so that cancelling it reaches the handler.
        is_lost: the lease is another's now; whatever the handler does, nothing is written.
        is_released: the worker goes; the job is given back.
        is_settled: how it ends has been decided.
    """

    job: ClaimedJob
    name: str = ""
    current: CurrentJob | None = None
    task: asyncio.Task[None] | None = field(default=None)
    has_begun: bool = False
    is_lost: bool = False
    is_released: bool = False
    is_settled: bool = False

    @property
    def is_suspect(self) -> bool:
        """The job lost two leases or more: it may kill its worker."""
        return self.job.crashes >= 2

    def interrupt(self) -> None:
        """Tell the handler to end: an async one is cancelled, a plain one can see it in `current_job()`.

        A task that is cancelled before its first step never runs, and could not say how the attempt ended.
        """
        if self.current is not None:
            self.current.cancel()
        if self.task is not None and self.has_begun:
            self.task.cancel()


class Held:
    """The attempts of one queue in one process. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self.changed = threading.Event()

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, attempt: Attempt) -> bool:
        return self._attempts.get(attempt.job.id) is attempt

    def add(self, attempt: Attempt) -> Attempt | None:
        """An attempt began. Answers an older one at the same job: its lease must have ended unnoticed."""
        with self._lock:
            older = self._attempts.get(attempt.job.id)
            self._attempts[attempt.job.id] = attempt
            if not self.changed.is_set():
                self.changed.set()
            return older

    def remove(self, attempt: Attempt) -> None:
        """An attempt has been settled, or was lost."""
        with self._lock:
            if self._attempts.get(attempt.job.id) is attempt:
                del self._attempts[attempt.job.id]

    def all(self) -> list[Attempt]:
        """The attempts now."""
        with self._lock:
            return list(self._attempts.values())
