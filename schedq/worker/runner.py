"""Runs one attempt: finds the function, calls it, and says how the attempt ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from schedq import outcome, running
from schedq.application import Application
from schedq.clocks import wall
from schedq.job import ClaimedJob, Settlement
from schedq.operations.attempts import refusal
from schedq.task import Call, NoHandler
from schedq.worker.held import Attempt
from schedq.worker.threads import Threads

log: Final = logging.getLogger("schedq")

Ended = Callable[[Attempt, Settlement | None], None]
Freed = Callable[[Attempt], None]


class Runner:
    """Runs attempts of one queue.

    Args:
        queue: the application's queue.
        threads: for plain handlers.
        ended: called once per attempt with its settlement, or with None if it was lost.
        freed: called once per attempt when its handler has really ended; later than `ended` for a plain handler
            that overran its timeout, which no one can stop.
    """

    def __init__(self, queue: Application, threads: Threads, ended: Ended, freed: Freed) -> None:
        self._queue = queue
        self._settings = queue.settings
        self._threads = threads
        self._ended = ended
        self._freed = freed
        self._live: set[Attempt] = set()

    def start(self, job: ClaimedJob) -> Attempt:
        """Begin an attempt; returns at once."""
        attempt = Attempt(job)
        self._live.add(attempt)
        attempt.task = asyncio.get_running_loop().create_task(self._run(attempt))
        return attempt

    def abandon(self) -> None:
        """Wait for no handler any more."""
        for attempt in self._live:
            attempt.is_released = True
            attempt.interrupt()

    def settle(self, attempt: Attempt, settlement: Settlement | None) -> None:
        """Decide how an attempt ends; the first decision counts."""
        if not attempt.is_settled:
            attempt.is_settled = True
            self._ended(attempt, None if attempt.is_lost else settlement)

    async def _run(self, attempt: Attempt) -> None:
        job = attempt.job
        policy = outcome.Policy.of(self._settings, job)
        try:
            if job.problem:
                log.error("job %s: its payload can't be read (%s); failed", job.id, job.problem)
                self.settle(attempt, refusal(job))
                return
            call = self._queue.registry.find(job.payload)
            attempt.name = call.name
            policy = outcome.Policy.of(self._settings, job, call.max_attempts, call.backoff)
            result = await self._call(attempt, call, policy)
            self.settle(attempt, outcome.succeeded(job, result, policy))
        except NoHandler as missing:
            log.warning("job %s: %s; put back (is a deploy under way?)", job.id, missing)
            self.settle(attempt, outcome.failed(job, str(missing), policy))
        except asyncio.CancelledError as error:
            self._cancelled(attempt, error, policy)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its job's failure, not ours
            self._failed(attempt, error, policy)
        finally:
            self._live.discard(attempt)
            self._freed(attempt)

    async def _call(self, attempt: Attempt, call: Call, policy: outcome.Policy) -> Any:
        timeout_ms = attempt.job.timeout_ms or call.timeout_ms
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        attempt.current = running.CurrentJob(
            attempt.job,
            deadline=None if timeout_s is None else wall() + timeout_s,
            renew=lambda: self._queue.blocking.renew(attempt.job),
            arenew=lambda: self._queue.aio.renew(attempt.job),
        )
        if call.is_async:
            return await self._call_async(attempt, call, timeout_s)
        return await self._call_plain(attempt, call, timeout_s, policy)

    async def _call_async(self, attempt: Attempt, call: Call, timeout_s: float | None) -> Any:
        assert attempt.current is not None
        token = running.enter(attempt.current)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await call.function(*call.args, **call.kwargs)
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"timed out after {timeout_s:g} s") from None
            raise
        finally:
            running.leave(token)

    async def _call_plain(self, attempt: Attempt, call: Call, timeout_s: float | None, policy: outcome.Policy) -> Any:
        assert attempt.current is not None
        future = self._threads.run(partial(_in_thread, attempt.current, call))
        over = asyncio.shield(future)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await over
        except TimeoutError:
            if not limit.expired():
                raise
            # Nobody can stop a thread: the job has failed now, its slot is free when the thread is.
            attempt.current.cancel()
            error = TimeoutError(f"timed out after {timeout_s:g} s")
            self._failed(attempt, error, policy)
            log.warning("job %s: %s overran its timeout and still holds its thread", attempt.job.id, attempt.name)
        except asyncio.CancelledError as error:
            if future.done():
                raise
            self._cancelled(attempt, error, policy, is_over=False)
        await _outlast(attempt, future)
        return None if attempt.is_settled else future.result()

    def _cancelled(
        self, attempt: Attempt, error: BaseException, policy: outcome.Policy, *, is_over: bool = True
    ) -> None:
        """The attempt was interrupted: by a lost lease, by the worker's end, by a request to stop, or by itself."""
        job = attempt.job
        if attempt.is_lost:
            log.warning("job %s: %s lost its lease; what it does is dropped", job.id, attempt.name)
            self.settle(attempt, None)
        elif attempt.is_released:
            self.settle(attempt, outcome.released(job))
        elif attempt.current is not None and attempt.current.is_cancelled:
            if is_over:
                self.settle(attempt, outcome.failed(job, "stopped on request", policy))
        else:
            self._failed(attempt, error, policy)

    def _failed(self, attempt: Attempt, error: BaseException, policy: outcome.Policy) -> None:
        if attempt.is_settled:
            return
        settlement = outcome.failed(attempt.job, error, policy)
        job, text = attempt.job, settlement.note
        if settlement.move == "retry":
            wait = settlement.delay_ms / 1000
            log.warning(
                "job %s: %s failed, attempt %d: %s; again in %.1f s",
                job.id,
                attempt.name,
                job.attempts,
                text,
                wait,
            )
        elif settlement.move == "fail":
            log.error("job %s: %s failed for good, attempt %d: %s", job.id, attempt.name, job.attempts, text)
        self.settle(attempt, settlement)


def _in_thread(current: running.CurrentJob, call: Call) -> Any:
    token = running.enter(current)
    try:
        return call.function(*call.args, **call.kwargs)
    finally:
        running.leave(token)


async def _outlast(attempt: Attempt, future: asyncio.Future[Any]) -> None:
    """Wait for a thread, whatever interrupts but the worker's end: its slot must not be given away before."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            if attempt.is_released:
                raise
    if not future.cancelled():
        future.exception()  # whoever needs it asks again
