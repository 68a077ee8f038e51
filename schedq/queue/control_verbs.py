"""The verbs by which a program or an operator controls jobs, tasks and queues from outside."""

from __future__ import annotations

from typing import Any

from schedq.model import checks
from schedq.model.groups import BatchProgress
from schedq.model.lifecycle import Cancellation
from schedq.model.settings import Settings
from schedq.model.times import Duration, Instant
from schedq.queue.requests import WithCleanup
from schedq.queue.task import Task
from schedq.queue.verb import verb
from schedq.transitions import Operation, RoundTrips, cancel, pause, requeue, reschedule, unwrap


class ControlVerbs:
    """Requests that act on jobs, on tasks, and on the whole queue."""

    settings: Settings

    @verb
    def cancel(self, job_id: str) -> Operation[Cancellation]:
        """Cancel a waiting job ("cancelled"), or ask a running one to stop ("asked"); "no" if finished or gone."""
        return cancel.cancel(self.settings, job_id)

    @verb
    def reschedule(
        self, job_id: str, *, delay: Duration | None = None, run_at: Instant | None = None
    ) -> Operation[bool]:
        """Change when a delayed job is due; False if it is not delayed.

        Raises:
            UsageError: neither or both of `delay` and `run_at` are given, or the job would expire before it is due.
        """
        return reschedule.to_time(self.settings, job_id, delay, run_at)

    @verb
    def run_now(self, job_id: str) -> Operation[bool]:
        """Run a delayed job now, next in line; False if it is not delayed."""
        return reschedule.to_now(self.settings, job_id)

    @verb
    def requeue(self, job_id: str) -> RoundTrips[bool]:
        """Run a failed or cancelled job again, with its attempts back at 0; False if it is neither."""
        return requeue.requeue(self.settings, job_id)

    @verb
    def undo(self, job_id: str) -> RoundTrips[bool]:
        """Undo the steps of a workflow that failed and left them as they were; False if there are none to undo.

        A run that has not ended undoes its steps when it is cancelled.
        """
        return requeue.undo(self.settings, job_id)

    @verb
    def requeue_failed(self, limit: int = 1000) -> RoundTrips[int]:
        """Requeue up to `limit` (1 to 1000) failed jobs, oldest first; returns how many."""
        return requeue.requeue_failed(self.settings, checks.checked_limit(limit))

    @verb
    def pause(self, *, task: str | Task[..., Any] | None = None) -> RoundTrips[None]:
        """Stop all workers from claiming jobs of this queue, or of one task; running jobs continue.

        The jobs of a paused task stay pending, in their order, and jobs of other tasks pass them.

        Raises:
            UsageError: `task` is not a task or the name of one.
        """
        queue = self.settings
        (reply,) = yield [pause.pause(queue) if task is None else pause.pause_task(queue, pause.checked_task(task))]
        unwrap(reply)

    @verb
    def resume(self, *, task: str | Task[..., Any] | None = None) -> RoundTrips[bool]:
        """Allow claims again; returns whether the queue, or the task, was paused.

        A task and its queue are paused independently: resuming one leaves the other as it is.

        Raises:
            UsageError: `task` is not a task or the name of one.
        """
        if task is not None:
            return (yield from pause.resume_task(self.settings, pause.checked_task(task)))
        (reply,) = yield [pause.resume(self.settings)]
        return bool(unwrap(reply))

    @verb
    def list_paused_tasks(self) -> Operation[dict[str, int]]:
        """The names of the paused tasks, and since when each is paused, ms on Redis's clock."""
        return pause.paused_tasks(self.settings)

    @verb
    def cancel_task(self, task: str | Task[..., Any], *, running: bool = False) -> WithCleanup[int]:
        """Cancel every waiting job of a task, pending or delayed; with `running`, also ask the running ones to stop.

        It writes one entry to the audit log, and returns how many jobs were cancelled or asked.

        Raises:
            UsageError: `task` is not a task or the name of one.
        """
        from schedq.queue.inspector import cancelled_task  # as `purge`

        return cancelled_task(self.settings, task, running=running)

    @verb
    def list_batches(self, limit: int = 100) -> RoundTrips[list[BatchProgress]]:
        """Return how far batches and chains are, at most 1000: first those that have not ended."""
        from schedq.transitions.groups import list_groups  # as `purge`

        return list_groups(self.settings, checks.checked_limit(limit))

    @verb
    def purge(self) -> WithCleanup[int]:
        """Delete every job that exists now, running ones too; returns how many. Schedules and a pause stay."""
        from schedq.queue.inspector import purged  # imports much that most programs don't need

        return purged(self.settings)
