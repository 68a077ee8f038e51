"""The verbs of a queue, each written once for `Queue` and `AsyncQueue`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schedq.connection.address import Address
from schedq.inspect import queue_names, stats
from schedq.inspect.stats import BrokenNote, Stats
from schedq.inspect.wait import milliseconds
from schedq.model import backoff as plans
from schedq.model import checks, outcome
from schedq.model.durability import Durability
from schedq.model.lifecycle import Cancellation
from schedq.model.records import ClaimedJob, JobRecord, Options, Settlement
from schedq.model.settings import Settings
from schedq.model.times import Duration, Instant, duration_ms
from schedq.queue.registry import Registry
from schedq.queue.requests import AnyRequest, InThread, Listening, WithCleanup, events, is_finished, result
from schedq.queue.verb import stream, verb
from schedq.transitions import (
    Operation,
    RoundTrips,
    cancel,
    claim,
    enqueue,
    heartbeat,
    pause,
    promote,
    reclaim,
    renew,
    requeue,
    reschedule,
    settle,
    unwrap,
)
from schedq.transitions.heartbeat import WorkerRecord


class QueueVerbs:
    """What can be asked of a queue."""

    settings: Settings
    address: Address
    registry: Registry

    # -- new jobs

    @verb
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
    ) -> Operation[str]:
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
        return enqueue.enqueue(self.settings, enqueue.prepare(self.settings, payload, options))

    @verb
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
    ) -> RoundTrips[list[str]]:
        """Store many jobs in a few round trips, all checked first: payloads, or `NewJob`s with options of their own.

        Returns:
            Their ids, in order.

        Raises:
            Conflict: jobs of some of the ids exist with other payloads; all others are stored.
            QueueFull, NotAcknowledged: with `stored`, the ids of those that are stored.
            UsageError, StoreUnavailable: as `enqueue`; `job_ids` has the ids of those that are not known to be stored.
        """
        options = Options(delay, run_at, None, max_attempts, backoff, timeout, durability, must_create, reuse_id)
        prepared = enqueue.prepare_many(self.settings, jobs, options)
        return enqueue.enqueue_many(self.settings, prepared)

    # -- what a queue needs from time to time

    @verb
    def promote_due(self, limit: int = 1000) -> RoundTrips[int]:
        """Move up to `limit` (1 to 1000) due jobs to `pending`; returns how many came there."""
        return promote.promote_due(self.settings, checks.checked_limit(limit))

    @verb
    def reclaim_stuck(self) -> RoundTrips[list[str]]:
        """Take back jobs whose lease has ended, in one bounded pass; returns their ids."""
        return reclaim.take_back(self.settings, self.registry.options)

    # -- looking

    @verb
    def stats(self) -> Operation[Stats]:
        """Depths and totals of one instant; the handbook's reference has the list of names."""
        return stats.stats(self.settings)

    @verb
    def get_job(self, job_id: str) -> Operation[JobRecord | None]:
        """All that is stored of one job; None if nothing is."""
        return stats.get_job(self.settings, job_id)

    @verb
    def list_pending(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Jobs that wait for a worker, next one first; a page of at most 1000 jobs and 1 MiB."""
        return stats.page(self.settings, "pending", offset, limit)

    @verb
    def list_delayed(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Jobs that wait for their time, earliest first; `run_at_ms` is when."""
        return stats.page(self.settings, "delayed", offset, limit)

    @verb
    def list_processing(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Jobs that run, newest claim first."""
        return stats.page(self.settings, "processing", offset, limit)

    @verb
    def list_completed(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Completed jobs that are kept, newest first."""
        return stats.page(self.settings, "completed", offset, limit)

    @verb
    def list_failed(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Failed jobs that are kept, newest first."""
        return stats.page(self.settings, "failed", offset, limit)

    @verb
    def list_cancelled(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Cancelled jobs that are kept, newest first."""
        return stats.page(self.settings, "cancelled", offset, limit)

    @verb
    def list_broken(self, offset: int = 0, limit: int = 100) -> Operation[list[BrokenNote]]:
        """Notes about ids that could not be run because their data is gone or damaged, newest first."""
        return stats.broken(self.settings, offset, limit)

    @verb
    def list_workers(self) -> RoundTrips[list[WorkerRecord]]:
        """Live workers of this queue and what each runs, at most 1000, the one that spoke last first."""
        return heartbeat.workers(self.settings)

    @verb
    def list_queues(self, *, scan: bool = False) -> AnyRequest[list[str]]:
        """Names of the queues at this Redis; `scan` looks through all keys for those that only other programs use."""
        address = self.address
        return InThread(lambda: address.queues(scan=scan)) if address.is_cluster else queue_names.names(scan=scan)

    # -- acting on jobs that are not ours to run

    @verb
    def cancel(self, job_id: str) -> Operation[Cancellation]:
        """Cancel a job that waits ("cancelled"), ask a running one to stop ("asked"); "no": it is finished or gone."""
        return cancel.cancel(self.settings, job_id)

    @verb
    def reschedule(
        self, job_id: str, *, delay: Duration | None = None, run_at: Instant | None = None
    ) -> Operation[bool]:
        """Give a delayed job another instant; False if it is not delayed.

        Raises:
            UsageError: neither or both of `delay` and `run_at`.
        """
        return reschedule.reschedule(self.settings, job_id, *reschedule.one_time(delay, run_at))

    @verb
    def run_now(self, job_id: str) -> Operation[bool]:
        """Let a delayed job run now, next in line; False if it is not delayed."""
        return reschedule.reschedule(self.settings, job_id, "in", 0)

    @verb
    def requeue(self, job_id: str) -> RoundTrips[bool]:
        """Give a failed or cancelled job a new life, attempts from 0; False if it is neither."""
        return requeue.requeue(self.settings, job_id)

    @verb
    def requeue_failed(self, limit: int = 1000) -> RoundTrips[int]:
        """Requeue up to `limit` (1 to 1000) failed jobs, oldest first; returns how many."""
        return requeue.requeue_failed(self.settings, checks.checked_limit(limit))

    @verb
    def pause(self) -> RoundTrips[None]:
        """Stop claims, for all workers; what runs, runs on."""
        (answer,) = yield [pause.pause(self.settings)]
        unwrap(answer)

    @verb
    def resume(self) -> Operation[bool]:
        """Allow claims again; returns whether the queue was paused."""
        return pause.resume(self.settings)

    @verb
    def purge(self) -> WithCleanup[int]:
        """Delete every job that is there now, running ones too; returns how many. Schedules and a pause stay."""
        from schedq.queue.inspector import purged  # with all that operators ask, which most programs don't need

        return purged(self.settings)

    # -- waiting

    @stream
    def events(self, timeout: Duration | None = None) -> Listening[dict[str, Any]]:
        """What happens, a dict per event (id, status, attempts, at_ms, …); ends after `timeout` of silence.

        Listening begins when the first one is asked for. Events are hints: those of a time without connection are lost.

        Raises:
            StoreUnavailable, UsageError: when listening was to begin, Redis did not answer, or refused.
        """
        return events(self.settings, timeout)

    @verb
    def wait(self, job_id: str, timeout: Duration | None = None) -> Listening[bool]:
        """Wait until a job is completed, failed or cancelled; False when `timeout` (seconds) ran out first.

        Raises:
            JobGone: nothing is stored of it.
        """
        return is_finished(self.settings, job_id, timeout)

    @verb
    def result(self, job_id: str, timeout: Duration | None = None) -> Listening[Any]:
        """Wait for a job's result, at most `timeout` seconds; None waits for ever.

        Raises:
            JobFailed, JobCancelled, JobGone: there will be no result.
            TimeoutError: it is not finished yet.
        """
        return result(self.settings, job_id, timeout)


class AttemptVerbs:
    """Claiming jobs by hand, and ending the attempts."""

    settings: Settings
    registry: Registry

    @verb
    def claim(self, timeout_ms: int = 1000) -> WithCleanup[ClaimedJob | None]:
        """Take the oldest job that is due, or wait up to `timeout_ms` for one; None when there was none.

        Whoever claims by hand renews by hand: after `visibility_ms` without a renewal the job is another's.

        Raises:
            UsageError: `timeout_ms` is no whole number of at least 0.
            StoreUnavailable: no answer for `retry_for` seconds.
        """
        settings = self.settings
        waiting = claim.ClaimWait(settings, milliseconds(timeout_ms) / 1000)
        return WithCleanup(waiting.steps(), undoing=lambda: _give_back(settings, waiting.request))

    @verb
    def complete(self, job: ClaimedJob, result: Any = None) -> RoundTrips[bool]:
        """The job is done; False if it is no longer this claim's, and nothing is written then."""
        return _settle(self.settings, outcome.succeeded(job, result, self._policy(job)))

    @verb
    def fail(self, job: ClaimedJob, error: BaseException | str = "failed") -> RoundTrips[bool]:
        """The attempt failed: the job comes back with backoff, or has failed for good. False as `complete`."""
        return _settle(self.settings, outcome.failed(job, error, self._policy(job)))

    @verb
    def snooze(self, job: ClaimedJob, delay: Duration) -> RoundTrips[bool]:
        """Not now, again after `delay`; it costs no attempt. False as `complete`."""
        return _settle(self.settings, Settlement("snooze", job.id, job.claim_token, duration_ms(delay, "delay")))

    @verb
    def release(self, job: ClaimedJob) -> RoundTrips[bool]:
        """Give the job back, next in line; it costs no attempt the first 5 times. False as `complete`."""
        return _settle(self.settings, outcome.released(job))

    @verb
    def renew(self, job: ClaimedJob) -> RoundTrips[bool]:
        """Let the lease begin again; False if the job is no longer this claim's."""
        (answer,) = yield [renew.renew(self.settings, [(job.id, job.claim_token)])]
        return bool(unwrap(answer)[0] != "LOST")

    @verb
    def settle(self, settlement: Settlement) -> RoundTrips[bool]:
        """End an attempt as was decided; False if the job is no longer this claim's. Other verbs are made of it."""
        return _settle(self.settings, settlement)

    def _policy(self, job: ClaimedJob) -> outcome.Policy:
        """What applies to a job that was claimed by hand."""
        task = self.registry.task_of(job.payload)
        if task is None:
            return outcome.Policy.of(self.settings, job)
        return outcome.Policy.of(self.settings, job, task.max_attempts, task.backoff)


def _settle(queue: Settings, settlement: Settlement) -> RoundTrips[bool]:
    (answer,) = yield [settle.settle(queue, [settlement])]
    return bool(unwrap(answer)[0] != "LOST")


def _give_back(queue: Settings, request: str) -> RoundTrips[None]:
    """A claim was cancelled: release what it took, and put the marker back that it may have taken."""
    for job in (yield from claim.recover(queue, request)) if request else ():
        yield from _settle(queue, outcome.released(job))
    (answer,) = yield [promote.wake(queue)]
    unwrap(answer)
