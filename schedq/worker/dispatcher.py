"""Starts claimed jobs in the slots that were reserved for them, and keeps their ends until Redis has heard them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from schedq.errors import SchedqError
from schedq.logs import log
from schedq.model import outcome
from schedq.model.progress import ProgressReport, Reporters
from schedq.model.records import ClaimedJob, Settlement
from schedq.observer import Observer
from schedq.queue.queue import QueueBase
from schedq.transitions import Operation, renew, settle
from schedq.worker.attempt import FINISHED, SETTLED, Attempt, InFlight
from schedq.worker.capacity import Consumer, Reservation
from schedq.worker.executor import Executor
from schedq.worker.worker_context import WorkerContext


class Parcel(NamedTuple):
    """Attempts whose ends are sent together, the batches in which scripts take them, and what to send.

    What the attempts have yet to report is sent first: after their ends it would come too late.
    """

    attempts: Sequence[Attempt] = ()
    batches: Sequence[Sequence[Settlement]] = ()
    operations: Sequence[Operation[Any]] = ()
    reports: Sequence[Sequence[ProgressReport]] = ()


_NOTHING: Final = Parcel()


class Dispatcher:
    """Turns jobs of one queue into attempts, one task each, on the event loop that it is made on.

    Args:
        queue: the application's queue.
        context: of the worker.
        consumer: takes slots for this queue.
        notify: called whenever an attempt is finished.

    Attributes:
        in_flight: what the worker holds of this queue.
        waiting: attempts that are finished, whose ends are to be sent, oldest first.
        is_behind: Redis did not take all that was sent last.
        unknown: what becomes of jobs for which this process has no function.
    """

    def __init__(
        self, queue: QueueBase, context: WorkerContext, consumer: Consumer, notify: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._worker = context
        self._consumer = consumer
        self._notify = notify
        reporters = Reporters()
        self._executor = Executor(queue, context, reporters, self._finished, self._stopped)
        self.in_flight = InFlight(self._executor.interrupt, reporters)
        self.unknown = self._executor.unknown
        self.waiting: list[Attempt] = []
        self.is_behind = False
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()

    def start(self, jobs: Sequence[ClaimedJob], reservation: Reservation, *, is_closed: bool) -> None:
        """Start jobs in reserved slots; what there is no slot for, or no time, goes back to be next in line."""
        queue, worker = self._queue.name, self._worker.worker_id
        for job in jobs:
            attempt = Attempt(job, queue, worker)
            self.in_flight.add(attempt)
            if is_closed or not reservation.fill(suspect=attempt.is_suspect):
                attempt.become(FINISHED)
                attempt.settlement = outcome.released(job)
                self._finished(attempt)
            else:
                # A copy of the context that the worker was run in: no variable gets from one job to another.
                context = self._context.copy()
                task = self._loop.create_task(self._executor.run(attempt), context=context)
                self.in_flight.start(attempt, task)

    def release(self) -> list[asyncio.Task[None]]:
        """Tell all that still runs to end, to be given back; returns the tasks of handlers that have yet to end."""
        self._executor.is_releasing = True
        return self.in_flight.release()

    def release_rest(self) -> None:
        """Give back also what did not end when it was told to."""
        for attempt in self.in_flight.all():
            self._executor.finish(attempt, outcome.released(attempt.job))

    def take(self) -> Parcel:
        """Take out the ends of all attempts that are finished; the caller sends them."""
        if not self.waiting:
            return _NOTHING
        attempts, self.waiting = self.waiting, []
        queue = self._queue.settings
        batches = settle.chunks([it.settlement for it in attempts if it.settlement is not None])
        operations = [settle.settle(queue, batch) for batch in batches]
        if not self.in_flight.reporters.by_token:
            return Parcel(attempts, batches, operations)
        reports = renew.chunks(self.in_flight.reporters.waiting([it.job.claim_token for it in attempts]))
        return Parcel(attempts, batches, [*(renew.renew(queue, (), some) for some in reports), *operations], reports)

    def read(self, parcel: Parcel, answers: list[Any]) -> SchedqError | None:
        """Forget what was settled; what was not looked at, or refused for now, goes out again. Returns the refusal."""
        for some, words in zip(parcel.reports, answers, strict=False):
            self.in_flight.reporters.confirm(some, words)
        sent = iter(parcel.attempts)
        again: list[Attempt] = []
        refused: SchedqError | None = None
        for batch, answer in zip(parcel.batches, answers[len(parcel.reports) :], strict=False):
            words = answer
            if isinstance(answer, SchedqError):
                refused, words = answer, ["REFUSED"] * len(batch)
            for word in words:
                attempt = next(sent)
                if word in ("AGAIN", "REFUSED"):
                    again.append(attempt)
                else:
                    self.in_flight.remove(attempt)
                    attempt.become(SETTLED)
                    if word == "LOST":
                        self._came_too_late(attempt)
        self.waiting = again + self.waiting
        self.is_behind = bool(again)
        return refused

    def _finished(self, attempt: Attempt) -> None:
        """How an attempt ends is decided: Redis is to hear it, unless it was lost."""
        if attempt.settlement is None:
            self.in_flight.remove(attempt)
        else:
            self.waiting.append(attempt)
        self._notify()

    def _stopped(self, attempt: Attempt) -> None:
        """The handler of an attempt has really ended: its slot is free."""
        self.in_flight.stopped(attempt)
        self._worker.capacity.release(self._consumer, suspect=attempt.is_suspect)

    def _came_too_late(self, attempt: Attempt) -> None:
        assert attempt.settlement is not None
        text = "job %s: %s came too late, the job is another's or its data is gone"
        log.warning(text, attempt.job.id, attempt.settlement.move, extra=attempt.fields())
        self._worker.observers.notify(Observer.lease_lost, self._queue.name, attempt.job.id)
