"""When a burst worker, which exits once there is nothing left to do, may exit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from schedq.background.feeders import FEEDERS
from schedq.background.reconnecting_client import ReconnectingClient, run_forever
from schedq.inspect import stats
from schedq.inspect.display import count
from schedq.logs import log
from schedq.queue.queue import QueueBase
from schedq.worker.fetcher import Fetcher
from schedq.worker.worker_context import Only

_LONG_WAIT_MS: Final = 5_000
"""How far ahead the next job must be due for a burst worker to log that it waits."""


class Served(Protocol):
    """What serves one queue: the part of a `QueueWorker` that is used here."""

    queue: QueueBase
    client: ReconnectingClient
    fetcher: Fetcher
    only: Only


async def stop_when_done(worker_id: str, queue_workers: Sequence[Served], stop: Callable[[], None]) -> None:
    """Call `stop` when the queues have no work left for this worker."""
    logged_ms = 0
    before: list[int] | None = None

    async def look() -> float:
        nonlocal logged_ms, before
        if not all(each.fetcher.is_idle for each in queue_workers):
            return 0.1
        found = await _stats(queue_workers)
        once = _totals(queue_workers, found)
        if once is None:
            logged_ms = _log_long_wait(worker_id, found, logged_ms)
            return 0.5
        # A job may have enqueued another one in a queue that was already checked. If two checks have equal results,
        # nothing happened in between.
        if once != before:
            before = once
            for feed in tuple(FEEDERS):
                await asyncio.to_thread(feed)
            for each in queue_workers:
                if each.only is not None:  # jobs wait perhaps; only a claim can tell whether they concern this worker
                    each.fetcher.look()
            return 0.0
        stop()
        return math.inf

    await run_forever(f"worker {worker_id}: burst", look)


async def _stats(queue_workers: Sequence[Served]) -> list[stats.Stats]:
    return [await each.client.ask(stats.stats(each.queue.settings)) for each in queue_workers]


def _totals(queue_workers: Sequence[Served], found: Sequence[stats.Stats]) -> list[int] | None:
    """Return how many jobs were ever enqueued in each queue; None if a queue has work.

    Pending jobs are no work for an idle worker that is limited to some tasks: it has looked at them.
    """
    for queue_worker, each in zip(queue_workers, found, strict=True):
        pending = each["pending_depth"] if queue_worker.only is None else 0
        if pending or each["delayed_depth"] or each["processing_depth"]:
            return None
    return [each["enqueued_total"] for each in found]


def _log_long_wait(worker_id: str, found: Sequence[stats.Stats], logged_ms: int) -> int:
    """Log when the next job is due if all jobs left are delayed; returns which instant was logged last."""
    delayed = [each for each in found if each["next_due_ms"] is not None]
    if not delayed or any(each["pending_depth"] or each["processing_depth"] for each in found):
        return logged_ms
    due = min(each["next_due_ms"] or 0 for each in delayed)
    if due == logged_ms or due - found[0]["now_ms"] < _LONG_WAIT_MS:
        return logged_ms
    jobs = count(sum(each["delayed_depth"] for each in delayed), "delayed job")
    at = datetime.fromtimestamp(due / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    log.info("worker %s: burst: waits for %s; the next one is due at %s", worker_id, jobs, at)
    return due
