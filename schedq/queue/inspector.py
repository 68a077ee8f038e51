"""What operators ask of a queue, and do to many jobs at once: `queue.inspector`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedq.inspect import audit, bulk, error_groups, forecast, overview, samples, timeline, why
from schedq.inspect.audit import LogEntry
from schedq.inspect.bulk import Acted, ActionOnIds, ActionOnMatching, BulkRequest, Progress, Purge
from schedq.inspect.error_groups import Errors
from schedq.inspect.export import Imported, import_jobs
from schedq.inspect.forecast import Forecast
from schedq.inspect.overview import Pulse
from schedq.inspect.samples import MOST_SAMPLES, Sample
from schedq.inspect.search import USUALLY_LOOKED, Filter, JobPage, find
from schedq.inspect.timeline import Timeline
from schedq.inspect.why import Why
from schedq.model.ids import new_request
from schedq.model.settings import Settings
from schedq.model.times import Duration, Instant
from schedq.queue.requests import Connections, Listening, WithCleanup, events
from schedq.queue.verb import AsyncVerbs, BlockingVerbs, stream, verb
from schedq.transitions import Operation, RoundTrips, heartbeat, unwrap


class InspectorVerbs:
    """What operators ask of a queue, and do to many jobs at once."""

    _connections: Connections

    # -- how the queue is doing

    @verb
    def pulse(self) -> RoundTrips[Pulse]:
        """The queue at a glance: depths, rates, lateness, run times, tasks, workers; a few bounded reads."""
        return overview.pulse(self._connections.settings)

    @verb
    def samples(self, limit: int = MOST_SAMPLES) -> Operation[list[Sample]]:
        """How it was: the last `limit` samples, oldest first; one every 10 s in which something changed.

        Raises:
            UsageError: limit not within 1 and 2160.
        """
        return samples.newest(self._connections.settings, limit)

    @verb
    def errors(self, limit: int = 1000) -> RoundTrips[Errors]:
        """What went wrong: the newest `limit` failed jobs, at most 100,000, grouped by their errors; read by pages.

        Raises:
            UsageError: limit makes no sense.
        """
        return error_groups.errors(self._connections.settings, limit)

    # -- audit and workers

    @verb
    def log(self, after: str | None = None, limit: int = 100) -> Operation[list[LogEntry]]:
        """Ends of jobs and operators' acts, oldest first: the newest `limit`, or those after the `entry_id` of one.

        Raises:
            UsageError: limit not within 1 and 1000, or `after` is no entry's id.
        """
        return audit.log(self._connections.settings, after, limit)

    @stream
    def follow(self, timeout: Duration | None = None) -> Listening[dict[str, Any] | None]:
        """As `Queue.events`, with None wherever events may have been missed: the connection was lost."""
        return events(self._connections.settings, timeout, shows_gaps=True)

    @verb
    def stop_worker(self, worker_id: str) -> Operation[bool]:
        """Ask a worker to stop, as SIGTERM does; False if no live one has that id.

        It hears of it within 10 s, with its next sign of life, and stops for all of its queues. A child of
        `--processes` is not replaced by its parent then.

        Raises:
            UsageError: no worker can have that id.
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
        limit: int = 100,
        cursor: str | None = None,
        look: int = USUALLY_LOOKED,
    ) -> RoundTrips[JobPage]:
        """Jobs of a state that match: the next one first of those that wait, of all others the newest first.

        A call looks at a bounded number of jobs, so a page may be short or empty and yet have a cursor to go on from.
        Paging on skips no job that stays where it is, whatever comes and goes meanwhile; where much goes at once it may
        show one again.

        Args:
            state: pending, delayed, processing, completed, failed or cancelled.
            task: the name of the task that they call.
            older_than: seconds or a timedelta since the enqueue, the start of the attempt or the end, by state.
            newer_than: likewise; a job that does not say since when is neither.
            text: in the payload as it is stored, or in the last error; case counts.
            error: in the last error.
            limit: 1 to 1000.
            cursor: of the page before.
            look: jobs to look at, at the most: 1 to 100,000; fifty thousand take about a quarter of a second.

        Raises:
            UsageError: something of it can't be meant.
        """
        wanted = Filter.of(task, older_than, newer_than, text, error)
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
        """Do one thing to the jobs of these ids, and write one line of the log.

        Args:
            action: requeue, cancel, run_now, reschedule (with `delay` or `run_at`) or delete.
            job_ids: the jobs; an id given twice counts once.
            delay: for reschedule.
            run_at: for reschedule.
            who: on whose behalf, for the log; else this process's user and host.

        Raises:
            UsageError: there is no such action, or it lacks a time, or takes none.
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
        limit: int | None = None,
        dry_run: bool = False,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        progress: Progress | None = None,
        who: str | None = None,
    ) -> WithCleanup[Acted]:
        """Do one thing to all jobs of a state that match, the oldest first, and write one line of the log.

        It acts in small batches on the jobs that are there when it begins, once on each; a job that has moved on by
        then is counted as refused. See `find` for the filter, and `act` for `delay`, `run_at` and `who`.

        Args:
            action: requeue (failed, cancelled), cancel (pending, delayed, processing), run_now or reschedule (delayed),
                or delete (pending, delayed, completed, failed, cancelled).
            state: of the jobs.
            limit: to so many jobs at most; None for all.
            dry_run: only count those that match; nothing is written.
            progress: called with what it has come to so far, after every batch.

        Raises:
            UsageError: an argument is invalid, such as an action that jobs of this state can't take.
        """
        request = BulkRequest.of(action, delay, run_at, who)
        wanted = Filter.of(task, older_than, newer_than, text, error)
        settings = self._connections.settings
        bulk_action = ActionOnMatching(
            settings, request, state, wanted, limit=limit, dry_run=dry_run, progress=progress
        )
        return WithCleanup(bulk_action.steps(), ending=None if dry_run else bulk_action.note)

    @verb
    def import_jobs(self, entries: Sequence[object], *, finished: bool = False) -> RoundTrips[Imported]:
        """Store jobs as `schedq export` writes them: under their ids, delayed ones until the instant they were due.

        An entry is a dict: `id`, `payload` (or `payload_text`), and if it applies `state`, `run_at_ms`, `max_attempts`,
        `backoff`, `timeout_ms`, `attempts`, `enqueued_at_ms`. Again, it changes nothing. Of one that is refused nothing
        is stored.

        Args:
            entries: the jobs.
            finished: let those that had finished wait as new jobs; else they are skipped.

        Raises:
            QueueFull, NotAcknowledged, StoreUnavailable: as `Queue.enqueue_many`.
        """
        return import_jobs(self._connections.settings, entries, finished=finished)

    @verb
    def purge(self, *, who: str | None = None) -> WithCleanup[int]:
        """Delete every job of the queue, as `Queue.purge`, and write one line of the log.

        Args:
            who: on whose behalf, for the log; else this process's user and host.
        """
        return purged(self._connections.settings, who)

    @verb
    def note(self, action: str, said: str, *, count: int = 1, who: str | None = None) -> RoundTrips[None]:
        """Write one line of the log about what was done by other means, such as `pause`.

        Args:
            action: what was done.
            said: more about it.
            count: to how many.
            who: on whose behalf; else this process's user and host.
        """
        (answer,) = yield [bulk.note(self._connections.settings, new_request(), action, count, said, who)]
        unwrap(answer)

    # -- one job

    @verb
    def why(self, job_id: str) -> RoundTrips[Why]:
        """The one reason that a job is not running now, also of one that is not there."""
        return why.why(self._connections.settings, job_id)

    @verb
    def timeline(self, job_id: str) -> RoundTrips[Timeline | None]:
        """What a job has been through: enqueued, due, promoted, each attempt, its end; None if nothing is stored."""
        return timeline.timeline(self._connections.settings, job_id)

    # -- what comes

    @verb
    def forecast(self, within: Duration) -> RoundTrips[Forecast]:
        """What is due when in the time `within` (a minute to 31 days) from now on: delayed jobs, slots of schedules."""
        return forecast.forecast(self._connections.settings, within)


class Inspector(InspectorVerbs, BlockingVerbs):
    """What operators ask of a queue, and do to many jobs at once."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._use_client(connections.blocking)


class AsyncInspector(InspectorVerbs, AsyncVerbs):
    """`Inspector`, awaited."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._use_client(connections.aio)


def purged(queue: Settings, who: str | None = None) -> WithCleanup[int]:
    """Delete every job of a queue, with one line of the log about it."""
    purge = Purge(queue, who)
    return WithCleanup(purge.steps(), ending=purge.note)
