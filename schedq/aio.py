"""The asyncio door: the verbs of `Queue`, awaited, on whichever event loop is running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

from schedq import backoff as plans
from schedq import lifecycle, outcome
from schedq.ainspector import AsyncInspected
from schedq.clocks import monotonic
from schedq.connection.asender import AsyncSender
from schedq.connection.resolver import in_thread
from schedq.durability import Durability
from schedq.errors import JobGone, SchedqError, StoreUnavailable
from schedq.instants import Duration, Instant, duration_ms
from schedq.job import ClaimedJob, JobRecord, NewJob, Options, Settlement
from schedq.operations import absence, attempts, control, directory, enqueue, preparing, upkeep, views
from schedq.operations.waiting import POLL_S, ended, milliseconds


class AsyncQueue(AsyncInspected, door="aio"):
    """A queue whose verbs are awaited. Arguments: see `Application`.

    Event loops may share one, also in several threads and one after the other: each gets connections of its own, which
    are closed with the loop at the latest.
    """

    _sender: AsyncSender

    @property
    def aio(self) -> AsyncQueue:
        """The queue itself."""
        return self

    def _open(self) -> None:
        self._sender = AsyncSender(self.address, self.settings)
        self._ask, self._drive = self._sender.ask, self._sender.drive

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop; the next call opens them again. What waits raises ClosedError."""
        await self._sender.aclose()

    # -- new jobs

    async def enqueue(
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
        """As `Queue.enqueue`."""
        options = Options(delay, run_at, job_id, max_attempts, backoff, timeout, durability, must_create, reuse_id)
        prepared = preparing.prepare(self.settings, payload, options)
        try:
            return await self._ask(enqueue.enqueue(self.settings, prepared))
        except StoreUnavailable as error:
            enqueue.in_doubt(error, [prepared])
            raise

    async def enqueue_many(
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
        """As `Queue.enqueue_many`."""
        options = Options(delay, run_at, None, max_attempts, backoff, timeout, durability, must_create, reuse_id)
        prepared = preparing.prepare_many(self.settings, jobs, options)
        return await self._drive(enqueue.enqueue_many(self.settings, prepared))

    async def _create(self, payload: Any, **options: Any) -> tuple[str, bool]:
        prepared = preparing.prepare(self.settings, payload, Options(**options), is_marked=True)
        try:
            return await self._ask(enqueue.create(self.settings, prepared))
        except StoreUnavailable as error:
            enqueue.in_doubt(error, [prepared])
            raise

    async def _create_many(self, jobs: Iterable[NewJob]) -> list[tuple[str, bool]]:
        prepared = preparing.prepare_many(self.settings, jobs, Options(), is_marked=True)
        created = await self._drive(enqueue.create_many(self.settings, prepared))
        return [(job.job_id, is_new) for job, is_new in zip(prepared, created, strict=True)]

    # -- attempts by hand

    async def claim(self, timeout_ms: int = 1000) -> ClaimedJob | None:
        """As `Queue.claim`. Cancelled, it gives back what it may have taken."""
        waiting = attempts.ClaimWait(self.settings, milliseconds(timeout_ms) / 1000)
        try:
            return await self._drive(waiting.steps())
        except asyncio.CancelledError:
            self._sender.here().do_behind(self._give_back(waiting.request))
            raise

    async def complete(self, job: ClaimedJob, result: Any = None) -> bool:
        """As `Queue.complete`."""
        return await self.settle(outcome.succeeded(job, result, self._policy(job)))

    async def fail(self, job: ClaimedJob, error: BaseException | str = "failed") -> bool:
        """As `Queue.fail`."""
        return await self.settle(outcome.failed(job, error, self._policy(job)))

    async def snooze(self, job: ClaimedJob, delay: Duration) -> bool:
        """As `Queue.snooze`."""
        return await self.settle(Settlement("snooze", job.id, job.claim_token, duration_ms(delay, "delay")))

    async def release(self, job: ClaimedJob) -> bool:
        """As `Queue.release`."""
        return await self.settle(outcome.released(job))

    async def renew(self, job: ClaimedJob) -> bool:
        """As `Queue.renew`."""
        return (await self._ask(attempts.renew(self.settings, [(job.id, job.claim_token)])))[0] != "LOST"

    # -- what a queue needs from time to time

    async def promote_due(self, limit: int = 1000) -> int:
        """As `Queue.promote_due`."""
        return await self._drive(upkeep.promote_due(self.settings, views.checked_limit(limit)))

    async def reclaim_stuck(self) -> list[str]:
        """As `Queue.reclaim_stuck`."""
        return await self._drive(upkeep.take_back(self.settings, self.registry.options))

    # -- looking

    async def stats(self) -> views.Stats:
        """As `Queue.stats`."""
        return await self._ask(views.stats(self.settings))

    async def get_job(self, job_id: str) -> JobRecord | None:
        """As `Queue.get_job`."""
        return await self._ask(views.get_job(self.settings, job_id))

    async def list_pending(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """As `Queue.list_pending`."""
        return await self._drive(views.page(self.settings, self.settings.keys.pending, "oldest", offset, limit))

    async def list_delayed(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """As `Queue.list_delayed`."""
        return await self._drive(views.page(self.settings, self.settings.keys.delayed, "due", offset, limit))

    async def list_processing(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """As `Queue.list_processing`."""
        return await self._drive(views.page(self.settings, self.settings.keys.processing, "newest", offset, limit))

    async def list_completed(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """As `Queue.list_completed`."""
        return await self._drive(views.page(self.settings, self.settings.keys.completed, "newest", offset, limit))

    async def list_failed(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """As `Queue.list_failed`."""
        return await self._drive(views.page(self.settings, self.settings.keys.failed, "newest", offset, limit))

    async def list_cancelled(self, offset: int = 0, limit: int = 100) -> list[JobRecord]:
        """As `Queue.list_cancelled`."""
        return await self._drive(views.page(self.settings, self.settings.keys.cancelled, "newest", offset, limit))

    async def list_broken(self, offset: int = 0, limit: int = 100) -> list[views.BrokenNote]:
        """As `Queue.list_broken`."""
        return await self._ask(views.broken(self.settings, offset, limit))

    async def list_workers(self) -> list[directory.WorkerRecord]:
        """As `Queue.list_workers`."""
        return await self._drive(directory.workers(self.settings))

    async def list_queues(self, *, scan: bool = False) -> list[str]:
        """As `Queue.list_queues`."""
        if self.address.is_cluster:
            return await in_thread(lambda: self.address.queues(scan=scan))
        return await self._drive(directory.names(scan=scan))

    async def learn_settings(self) -> None:
        """As `Queue.learn_settings`."""
        self._go_by(await self._ask(upkeep.read_settings(self.settings)))

    # -- acting on jobs that are not ours to run

    async def cancel(self, job_id: str) -> lifecycle.Cancellation:
        """As `Queue.cancel`."""
        return await self._ask(control.cancel(self.settings, job_id))

    async def reschedule(self, job_id: str, *, delay: Duration | None = None, run_at: Instant | None = None) -> bool:
        """As `Queue.reschedule`."""
        return await self._ask(control.reschedule(self.settings, job_id, *control.one_time(delay, run_at)))

    async def run_now(self, job_id: str) -> bool:
        """As `Queue.run_now`."""
        return await self._ask(control.reschedule(self.settings, job_id, "in", 0))

    async def requeue(self, job_id: str) -> bool:
        """As `Queue.requeue`."""
        return await self._drive(control.requeue(self.settings, job_id))

    async def requeue_failed(self, limit: int = 1000) -> int:
        """As `Queue.requeue_failed`."""
        return await self._drive(control.requeue_failed(self.settings, views.checked_limit(limit)))

    async def pause(self) -> None:
        """As `Queue.pause`."""
        await self._ask(control.pause(self.settings))

    async def resume(self) -> bool:
        """As `Queue.resume`."""
        return await self._ask(control.resume(self.settings))

    async def purge(self) -> int:
        """As `Queue.purge`."""
        return await self.inspector.purge()

    # -- waiting

    async def events(self, timeout: Duration | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """As `Queue.events`."""
        async with aclosing(self.inspector.follow(timeout)) as followed:
            async for found in followed:
                if found is not None:
                    yield found

    async def wait(self, job_id: str, timeout: Duration | None = None) -> bool:
        """As `Queue.wait`."""
        return (await self._standing(job_id, timeout)).status in lifecycle.FINISHED

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """As `Queue.result`."""
        return ended(job_id, await self._standing(job_id, timeout))

    async def _absent(self, job_id: str) -> JobGone:
        return await self._drive(absence.absent(self.settings, job_id))

    async def _standing(self, job_id: str, timeout: Duration | None) -> views.Standing:
        watch = views.watch(self.settings, job_id)
        left_s = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        deadline = None if left_s is None else monotonic() + left_s
        told = asyncio.Event()
        channel = self.settings.keys.waiter(job_id)

        def hear(_: str) -> None:
            told.set()

        here = self._sender.here()
        try:
            if left_s != 0:
                await here.subscription.listen(channel, hear)
                await _told(told, POLL_S if left_s is None else min(POLL_S, left_s))  # subscribed
            while True:
                here.check()
                standing = await self._ask(watch)
                if standing is None:
                    raise await self._absent(job_id)
                left = POLL_S if deadline is None else min(POLL_S, deadline - monotonic())
                if standing.status in lifecycle.FINISHED or left <= 0:
                    return standing
                await _told(told, left)
        finally:
            await here.subscription.forget(channel, hear)

    async def settle(self, settlement: Settlement) -> bool:
        """As `Queue.settle`."""
        return (await self._ask(attempts.settle(self.settings, [settlement])))[0] != "LOST"

    async def _give_back(self, request: str) -> None:
        """A claim was cancelled: release what it took, and put the marker back that it may have taken."""
        try:
            for job in await self._drive(attempts.recover(self.settings, request)) if request else []:
                await self.release(job)
            await self._ask(upkeep.wake(self.settings))
        except SchedqError:
            return  # the lease runs out, and the promoter sets the marker


async def _told(told: asyncio.Event, seconds: float) -> None:
    """Wait until there is news, for some seconds at most."""
    try:
        await asyncio.wait_for(told.wait(), seconds)
    except TimeoutError:
        return
    told.clear()
