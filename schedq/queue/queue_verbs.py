"""The requests of a queue, each written once for `Queue` and `AsyncQueue`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from schedq.connection.address import Address
from schedq.inspect import stats
from schedq.inspect.stats import BrokenNote, Stats
from schedq.inspect.wait import milliseconds
from schedq.model import backoff as plans
from schedq.model import checks, outcome
from schedq.model.durability import Durability
from schedq.model.expiry import Expiry
from schedq.model.progress import OnProgress, Progress, ProgressReport
from schedq.model.records import ClaimedJob, JobRecord, Options, Settlement
from schedq.model.settings import Settings
from schedq.model.times import Duration, Instant, duration_ms
from schedq.queue.before_enqueue import prepared_options, prepared_rows
from schedq.queue.registry import Registry
from schedq.queue.requests import (
    AnyRequest,
    Connections,
    InThread,
    Listening,
    WithCleanup,
    events,
    is_finished,
    result,
)
from schedq.queue.verb import stream, verb
from schedq.transitions import (
    Operation,
    RoundTrips,
    enqueue,
    renew,
    settle,
    unwrap,
)

if TYPE_CHECKING:  # imported when they are used, like what only workers and operators send: most programs enqueue
    from schedq.model.gates import Gate
    from schedq.model.unique import Uniqueness
    from schedq.transitions.heartbeat import WorkerRecord


class QueueVerbs:
    """The requests of `Queue` and `AsyncQueue`."""

    settings: Settings
    address: Address
    registry: Registry
    connections: Connections

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
        expires: Expiry | None = None,
        headers: Mapping[str, str] | None = None,
        completed_ttl: Duration | None = None,
        failed_ttl: Duration | None = None,
        unique: Uniqueness | None = None,
        gate: Gate | str | None = None,
        key: str | int | None = None,
    ) -> Operation[str]:
        """Store one job, to run now, after `delay` or at `run_at`, and return its id; `NewJob` describes the options.

        A `job_id` of your own makes the call idempotent: with the same payload again, it changes nothing, even if that
        job has finished. With `must_create`, any job with that id is a Conflict; with `reuse_id`, a finished one is
        replaced, and another one is a Conflict. If another job holds the `unique` key, the id of that one is returned.

        Raises:
            UsageError: the payload is not JSON or too large, or an option is invalid.
            Conflict: a job with this id exists with another payload, or `must_create` or `reuse_id` forbids it.
            QueueFull: `max_pending` jobs wait, or Redis's memory is full; nothing is left behind.
            NotAcknowledged: it is stored, with the id in `stored`, but `durability` was not confirmed in time.
            StoreUnavailable: no reply for `retry_for` seconds, or too few replicas for "replicated". The job may be
                stored nevertheless, with the id in `job_id`.
        """
        given = (delay, run_at, job_id, max_attempts, backoff, timeout, durability, must_create, reuse_id, expires)
        options = Options(*given, headers, completed_ttl, failed_ttl, unique, gate, key)
        if self.connections.before_enqueue:
            options = prepared_options(self.connections, payload, options)
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
        expires: Expiry | None = None,
        headers: Mapping[str, str] | None = None,
        completed_ttl: Duration | None = None,
        failed_ttl: Duration | None = None,
        gate: Gate | str | None = None,
        key: str | int | None = None,
    ) -> RoundTrips[list[str]]:
        """Check and store many jobs in a few round trips: payloads, or `NewJob`s with options of their own.

        A job's own options take precedence. Its own `headers` are added to the common ones.

        Returns:
            Their ids, in order.

        Raises:
            Conflict: jobs with some of the ids exist with other payloads; all others are stored.
            QueueFull, NotAcknowledged: `stored` has the ids of the jobs that are stored.
            UsageError, StoreUnavailable: as `enqueue`; `job_ids` has the ids of jobs that may not be stored.
        """
        given = (delay, run_at, None, max_attempts, backoff, timeout, durability, must_create, reuse_id, expires)
        options = Options(*given, headers, completed_ttl, failed_ttl, None, gate, key)
        if self.connections.before_enqueue:
            jobs, options = prepared_rows(self.connections, jobs, options), Options()
        prepared = enqueue.prepare_many(self.settings, jobs, options)
        return enqueue.enqueue_many(self.settings, prepared)

    # -- maintenance

    @verb
    def promote_due(self, limit: int = 1000) -> RoundTrips[int]:
        """Move up to `limit` (1 to 1000) due jobs to `pending`; returns how many."""
        from schedq.transitions import promote

        return promote.promote_due(self.settings, checks.checked_limit(limit))

    @verb
    def reclaim_stuck(self) -> RoundTrips[list[str]]:
        """Take back jobs whose lease has ended, in one bounded pass; returns their ids."""
        from schedq.transitions import reclaim

        return reclaim.take_back(self.settings, self.registry.options)

    # -- looking

    @verb
    def stats(self) -> Operation[Stats]:
        """Return current depths and totals; the handbook's reference lists the names."""
        return stats.stats(self.settings)

    @verb
    def get_job(self, job_id: str) -> Operation[JobRecord | None]:
        """Return everything that is stored about one job, or None if nothing is."""
        return stats.get_job(self.settings, job_id)

    @verb
    def list_pending(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Return jobs that wait for a worker, the next one first: a page of at most 1000 jobs and 1 MiB."""
        return stats.page(self.settings, "pending", offset, limit)

    @verb
    def list_delayed(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Return jobs that wait for their time, `run_at_ms`, the earliest first."""
        return stats.page(self.settings, "delayed", offset, limit)

    @verb
    def list_processing(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Return running jobs, the newest claim first."""
        return stats.page(self.settings, "processing", offset, limit)

    @verb
    def list_completed(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Return completed jobs that are still stored, newest first."""
        return stats.page(self.settings, "completed", offset, limit)

    @verb
    def list_failed(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Return failed jobs that are still stored, newest first."""
        return stats.page(self.settings, "failed", offset, limit)

    @verb
    def list_cancelled(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[JobRecord]]:
        """Return cancelled jobs that are still stored, newest first."""
        return stats.page(self.settings, "cancelled", offset, limit)

    @verb
    def list_broken(self, offset: int = 0, limit: int = 100) -> Operation[list[BrokenNote]]:
        """Return notes about jobs that could not run because their data is missing or damaged, newest first."""
        return stats.broken(self.settings, offset, limit)

    @verb
    def list_workers(self) -> RoundTrips[list[WorkerRecord]]:
        """Return the live workers of this queue and what each runs: at most 1000, the newest heartbeat first."""
        return _workers(self.settings)

    @verb
    def list_queues(self, *, scan: bool = False) -> AnyRequest[list[str]]:
        """Return the names of the queues in this Redis; `scan` also finds queues that only other programs use."""
        return _queues(self.address, scan=scan)

    # -- waiting

    @stream
    def events(self, timeout: Duration | None = None) -> Listening[dict[str, Any]]:
        """Yield the queue's events, one dict each (id, status, attempts, at_ms, …), until none comes for `timeout`.

        It subscribes when the first event is requested. Events are hints: they are lost while the connection is down.

        Raises:
            StoreUnavailable, UsageError: Redis did not reply to the subscription, or refused it.
        """
        return events(self.settings, timeout)

    @verb
    def wait(
        self, job_id: str, timeout: Duration | None = None, *, on_progress: OnProgress | None = None
    ) -> Listening[bool]:
        """Wait until a job is completed, failed or cancelled; False if `timeout` (seconds) ran out first.

        Args:
            job_id: the job.
            timeout: seconds or a timedelta; None waits forever.
            on_progress: called with the job's progress, then with each report, as long as it waits. It must not block.

        Raises:
            JobGone: nothing is stored about the job.
        """
        return is_finished(self.settings, job_id, timeout, on_progress)

    @verb
    def result(self, job_id: str, timeout: Duration | None = None) -> Listening[Any]:
        """Wait for a job's result, at most `timeout` seconds; None waits forever.

        Raises:
            JobFailed, JobCancelled, JobGone: there will be no result.
            TimeoutError: the job has not finished yet.
        """
        return result(self.settings, job_id, timeout)


class AttemptVerbs:
    """Requests that claim jobs and end attempts, for programs that are not a `Worker`."""

    settings: Settings
    registry: Registry

    @verb
    def claim(self, timeout_ms: int = 1000) -> WithCleanup[ClaimedJob | None]:
        """Claim the oldest due job, or wait up to `timeout_ms` for one; None if there was none.

        The caller must renew the lease itself: after `visibility_ms` without a renewal another worker may get the job.

        Raises:
            UsageError: `timeout_ms` is not a whole number of at least 0.
            StoreUnavailable: no reply for `retry_for` seconds.
        """
        from schedq.transitions.claim import ClaimWait

        settings = self.settings
        waiting = ClaimWait(settings, milliseconds(timeout_ms) / 1000)
        return WithCleanup(waiting.steps(), undoing=lambda: _give_back(settings, waiting.request))

    @verb
    def complete(self, job: ClaimedJob, result: Any = None) -> RoundTrips[bool]:
        """Complete the job. Returns False, and changes nothing, if this claim no longer owns the job."""
        return _settle(self.settings, outcome.succeeded(job, result, self._policy(job)))

    @verb
    def fail(self, job: ClaimedJob, error: BaseException | str = "failed") -> RoundTrips[bool]:
        """End the attempt as failed: the job is retried after its backoff, or fails for good. Returns as `complete`."""
        return _settle(self.settings, outcome.failed(job, error, self._policy(job)))

    @verb
    def snooze(self, job: ClaimedJob, delay: Duration) -> RoundTrips[bool]:
        """Put the job off by `delay`, which costs no attempt. Returns as `complete`."""
        delay_ms = duration_ms(delay, "delay")
        settlement = Settlement("snooze", job.id, job.claim_token, delay_ms, gate_key=job.gate_key)
        return _settle(self.settings, settlement)

    @verb
    def release(self, job: ClaimedJob) -> RoundTrips[bool]:
        """Put the job back, next in line. The first 5 times cost no attempt. Returns as `complete`."""
        return _settle(self.settings, outcome.released(job))

    @verb
    def renew(self, job: ClaimedJob, *, progress: Progress | None = None) -> RoundTrips[bool]:
        """Restart the lease, and report progress if it is given; False if this claim no longer owns the job."""
        if progress is None:
            (reply,) = yield [renew.renew(self.settings, [(job.id, job.claim_token)])]
        else:
            report = ProgressReport.of(job.id, job.claim_token, (progress.done, progress.total, progress.note))
            (reply,) = yield [renew.renew(self.settings, (), [report])]
        return bool(unwrap(reply)[0] != "LOST")

    @verb
    def settle(self, settlement: Settlement) -> RoundTrips[bool]:
        """End an attempt as `settlement` says. Returns as `complete`, which uses it, as the others do."""
        return _settle(self.settings, settlement)

    def _policy(self, job: ClaimedJob) -> outcome.Policy:
        """The policy for a job that was claimed through this queue."""
        task = self.registry.task_of(job.payload)
        return outcome.Policy.of(self.settings, job) if task is None else task._handler.policy(self.settings, job)


def _queues(address: Address, *, scan: bool) -> AnyRequest[list[str]]:
    from schedq.inspect import queue_names

    return InThread(lambda: address.queues(scan=scan)) if address.is_cluster else queue_names.names(scan=scan)


def _workers(queue: Settings) -> RoundTrips[list[WorkerRecord]]:
    from schedq.transitions import heartbeat

    return heartbeat.workers(queue)


def _settle(queue: Settings, settlement: Settlement) -> RoundTrips[bool]:
    (reply,) = yield [settle.settle(queue, [settlement])]
    return bool(unwrap(reply)[0] != "LOST")


def _give_back(queue: Settings, request: str) -> RoundTrips[None]:
    """After a cancelled claim: release the job it took, and restore the marker it may have taken."""
    from schedq.transitions import claim, promote

    for job in (yield from claim.recover(queue, request)) if request else ():
        yield from _settle(queue, outcome.released(job))
    (reply,) = yield [promote.wake(queue)]
    unwrap(reply)
