"""The objects that all parts of one worker share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from schedq.background.observers import LoopObservers, Observers
from schedq.dependencies.lifespan import Resources
from schedq.isolation.pool import ProcessPool
from schedq.model.current_job import Isolated
from schedq.queue.middleware import Middleware
from schedq.worker.attempt_report import AttemptReport, JobLines
from schedq.worker.capacity import Capacity
from schedq.worker.siblings import Siblings
from schedq.worker.stuck import StuckSlots
from schedq.worker.threads import ThreadPool

Only = tuple[str, ...] | None
"""The tasks whose jobs a worker takes from a queue, with '' for payloads that call no task; None for all."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The objects that the queues of one worker share.

    Attributes:
        worker_id: names the worker in Redis and in logs.
        capacity: the slots for jobs of all queues.
        threads: the threads for plain handlers.
        observers: notified on the worker's loop.
        background_observers: the same observers, for notifications from the background thread.
        promotes: the worker also runs the promoter.
        stop: called in the background when Redis asks the worker to stop.
        answered: called in the background when the Redis of one of the queues has replied for the first time.
        stuck: slots whose handlers do not end.
        siblings: other processes of the same parent, or None.
        lines: logs finished jobs.
        report: reports each attempt to observers and to the log.
        resources: the values that live as long as the worker.
        middleware: the worker's own; it runs outside the middleware of its queues.
        processes: the child processes for isolated attempts; None if this process runs every attempt itself.
        isolates_all: plain functions run in child processes, unless their task says otherwise.
        isolated: runs a function in a child process for an async handler; None in a child process.
        measures_timeouts: False in a child process, whose worker ends it when the timeout expires.
    """

    worker_id: str
    capacity: Capacity
    threads: ThreadPool
    observers: Observers
    background_observers: Observers
    promotes: bool
    stop: Callable[[], object]
    answered: Callable[[], object]
    stuck: StuckSlots
    siblings: Siblings | None
    lines: JobLines
    report: AttemptReport
    resources: Resources
    middleware: tuple[Middleware, ...]
    processes: ProcessPool | None = None
    isolates_all: bool = False
    isolated: Isolated | None = None
    measures_timeouts: bool = True

    def observed_by(self, observers: Observers) -> WorkerContext:
        """Return the context for a queue with its own observers. Must be called on the worker's loop."""
        if observers is self.observers:
            return self
        background = LoopObservers(observers, asyncio.get_running_loop())
        report = AttemptReport(self.lines, observers)
        return replace(self, observers=observers, background_observers=background, report=report)
