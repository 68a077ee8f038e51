"""The operator's door to a queue: `queue.inspector`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection.sender import Sender
from schedq.ids import new_request
from schedq.instants import Duration, Instant, duration_ms
from schedq.operations import acting, audit, directory, failures, forecast, pulse, samples, timeline, views, why
from schedq.operations.acting import Acted, ActOnMatching, ActOnThese, Progress, Wish
from schedq.operations.audit import LogEntry
from schedq.operations.failures import Errors
from schedq.operations.filters import Filter
from schedq.operations.finding import USUALLY_LOOKED, JobPage, find
from schedq.operations.forecast import Forecast
from schedq.operations.pulse import Pulse
from schedq.operations.purging import Purge
from schedq.operations.samples import MOST_SAMPLES, Sample
from schedq.operations.timeline import Timeline
from schedq.operations.transfer import Imported, bring
from schedq.operations.waiting import event
from schedq.operations.why import Why
from schedq.schedules import Scheduling


class Inspector:
    """What those who run a queue ask of it, and do to many jobs at once."""

    def __init__(self, queue: Application, sender: Sender) -> None:
        self._queue = queue
        self._ask, self._drive, self._messages = sender.ask, sender.drive, sender.messages

    # -- how the queue is doing

    def pulse(self) -> Pulse:
        """The queue at a glance: depths, rates, lateness, run times, tasks, workers; a few bounded reads."""
        return self._drive(pulse.pulse(self._queue.settings))

    def samples(self, limit: int = MOST_SAMPLES) -> list[Sample]:
        """How it was: the last `limit` samples, oldest first; one every 10 s in which something changed.

        Raises:
            UsageError: limit not within 1 and 2160.
        """
        return self._ask(samples.newest(self._queue.settings, limit))

    def errors(self, limit: int = 1000) -> Errors:
        """What went wrong: the newest `limit` failed jobs, at most 100,000, grouped by their errors; read by pages.

        Raises:
            UsageError: limit makes no sense.
        """
        return self._drive(failures.errors(self._queue.settings, limit))

    # -- audit and workers

    def log(self, after: str | None = None, limit: int = 100) -> list[LogEntry]:
        """Ends of jobs and operators' acts, oldest first: the newest `limit`, or those after the `entry_id` of one.

        Raises:
            UsageError: limit not within 1 and 1000, or `after` is no entry's id.
        """
        return self._ask(audit.log(self._queue.settings, after, limit))

    def follow(self, timeout: Duration | None = None) -> Generator[dict[str, Any] | None, None, None]:
        """As `Queue.events`, with None wherever events may have been missed: the connection was lost."""
        silence = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        self._ask(views.reach(self._queue.settings))
        messages = self._messages(self._queue.settings.keys.events)
        text, heard_at, left, is_told = next(messages), monotonic(), silence, False
        while True:
            text = messages.send(left)
            if text and (found := event(text)) is not None:
                yield found
                heard_at, is_told = monotonic(), False
            elif text == "" and not is_told:
                yield None
                is_told = True
            if silence is not None:
                left = silence - (monotonic() - heard_at)
                if left <= 0:
                    return

    def stop_worker(self, worker_id: str) -> bool:
        """Ask a worker to stop, as SIGTERM does; False if no live one has that id.

        It hears of it within 10 s, with its next sign of life, and stops for all of its queues. A child of
        `--processes` is not replaced by its parent then.

        Raises:
            UsageError: no worker can have that id.
        """
        return self._ask(directory.stop(self._queue.settings, worker_id))

    # -- finding jobs and acting on many

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
    ) -> JobPage:
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
        return self._drive(find(self._queue.settings, state, wanted, limit, cursor, look))

    def act(
        self,
        action: str,
        job_ids: Sequence[str],
        *,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        who: str | None = None,
    ) -> Acted:
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
        wish = Wish.of(action, delay, run_at, who)
        return self._act(ActOnThese(self._queue.settings, wish, job_ids, None))

    def act_on(
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
    ) -> Acted:
        """Do one thing to all jobs of a state that match, the oldest first, and write one line of the log.

        It is done in small batches to the jobs that are there when it begins; one that has moved on when its turn
        comes is counted as refused. No job is met twice.

        Args:
            action: requeue (failed, cancelled), cancel (pending, delayed, processing), run_now or reschedule (delayed),
                or delete (pending, delayed, completed, failed, cancelled).
            state: of the jobs; see `find` for this and the filter.
            task: see `find`.
            older_than: see `find`.
            newer_than: see `find`.
            text: see `find`.
            error: see `find`.
            limit: to so many jobs at most; None for all.
            dry_run: only count those that match; nothing is written.
            delay: for reschedule.
            run_at: for reschedule.
            progress: called with what it has come to so far, after every batch.
            who: on whose behalf, for the log; else this process's user and host.

        Raises:
            UsageError: something of it can't be meant, such as an action that jobs of this state can't take.
        """
        wish = Wish.of(action, delay, run_at, who)
        wanted = Filter.of(task, older_than, newer_than, text, error)
        settings = self._queue.settings
        return self._act(
            ActOnMatching(settings, wish, state, wanted, limit=limit, dry_run=dry_run, progress=progress),
            is_noted=not dry_run,
        )

    def import_jobs(self, entries: Sequence[object], *, finished: bool = False) -> Imported:
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
        return self._drive(bring(self._queue.settings, entries, finished=finished))

    def purge(self, *, who: str | None = None) -> int:
        """Delete every job of the queue, as `Queue.purge`, and write one line of the log.

        Args:
            who: on whose behalf, for the log; else this process's user and host.
        """
        act = Purge(self._queue.settings, who)
        try:
            return self._drive(act.steps())
        finally:  # also of one that was broken off
            self._ask(act.note())

    def note(self, action: str, said: str, *, count: int = 1, who: str | None = None) -> None:
        """Write one line of the log about what was done by other means, such as `pause`.

        Args:
            action: what was done.
            said: more about it.
            count: to how many.
            who: on whose behalf; else this process's user and host.
        """
        self._ask(acting.note(self._queue.settings, new_request(), action, count, said, who))

    def _act(self, act: ActOnThese | ActOnMatching, *, is_noted: bool = True) -> Acted:
        try:
            return self._drive(act.steps())
        finally:  # also of one that was broken off
            if is_noted:
                self._ask(act.note())

    # -- one job

    def why(self, job_id: str) -> Why:
        """The one reason that a job is not running now, also of one that is not there."""
        return self._drive(why.why(self._queue.settings, job_id))

    def timeline(self, job_id: str) -> Timeline | None:
        """What a job has been through: enqueued, due, promoted, each attempt, its end; None if nothing is stored."""
        return self._drive(timeline.timeline(self._queue.settings, job_id))

    # -- what comes

    def forecast(self, within: Duration) -> Forecast:
        """What is due when in the time `within` (a minute to 31 days) from now on: delayed jobs, slots of schedules."""
        return self._drive(forecast.forecast(self._queue.settings, within))


class Inspected(Scheduling, door=""):
    """What the blocking queue has for operators."""

    @property
    def inspector(self) -> Inspector:
        """Looking and acting as an operator."""
        return Inspector(self, self._sender)
