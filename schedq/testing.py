"""For the tests of an application: time that a test moves, and jobs that run when the test says so.

    from freezegun import freeze_time
    from schedq.testing import run_due, wall_clock

    queue = Queue("mail", redis=url, clock=wall_clock)

    def test_the_reminder_goes_out_after_three_days():
        with freeze_time("2026-03-01") as frozen:
            remind.options(delay=timedelta(days=3)).enqueue("ada@example.org")
            assert run_due(queue) == 0
            frozen.tick(timedelta(days=3))
            assert run_due(queue) == 1

The scripts are the real ones on a real Redis (`embedded://` will do); only the time is the test's.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, cast

from schedq import outcome, running
from schedq.application import Application
from schedq.clocks import monotonic, wall
from schedq.errors import UsageError
from schedq.job import ClaimedJob
from schedq.keys import checked_id
from schedq.operations.firing import Memory, fire_due, peek
from schedq.operations.schedules import upsert_some
from schedq.queue import Queue
from schedq.registry import Call, NoHandler

_SAME_S: Final = 1.0
"""Seconds by which two clocks that show the same time may differ."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def wall_clock() -> float:
    """Unix seconds of `time.time`, looked up at each call, so that whatever stands in for it counts: freezegun's."""
    return time.time()


def run_due(queue: Application, *, limit: int = 10_000) -> int:
    """Run what is due now, in this thread, one job after the other, until nothing is or `limit` attempts were made.

    As a worker that starts, it first writes the schedules of the code, and as one that runs it fires what is due of
    them: slots count from the first call on.

    Async handlers run in one event loop, where time is real whatever the test's clock shows. Retries that are due at
    once are run too; later ones wait for the clock. Timeouts of plain handlers are not enforced.

    Returns:
        How many attempts were made.

    Raises:
        UsageError: called in an event loop, which it would block; use `asyncio.to_thread` there. Or nothing was due
            while something waits, and a test stands in for the clock of a queue that goes by Redis's.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # as it should be
    else:
        raise UsageError("run_due would block this event loop; write: await asyncio.to_thread(run_due, queue)")
    blocking = cast(Queue, queue.blocking)
    if queue.registry.schedules:
        blocking._drive(upsert_some(queue.settings, queue.registry.schedules))
    attempts, memory, offset, moved = 0, Memory(), 0, 0
    with _Desk(blocking) as desk:
        while attempts < limit:
            job = blocking.claim(timeout_ms=0)
            if job is not None:
                attempts += 1
                desk.attempt(job)
                continue
            fired = blocking._drive(fire_due(blocking.settings, memory, offset=offset))
            offset, moved = fired.offset, moved + fired.moved
            if not fired.has_more:
                if not moved:
                    break
                moved = 0
    if not attempts:
        _look_at_the_clock(blocking)
    return attempts


@contextmanager
def as_job(job_id: str = "test", *, attempts: int = 1) -> Iterator[running.CurrentJob]:
    """Let `current_job()` work in this block, so that a task can be called as the plain function it is.

    Its `renew` answers True; call `cancel()` on what this yields to see what the function does when asked to stop.
    """

    async def arenew() -> bool:
        return True

    job = ClaimedJob(checked_id(job_id), None, attempts, "test.1")
    current = running.CurrentJob(job, deadline=None, renew=lambda: True, arenew=arenew)
    token = running.enter(current)
    try:
        yield current
    finally:
        running.leave(token)


def _look_at_the_clock(queue: Queue) -> None:
    """Nothing was due: make sure that the test moved the clock by which the queue goes.

    Raises:
        UsageError: it moved another, and something waits.
    """
    if queue.settings.clock is not None or abs(time.time() - _kernels_time()) < _SAME_S:
        return
    now_s, seen = time.time(), queue._ask(peek(queue.settings, "due", 0, 1))
    delayed = queue.stats()["delayed_depth"]
    if abs(now_s - seen.now_ms / 1000) < _SAME_S or not (delayed or seen.found or seen.upcoming_ms):
        return
    jobs = f"{delayed} delayed job{'s' if delayed != 1 else ''}" if delayed else "its schedules"
    raise UsageError(
        f"nothing of queue {queue.name} is due, and {jobs} can't become due by this test's clock, which shows "
        f"{_utc(now_s)}: the queue goes by Redis's, which shows {_utc(seen.now_ms / 1000)}; "
        f"make it with clock=schedq.testing.wall_clock"
    )


def _kernels_time() -> float:
    """Unix seconds that nothing in Python can stand in for: not even what replaces `time.time` in C."""
    with tempfile.TemporaryFile() as file:
        return os.fstat(file.fileno()).st_mtime


def _utc(seconds: float) -> str:
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S} UTC"


class _Desk:
    """Does what a worker does with a job; has an event loop for as long as it is open."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        # What stands in for the clock would make the loop's timers stand still too.
        self._runner.get_loop().time = monotonic  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def attempt(self, job: ClaimedJob) -> None:
        """Run one job and settle it."""
        call: Call | None = None
        settings = self._queue.settings
        policy = outcome.Policy.of(settings, job)
        try:
            call = self._queue.registry.find(job.payload)
            policy = outcome.Policy.of(settings, job, call.max_attempts, call.backoff)
            # In a context of its own, as in a worker: no variable gets from one job to another, or to the test.
            result = contextvars.copy_context().run(self._result, job, call)
            outcome.check_result(result)
            settlement = outcome.succeeded(job, result, policy)
        except KeyboardInterrupt:
            raise
        except NoHandler as missing:
            settlement = outcome.unknown(job, str(missing), settings)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its job's failure
            misfit = call.misfit() if call is not None and isinstance(error, TypeError) else None
            settlement = outcome.failed(job, misfit or error, policy)
        self._queue.settle(settlement)

    def _result(self, job: ClaimedJob, call: Call) -> Any:
        queue = self._queue
        timeout_ms = job.timeout_ms or call.timeout_ms
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        current = running.CurrentJob(
            job,
            deadline=None if timeout_s is None else (queue.settings.clock or wall)() + timeout_s,
            renew=lambda: queue.renew(job),
            arenew=lambda: queue.aio.renew(job),
            queue=queue.name,
            task=call.name,
        )
        token = running.enter(current)
        try:
            result = call.function(*call.args, **call.kwargs)
            if not inspect.isawaitable(result):
                return result
            result, error = self._runner.run(_outcome(result, timeout_s), context=contextvars.copy_context())
        finally:
            running.leave(token)
        if error is not None:
            raise error
        return result


async def _outcome(work: Awaitable[Any], timeout_s: float | None) -> tuple[Any, BaseException | None]:
    """What it returned, or raised: a loop takes a SystemExit for its own."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await work, None
    except TimeoutError as error:
        return None, TimeoutError(f"timed out after {timeout_s:g} s") if limit.expired() else error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # Ctrl-C
        return None, error
    except BaseException as error:  # noqa: BLE001
        return None, error
