"""The blocking door: every verb as a plain call. Threads may share one queue; it survives a fork."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from types import TracebackType
from typing import Any, Self, cast

from schedq import backoff as plans
from schedq import lifecycle, outcome
from schedq.aio import AsyncQueue
from schedq.clocks import monotonic
from schedq.connection.sender import Sender
from schedq.durability import Durability
from schedq.errors import JobGone, StoreUnavailable
from schedq.inspector import Inspected
from schedq.instants import Duration, Instant, duration_ms
from schedq.job import ClaimedJob, JobRecord, NewJob, Options, Settlement
from schedq.operations import absence, attempts, control, directory, enqueue, preparing, upkeep, views
from schedq.operations.waiting import POLL_S, ended, milliseconds


class Queue(Inspected, door="blocking"):
    """A queue whose verbs block. Threads may share one; it survives a fork. Arguments: see `Application`."""

    _sender: Sender

    @property
    def aio(self) -> AsyncQueue:
        """The asyncio queue with the same settings and functions."""
        return cast(AsyncQueue, self._twin("aio"))

    def _open(self) -> None:
        self._sender = Sender(self.address, self.settings)
        self._ask, self._drive = self._sender.ask, self._sender.drive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; every later call raises ClosedError."""
        self._sender.close()

    # -- new jobs

    def enqueue(
        self,
        payload: Any,
        *,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        job_id: str | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | None = None,
        timeout: Duration | None = None,
        durability: Durability | None = None,
        must_create: bool = False,
        reuse_id: bool = False,
    ) -> str:
        """Store one job: to run now, after `delay` (seconds, timedelta) or at `run_at` (aware datetime, Unix seconds).

        A `job_id` of your own makes it idempotent: the same payload again changes nothing and its id is returned, also
        when that job has finished. With `must_create` any job of that id is a Conflict; with `reuse_id` a finished one
        is replaced, record and all, and only one that waits or runs is a Conflict.

        Returns:
            The job's id.

        Raises:
            UsageError: the payload is not JSON or too large, or an option makes no sense.
            Conflict: a job of this id exists with another payload, or `must_create` or `reuse_id` forbids it.
            QueueFull: `max_pending` jobs wait, or Redis's memory is full; nothing is left behind.
            NotAcknowledged: it is stored, with the id in `stored`; `durability` was not confirmed in time.
            StoreUnavailable: no answer for `retry_for` seconds, or too few replicas for "replicated"; it may be stored
                all the same, with the id in `job_id`.
        """
        options = Options(delay, run_at, job_id, max_attempts, backoff, timeout, durability, must_create, reuse_id)
        prepared = preparing.prepare(self.settings, payload, options)
        try:
            return self._ask(enqueue.enqueue(self.settings, prepared))
        except StoreUnavailable as error:
            enqueue.in_doubt(error, [prepared])
            raise

    def enqueue_many(
        self,
        jobs: Iterable[Any],
        *,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | None = None,
        timeout: Duration | None = None,
        durability: Durability | None = None,
        must_create: bool = False,
        reuse_id: bool = False,
    ) -> list[str]:
        """Store many jobs in a few round trips, all checked first: payloads, or `NewJob`s with options of their own.

        Returns:
            Their ids, in order.

        Raises:
            Conflict: jobs of some of the ids exist with other payloads; all others are stored.
            QueueFull, NotAcknowledged: with `stored`, the ids of those that are stored.
            UsageError, StoreUnavailable: as `enqueue`; `job_ids` has the ids of those that are not known to be stored.
        """
        options = Options(delay, run_at, None, max_attempts, backoff, timeout, durability, must_create, reuse_id)
        prepared = preparing.prepare_many(self.settings, jobs, options)
        return self._drive(enqueue.enqueue_many(self.settings, prepared))

    def _create(self, payload: Any, **options: Any) -> tuple[str, bool]:
        prepared = preparing.prepare(self.settings, payload, Options(**options), is_marked=True)
        try:
            return self._ask(enqueue.create(self.settings, prepared))
        except StoreUnavailable as error:
            enqueue.in_doubt(error, [prepared])
            raise

    def _create_many(self, jobs: Iterable[NewJob]) -> list[tuple[str, bool]]:
        prepared = preparing.prepare_many(self.settings, jobs, Options(), is_marked=True)
        created = self._drive(enqueue.create_many(self.settings, prepared))
        return [(job.job_id, is_new) for job, is_new in zip(prepared, created, strict=True)]

    # -- attempts by hand

    def claim(self, timeout_ms: int = 1000) -> ClaimedJob | None:
        """Take the oldest job that is due, or wait up to `timeout_ms` for one; None when there was none.

        Whoever claims by hand renews by hand: after `visibility_ms` without a renewal the job is another's.

        Raises:
            UsageError: `timeout_ms` is no whole number of at least 0.
            StoreUnavailable: no answer for `retry_for` seconds.
        """
        return self._drive(attempts.ClaimWait(self.settings, milliseconds(timeout_ms) / 1000).steps())

    def complete(self, job: ClaimedJob, result: Any = None) -> bool:
        """The job is done; False if it is no longer this claim's, and nothing is written then."""
        return self.settle(outcome.succeeded(job, result, self._policy(job)))

    def fail(self, job: ClaimedJob, error: BaseException | str = "failed") -> bool:
        """The attempt failed: the job comes back with backoff, or has failed for good. False as `complete`."""
        return self.settle(outcome.failed(job, error, self._policy(job)))

    def snooze(self, job: ClaimedJob, delay: Duration) -> bool:
        """Not now, again after `delay`; it costs no attempt. False as `complete`."""
        return self.settle(Settlement("snooze", job.id, job.claim_token, duration_ms(delay, "delay")))

    def release(self, job: ClaimedJob) -> bool:
        """Give the job back, next in line; it costs no attempt the first 5 times. False as `complete`."""
        return self.settle(outcome.released(job))

    def renew(self, job: ClaimedJob) -> bool:
        """Let the lease begin anew; False if the job is no longer this claim's."""
        return self._ask(attempts.renew(self.settings, [(job.id, job.claim_token)]))[0] != "LOST"

    # -- what a queue needs from time to time

    def promote_due(self, limit: int = 1000) -> int:
        """Move up to `limit` (1 to 1000) due jobs to `pending`; returns how many came there."""
        return self._drive(upkeep.promote_due(self.settings, views.checked_limit(limit)))

    def reclaim_stuck(self) -> list[str]:
        """Take back jobs whose lease has ended, in one bounded pass; returns their ids."""
        return self._drive(upkeep.take_back(self.settings, self.registry.options))

    # -- looking

    def stats(self) -> views.Stats:
        """Depths and totals of one instant; README has the list of names."""
        return self._ask(views.stats(self.settings))

    def get_job(self, job_id: str) -> JobRecord | None:
        """All that is stored of one job; None if nothing is."""
        return self._ask(views.get_job(self.settings, job_id))

    def list_pending(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """Jobs that wait for a worker, next one first; a page of at most 1000 jobs and 1 MiB."""
        return self._drive(views.page(self.settings, self.settings.keys.pending, "oldest", offset, limit))

    def list_delayed(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """Jobs that wait for their time, earliest first; `run_at_ms` is when."""
        return self._drive(views.page(self.settings, self.settings.keys.delayed, "due", offset, limit))

    def list_processing(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """Jobs that run, newest claim first."""
        return self._drive(views.page(self.settings, self.settings.keys.processing, "newest", offset, limit))

    def list_completed(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """Completed jobs that are kept, newest first."""
        return self._drive(views.page(self.settings, self.settings.keys.completed, "newest", offset, limit))

    def list_failed(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """Failed jobs that are kept, newest first."""
        return self._drive(views.page(self.settings, self.settings.keys.failed, "newest", offset, limit))

    def list_cancelled(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """Cancelled jobs that are kept, newest first."""
        return self._drive(views.page(self.settings, self.settings.keys.cancelled, "newest", offset, limit))

    def list_broken(self, offset: int = 0, limit: int = 100) -> list[views.BrokenNote]:
        """Notes about ids that could not be run because their data is gone or damaged, newest first."""
        return self._ask(views.broken(self.settings, offset, limit))

    def list_workers(self) -> list[directory.WorkerRecord]:
        """Live workers of this queue and what each runs, at most 1000, the one that spoke last first."""
        return self._drive(directory.workers(self.settings))

    def list_queues(self, *, scan: bool = False) -> list[str]:
        """Names of the queues at this Redis; `scan` looks through all keys for those that only other programs use."""
        if self.address.is_cluster:
            return self.address.queues(scan=scan)
        return self._drive(directory.names(scan=scan))

    def learn_settings(self) -> None:
        """Go by what the application's workers wrote down of the queue's settings, for who lacks its code."""
        self._go_by(self._ask(upkeep.read_settings(self.settings)))

    # -- acting on jobs that are not ours to run

    def cancel(self, job_id: str) -> lifecycle.Cancellation:
        """Cancel a job that waits ("cancelled"), ask a running one to stop ("asked"); "no": it is finished or gone."""
        return self._ask(control.cancel(self.settings, job_id))

    def reschedule(self, job_id: str, *, delay: Duration | None = None, run_at: Instant | None = None) -> bool:
        """Give a delayed job another instant; False if it is not delayed.

        Raises:
            UsageError: neither or both of `delay` and `run_at`.
        """
        return self._ask(control.reschedule(self.settings, job_id, *control.one_time(delay, run_at)))

    def run_now(self, job_id: str) -> bool:
        """Let a delayed job run now, next in line; False if it is not delayed."""
        return self._ask(control.reschedule(self.settings, job_id, "in", 0))

    def requeue(self, job_id: str) -> bool:
        """Give a failed or cancelled job a new life, attempts from 0; False if it is neither."""
        return self._drive(control.requeue(self.settings, job_id))

    def requeue_failed(self, limit: int = 1000) -> int:
        """Requeue up to `limit` (1 to 1000) failed jobs, oldest first; returns how many."""
        return self._drive(control.requeue_failed(self.settings, views.checked_limit(limit)))

    def pause(self) -> None:
        """Stop claims, for all workers; what runs, runs on."""
        self._ask(control.pause(self.settings))

    def resume(self) -> bool:
        """Allow claims again; returns whether the queue was paused."""
        return self._ask(control.resume(self.settings))

    def purge(self) -> int:
        """Delete every job that is there now, running ones too; returns how many. Schedules and a pause stay."""
        return self.inspector.purge()

    # -- waiting

    def events(self, timeout: Duration | None = None) -> Generator[dict[str, Any], None, None]:
        """What happens, a dict per event (id, status, attempts, at_ms, …); ends after `timeout` of silence.

        Listening begins when the first one is asked for. Events are hints: those of a time without connection are lost.

        Raises:
            StoreUnavailable, UsageError: when listening was to begin, Redis did not answer, or refused.
        """
        for found in self.inspector.follow(timeout):
            if found is not None:
                yield found

    def wait(self, job_id: str, timeout: Duration | None = None) -> bool:
        """Wait until a job is completed, failed or cancelled; False when `timeout` (seconds) ran out first.

        Raises:
            JobGone: nothing is stored of it.
        """
        return self._standing(job_id, timeout).status in lifecycle.FINISHED

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a job's result, at most `timeout` seconds; None waits for ever.

        Raises:
            JobFailed, JobCancelled, JobGone: there will be no result.
            TimeoutError: it is not finished yet.
        """
        return ended(job_id, self._standing(job_id, timeout))

    def _absent(self, job_id: str) -> JobGone:
        return self._drive(absence.absent(self.settings, job_id))

    def _standing(self, job_id: str, timeout: Duration | None) -> views.Standing:
        watch = views.watch(self.settings, job_id)
        left_s = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        deadline = None if left_s is None else monotonic() + left_s
        messages = self._sender.messages(self.settings.keys.waiter(job_id))
        try:
            if deadline is None or left_s:
                next(messages)  # subscribed: what ends from now on is told
            while True:
                standing = self._ask(watch)
                if standing is None:
                    raise self._absent(job_id)
                left = POLL_S if deadline is None else min(POLL_S, deadline - monotonic())
                if standing.status in lifecycle.FINISHED or left <= 0:
                    return standing
                messages.send(left)
        finally:
            messages.close()

    def settle(self, settlement: Settlement) -> bool:
        """End an attempt as was decided; False if the job is no longer this claim's. Other verbs are made of it."""
        return self._ask(attempts.settle(self.settings, [settlement]))[0] != "LOST"


__all__ = ["NewJob", "Queue"]
