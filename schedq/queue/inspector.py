"""The operator's side of a queue, `queue.inspector`: what it is doing, and actions on many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedq.inspect import audit, bulk, error_groups, forecast, overview, samples, task_stats, timeline, why
from schedq.inspect.audit import LogEntry
from schedq.inspect.bulk import Acted, ActionOnIds, ActionOnMatching, BulkRequest, OnActed, Purge
from schedq.inspect.error_groups import Errors
from schedq.inspect.export import Imported, import_jobs
from schedq.inspect.forecast import Forecast
from schedq.inspect.overview import Pulse
from schedq.inspect.samples import MOST_SAMPLES, Sample
from schedq.inspect.search import USUALLY_LOOKED, Filter, JobPage, find
from schedq.inspect.task_stats import TaskStats
from schedq.inspect.timeline import Timeline
from schedq.inspect.why import Why
from schedq.model.ids import new_request
from schedq.model.settings import Settings
from schedq.model.times import Duration, Instant
from schedq.queue.requests import Connections, Listening, WithCleanup, events
from schedq.queue.verb import AsyncVerbs, BlockingVerbs, stream, verb
from schedq.transitions import Operation, RoundTrips, heartbeat, unwrap
from schedq.transitions.pause import checked_task


class InspectorVerbs:
    """The requests of `Inspector` and `AsyncInspector`."""

    _connections: Connections

    # -- how the queue is doing

    @verb
    def pulse(self) -> RoundTrips[Pulse]:
        """Return the queue at a glance: depths, rates, lateness, run times, tasks, workers; a few bounded reads."""
        return overview.pulse(self._connections.settings)

    @verb
    def task_stats(self) -> RoundTrips[TaskStats]:
        """Return what workers have counted of each task: ends, run times and lateness, in all and by time."""
        return task_stats.task_stats(self._connections.settings)

    @verb
    def samples(self, limit: int = MOST_SAMPLES) -> Operation[list[Sample]]:
        """Return the last `limit` samples, oldest first: one per 10 s of the last hour, one per minute before.

        Where nothing changed there are none.

        Raises:
            UsageError: `limit` is not 1 to 2160.
        """
        return samples.newest(self._connections.settings, limit)

    @verb
    def errors(self, limit: int = 1000) -> RoundTrips[Errors]:
        """Return the newest `limit` failed jobs, at most 100,000, grouped by error; they are read page by page.

        Raises:
            UsageError: `limit` is invalid.
        """
        return error_groups.errors(self._connections.settings, limit)

    @verb
    def forecast(self, within: Duration) -> RoundTrips[Forecast]:
        """Return what is due during the next `within` (a minute to 31 days): delayed jobs and slots of schedules."""
        return forecast.forecast(self._connections.settings, within)

    # -- audit and workers

    @verb
    def log(self, after: str | None = None, limit: int = 100) -> Operation[list[LogEntry]]:
        """Return ends of jobs and operators' actions, oldest first: the newest `limit`, or those after this `entry_id`.

        Raises:
            UsageError: `limit` is not 1 to 1000, or `after` is not the id of an entry.
        """
        return audit.log(self._connections.settings, after, limit)

    @stream
    def follow(self, timeout: Duration | None = None) -> Listening[dict[str, Any] | None]:
        """Like `Queue.events`, but yields None where a lost connection may have cost events."""
        return events(self._connections.settings, timeout, shows_gaps=True)

    @verb
    def stop_worker(self, worker_id: str) -> Operation[bool]:
        """Ask a worker to stop, as SIGTERM does; False if no live one has that id.

        The worker learns of it with its next heartbeat, within 10 s, and stops for all of its queues. The parent of
        `--processes` does not replace a child that was stopped this way.

        Raises:
            UsageError: `worker_id` is invalid.
        """
        return heartbeat.stop(self._connections.settings, worker_id)

    # -- finding jobs and acting on many

    @verb
    def find(
        self,
        state: str,
        *,
        task: str | None = None,
        older_than: Duration | None = None,
        newer_than: Duration | None = None,
        text: str | None = None,
        error: str | None = None,
        unique: str | None = None,
        gate: str | None = None,
        key: str | None = None,
        header: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        look: int = USUALLY_LOOKED,
    ) -> RoundTrips[JobPage]:
        """Return jobs of a state that match. Waiting jobs come in the order in which they run, others newest first.

        Args:
            state: pending, delayed, processing, completed, failed or cancelled.
            task: the name of the task that the jobs call.
            older_than: seconds or a timedelta since the job was enqueued, started or ended, depending on the state.
            newer_than: likewise. A job without that time is neither older nor newer.
            text: text in the stored payload or in the last error; case-sensitive.
            error: text in the last error; case-sensitive.
            unique: the jobs' unique key.
            gate: their gate.
            key: their key there.
            header: NAME=VALUE of one of the jobs' headers; or, without `=`, text in the value of one.
            limit: 1 to 1000.
            cursor: that of the previous page; even an empty page may have one. A job that stays is never skipped.
            look: the most jobs to look at, 1 to 100,000; 40,000 take about a quarter of a second.

        Raises:
            UsageError: an argument is invalid.
        """
        wanted = Filter.of(task, older_than, newer_than, text, error, unique, gate, key, header)
        return find(self._connections.settings, state, wanted, limit, cursor, look)

    @verb
    def act(
        self,
        action: str,
        job_ids: Sequence[str],
        *,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        who: str | None = None,
    ) -> WithCleanup[Acted]:
        """Apply an action (requeue, cancel, run_now, reschedule, delete) to jobs by id; one entry in the audit log.

        Args:
            action: requeue, cancel, run_now, reschedule (with `delay` or `run_at`) or delete.
            job_ids: the jobs; an id given twice counts once.
            delay: for reschedule.
            run_at: for reschedule.
            who: the name in the audit log; by default this process's user and host.

        Raises:
            UsageError: there is no such action, it needs a time, or it takes none.
        """
        request = BulkRequest.of(action, delay, run_at, who)
        bulk_action = ActionOnIds(self._connections.settings, request, job_ids, None)
        return WithCleanup(bulk_action.steps(), ending=bulk_action.note)

    @verb
    def act_on(  # noqa: D417 - `find` and `act` have the rest
        self,
        action: str,
        state: str,
        *,
        task: str | None = None,
        older_than: Duration | None = None,
        newer_than: Duration | None = None,
        text: str | None = None,
        error: str | None = None,
        unique: str | None = None,
        gate: str | None = None,
        key: str | None = None,
        header: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        progress: OnActed | None = None,
        who: str | None = None,
    ) -> WithCleanup[Acted]:
        """Apply an action, as `act`, to all matching jobs of a state, oldest first; one entry in the audit log.

        It works in small batches on the jobs that are in the state when it begins, once on each. One that has left by
        then counts as refused. See `find` for the filter, and `act` for `delay`, `run_at` and `who`.

        Args:
            action: requeue (failed, cancelled), cancel (pending, delayed, processing), run_now or reschedule (delayed),
                or delete (pending, delayed, completed, failed, cancelled).
            limit: the most jobs to act on; None for all.
            dry_run: only count the matching jobs; write nothing.
            progress: called after every batch with the result so far.

        Raises:
            UsageError: an argument is invalid, or the action does not apply to jobs of this state.
        """
        request, queue = BulkRequest.of(action, delay, run_at, who), self._connections.settings
        wanted = Filter.of(task, older_than, newer_than, text, error, unique, gate, key, header)
        bulk_action = ActionOnMatching(queue, request, state, wanted, limit=limit, dry_run=dry_run, progress=progress)
        return WithCleanup(bulk_action.steps(), ending=None if dry_run else bulk_action.note)

    @verb
    def cancel_task(self, task: str, *, running: bool = False, who: str | None = None) -> WithCleanup[int]:
        """Cancel every waiting job of a task, like `Queue.cancel_task`.

        Args:
            task: its name.
            running: also ask the running ones to stop.
            who: the name in the audit log; by default this process's user and host.

        Raises:
            UsageError: `task` is not the name of a task.
        """
        return cancelled_task(self._connections.settings, task, running=running, who=who)

    @verb
    def import_jobs(self, entries: Sequence[object], *, finished: bool = False) -> RoundTrips[Imported]:
        """Store jobs that `schedq export` wrote: with the same ids, delayed ones with the same due times.

        An entry is a dict: `id`, `payload` (or `payload_text`), and if it applies `state`, `run_at_ms`, `max_attempts`,
        `backoff`, `timeout_ms`, `completed_ttl_ms`, `failed_ttl_ms`, `attempts`, `enqueued_at_ms`, `gate`, `key`,
        `unique` with `unique_rule` (refused if another job holds the key). Importing the same entries again changes
        nothing. Nothing is stored of an entry that is refused.

        Args:
            entries: the jobs.
            finished: enqueue jobs that had finished as new ones; by default they are skipped.

        Raises:
            QueueFull, NotAcknowledged, StoreUnavailable: as `Queue.enqueue_many`.
        """
        return import_jobs(self._connections.settings, entries, finished=finished)

    @verb
    def purge(self, *, who: str | None = None) -> WithCleanup[int]:
        """Delete every job of the queue, like `Queue.purge`; one entry in the audit log, by `who` as in `act`."""
        return purged(self._connections.settings, who)

    @verb
    def note(self, action: str, said: str, *, count: int = 1, who: str | None = None) -> RoundTrips[None]:
        """Write one entry to the audit log about something done by other means, such as `pause`.

        It says what was done, details, to how many jobs, and by whom: by default this process's user and host.
        """
        (reply,) = yield [bulk.note(self._connections.settings, new_request(), action, count, said, who)]
        unwrap(reply)

    # -- one job

    @verb
    def why(self, job_id: str) -> RoundTrips[Why]:
        """Return the one reason why a job is not running now, also for a job that does not exist."""
        return why.why(self._connections.settings, job_id)

    @verb
    def holder(self, key: str) -> RoundTrips[Why | None]:
        """Return why the job that holds a unique key is not running now; None if no job holds the key.

        Raises:
            UsageError: `key` is not 1 to 200 printable characters.
        """
        return why.holder(self._connections.settings, key)

    @verb
    def timeline(self, job_id: str) -> RoundTrips[Timeline | None]:
        """Return a job's history: enqueued, due, promoted, each attempt, its end; None if the job is not stored."""
        return timeline.timeline(self._connections.settings, job_id)


class Inspector(InspectorVerbs, BlockingVerbs):
    """The operator's side of a queue: what it is doing, and actions on many jobs at once."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._follow(connections)


class AsyncInspector(InspectorVerbs, AsyncVerbs):
    """`Inspector` for asyncio."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._follow(connections)


def cancelled_task(queue: Settings, task: object, *, running: bool, who: str | None = None) -> WithCleanup[int]:
    """Cancel the waiting jobs of a task, and perhaps the running ones; write one entry to the audit log."""
    cancellation = bulk.TaskCancellation(queue, checked_task(task), running=running, who=who)
    return WithCleanup(cancellation.steps(), ending=cancellation.note)


def purged(queue: Settings, who: str | None = None) -> WithCleanup[int]:
    """Delete every job of a queue, and write one entry to the audit log."""
    purge = Purge(queue, who)
    return WithCleanup(purge.steps(), ending=purge.note)
