"""What all parts of one worker have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from schedq.background.observers import LoopObservers, Observers
from schedq.dependencies.lifespan import Resources
from schedq.worker.attempt_report import AttemptReport, JobLines
from schedq.worker.capacity import Capacity
from schedq.worker.siblings import Siblings
from schedq.worker.stuck import StuckSlots
from schedq.worker.threads import ThreadPool


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the queues of one worker share.

    Attributes:
        worker_id: names the worker in Redis and in logs.
        capacity: for jobs, of all queues.
        threads: for plain handlers.
        observers: notified on the worker's loop.
        background_observers: the same ones, to be notified from the background.
        promotes: also do the promoter's part.
        stop: what to do when Redis asks the worker to stop; called in the background.
        answered: called in the background whenever the Redis of one of the queues has answered for the first time.
        stuck: slots whose handlers do not end.
        siblings: other processes of the same parent, if there are any.
        lines: what the log says of jobs that have finished.
        report: tells observers and the log of each attempt.
        resources: the values that live as long as the worker.
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

    def observed_by(self, observers: Observers) -> WorkerContext:
        """The same for a queue that has observers of its own, on the worker's loop."""
        if observers is self.observers:
            return self
        background = LoopObservers(observers, asyncio.get_running_loop())
        report = AttemptReport(self.lines, observers)
        return replace(self, observers=observers, background_observers=background, report=report)
