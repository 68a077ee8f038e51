"""Whether a worker has child processes, and how they find the application."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from schedq.errors import UsageError
from schedq.isolation.child_process import Start
from schedq.isolation.pool import ProcessPool
from schedq.isolation.settings import IsolationSettings
from schedq.queue.middleware import Middleware
from schedq.queue.queue import QueueBase
from schedq.worker import child
from schedq.worker.application import Application, Load, found_in_modules

POOLS: Final = ("thread", "process")
_MACHINERY: Final = tuple(
    f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(multiprocessing.__file__).parent)
)


class Isolation:
    """The child processes of one worker.

    Args:
        worker_id: names the worker.
        queues: its queues.
        middleware: its own middleware.
        size: how many attempts it runs at a time.
        pool: where plain functions run by default, "thread" or "process".
        settings: how children are ended and replaced; None for the defaults.

    Attributes:
        isolates_all: plain functions run in child processes, unless their task says otherwise.

    Raises:
        UsageError: `pool` is invalid.
    """

    def __init__(
        self,
        worker_id: str,
        queues: Sequence[QueueBase],
        middleware: Sequence[Middleware],
        size: int,
        pool: str,
        settings: IsolationSettings | None,
    ) -> None:
        if pool not in POOLS:
            raise UsageError(f"pool must be one of {', '.join(POOLS)}, got {pool!r:.100}")
        self.isolates_all = pool == "process"
        self._worker_id, self._queues, self._middleware, self._size = worker_id, queues, middleware, size
        self._settings = settings or IsolationSettings()
        self._pool: ProcessPool | None = None
        self._is_closed = False

    def open(self) -> ProcessPool | None:
        """Return the pool of child processes, on the worker's loop; None if no task needs it.

        Raises:
            UsageError: a child could not import a queue.
        """
        registries = [queue.registry for queue in self._queues]
        is_needed = self.isolates_all and any(each.has_plain_functions for each in registries)
        if is_needed or any(each.has_isolated_tasks for each in registries):
            self.pool()
        return self._pool

    def pool(self) -> ProcessPool:
        """Return the pool, which is made if no task has needed it yet.

        Raises:
            UsageError: a child could not import a queue, or the worker has stopped.
        """
        if self._pool is None:
            if self._is_closed:
                raise UsageError("the worker's processes have been closed")
            load: Load = self._settings.load or found_in_modules(self._queues, self._middleware)
            application = Application(load, self._worker_id, self._settings.prepare)
            self._pool = ProcessPool(Start(child.main, application, _MACHINERY), self._size, self._settings)
        return self._pool

    async def close(self) -> None:
        """End the children: those that still run something with SIGTERM, and all of them after `kill_after`."""
        self._is_closed = True
        if self._pool is not None:
            await self._pool.close(self._settings.kill_after)
