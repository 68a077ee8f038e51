"""Starts claimed jobs in their reserved slots, and keeps finished attempts until Redis has settled them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from schedq.errors import SchedqError
from schedq.logs import log
from schedq.model import current_job, outcome
from schedq.model.progress import ProgressReport, Reporters
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.times import monotonic
from schedq.observer import Observer
from schedq.queue.queue import QueueBase
from schedq.transitions import Operation, renew, settle
from schedq.worker.attempt import FINISHED, SETTLED, Attempt, InFlight
from schedq.worker.capacity import Consumer, Reservation
from schedq.worker.executor import Executor
from schedq.worker.task_counts import TaskCounts
from schedq.worker.worker_context import WorkerContext


class Parcel(NamedTuple):
    """Attempts that are settled together, the batches in which scripts accept them, and the operations to send.

    Unsent progress reports of these attempts are sent first: after the settlement they would be refused.
    """

    attempts: Sequence[Attempt] = ()
    batches: Sequence[Sequence[Settlement]] = ()
    operations: Sequence[Operation[Any]] = ()
    reports: Sequence[Sequence[ProgressReport]] = ()


_NOTHING: Final = Parcel()


class Dispatcher:
    """Runs each job of one queue as an attempt in its own task, on the event loop where this object is created.

    Args:
        queue: the application's queue.
        context: the context of the worker.
        consumer: the fetcher, for which the slots were reserved.
        notify: called whenever an attempt has finished.

    Attributes:
        in_flight: the attempts of this queue that the worker holds.
        waiting: finished attempts whose settlements have not been sent, oldest first.
        is_behind: Redis did not accept all settlements that were sent last.
        frees_places: an attempt that waits has a place in a gate, so its end may let another job start.
        unknown: handles jobs for which this process has no function.
        counts: counts the attempts by task.
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
        self.frees_places = False
        self.counts = TaskCounts()
        self._context = contextvars.copy_context()
        if context.isolated is not None:
            self._context.run(current_job.isolated.set, context.isolated)
        self._loop = asyncio.get_running_loop()

    def start(self, jobs: Sequence[ClaimedJob], reservation: Reservation, *, is_closed: bool) -> None:
        """Start jobs in reserved slots; release those without a slot, or all of them if the fetcher is closed."""
        queue, worker = self._queue.name, self._worker.worker_id
        for job in jobs:
            attempt = Attempt(job, queue, worker, is_suspect=job.crashes >= 2)
            self.in_flight.add(attempt)
            if is_closed or not reservation.fill(suspect=attempt.is_suspect):
                attempt.become(FINISHED)
                attempt.settlement = outcome.released(job)
                self._finished(attempt)
            else:
                # Each job gets a copy of the worker's context, so that no variable leaks from one job to another.
                context = self._context.copy()
                task = self._loop.create_task(self._executor.run(attempt), context=context)
                self.in_flight.start(attempt, task)

    def release(self) -> list[asyncio.Task[None]]:
        """Interrupt all running handlers so that their jobs are released; return the tasks that have not ended."""
        self._executor.is_releasing = True
        return self.in_flight.release()

    def release_rest(self) -> None:
        """Release the jobs of handlers that did not end when they were interrupted."""
        for attempt in self.in_flight.all():
            self._executor.finish(attempt, outcome.released(attempt.job))

    def take(self, *, claims: bool = False) -> Parcel:
        """Take the settlements of all finished attempts; the caller must send them, with a claim if `claims` is set."""
        if not self.waiting:
            return _NOTHING
        attempts, self.waiting, self.frees_places = self.waiting, [], False
        queue = self._queue.settings
        batches = settle.chunks([it.settlement for it in attempts if it.settlement is not None])
        operations = [settle.settle(queue, batch, claims=claims) for batch in batches]
        if not self.in_flight.reporters.by_token:
            return Parcel(attempts, batches, operations)
        reports = renew.chunks(self.in_flight.reporters.waiting([it.job.claim_token for it in attempts]))
        # After the settlement they would be refused, so they must not wait for a server that lacks the script.
        first = [renew.renew(queue, (), some)._replace(needs_order=True) for some in reports]
        return Parcel(attempts, batches, [*first, *operations], reports)

    def read(self, parcel: Parcel, answers: list[Any]) -> SchedqError | None:
        """Process the replies to a parcel; return the error if Redis rejected a batch.

        Settled attempts are removed. Those that Redis did not process, or rejected for now, are sent again.
        """
        for some, words in zip(parcel.reports, answers, strict=False):
            self.in_flight.reporters.confirm(some, words)
        sent = iter(parcel.attempts)
        again: list[Attempt] = []
        settled: list[Attempt] = []
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
                    if word == "OK":
                        settled.append(attempt)
                    elif word == "LOST":
                        self._came_too_late(attempt)
        self.counts.add(settled)
        self.waiting = again + self.waiting
        self.is_behind = bool(again)
        return refused

    def _finished(self, attempt: Attempt) -> None:
        """Queue the settlement of a finished attempt; an attempt that lost its lease is only removed."""
        if attempt.settlement is None:
            self.in_flight.remove(attempt)
        else:
            attempt.ended_at = monotonic()
            self.waiting.append(attempt)
            self.frees_places = self.frees_places or attempt.settlement.gate_key != ""
        self._notify()

    def _stopped(self, attempt: Attempt) -> None:
        """Free the slot of an attempt whose handler has really ended."""
        self.in_flight.stopped(attempt)
        self._worker.capacity.release(self._consumer, suspect=attempt.is_suspect)

    def _came_too_late(self, attempt: Attempt) -> None:
        assert attempt.settlement is not None
        text = "job %s: %s came too late, the job belongs to another worker or its data is gone"
        log.warning(text, attempt.job.id, attempt.settlement.move, extra=attempt.fields())
        self._worker.observers.notify(Observer.lease_lost, self._queue.name, attempt.job.id)
