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
import inspect
import time

from schedq import outcome, running
from schedq.job import ClaimedJob
from schedq.queue import Queue
from schedq.registry import Call, NoHandler


def wall_clock() -> float:
    """Unix seconds of `time.time`, looked up at each call, so that whatever stands in for it counts: freezegun's."""
    return time.time()


def run_due(queue: Queue, *, limit: int = 10_000) -> int:
    """Run what is due now, in this thread, one job after the other, until nothing is or `limit` attempts were made.

    Async handlers run in a loop of their own. Retries that are due at once are run too; later ones wait for the
    clock. Timeouts of plain handlers are not enforced.

    Returns:
        How many attempts were made.
    """
    attempts = 0
    while attempts < limit and (job := queue.claim(timeout_ms=0)) is not None:
        attempts += 1
        _attempt(queue, job)
    return attempts


def _attempt(queue: Queue, job: ClaimedJob) -> None:
    policy = outcome.Policy.of(queue.settings, job)
    current = running.CurrentJob(
        job, deadline=None, renew=lambda: queue.renew(job), arenew=lambda: asyncio.to_thread(queue.renew, job)
    )
    token = running.enter(current)
    try:
        call = queue.registry.find(job.payload)
        policy = outcome.Policy.of(queue.settings, job, call.max_attempts, call.backoff)
        settlement = outcome.succeeded(job, _result(job, call), policy)
    except NoHandler as missing:
        settlement = outcome.failed(job, str(missing), policy)
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its job's failure
        settlement = outcome.failed(job, error, policy)
    finally:
        running.leave(token)
    queue.settle(settlement)


def _result(job: ClaimedJob, call: Call) -> object:
    result = call.function(*call.args, **call.kwargs)
    if not inspect.isawaitable(result):
        return result
    timeout_ms = job.timeout_ms or call.timeout_ms

    async def wait() -> object:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            return await result

    return asyncio.run(wait())
