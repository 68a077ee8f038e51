"""Queues with jobs of several kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from schedq.model.ids import new_request
from schedq.model.records import Settlement
from schedq.model.task_stats import bin_of, bins_text
from schedq.transitions import claim, count_tasks
from scripts.tools.settling import settle_all
from tests.doors import Handle


def report(queue: Any, task: str, *, run_ms: Sequence[int] = (), late_ms: Sequence[int] = (), **ends: int) -> None:
    """Let a worker report what it counted of a task; `ends` are completed, failed, retried and cancelled."""
    sums = [ends.get(end, 0) for end in ("completed", "failed", "retried", "cancelled")]
    bins = [bins_text(Counter(map(bin_of, times))) for times in (run_ms, late_ms)]
    longest = f"{max(run_ms, default=0)} {max(late_ms, default=0)}"
    text = f"{' '.join(map(str, [*sums, sum(run_ms)]))}|{longest}|{bins[0]}|{bins[1]}"
    queue._ask(count_tasks.count_tasks(queue.settings, new_request(), 1, {task: text}))


def call(task: str, *args: Any) -> dict[str, Any]:
    """A call of a task, as a payload."""
    return {"task": task, "args": list(args)}


def failed(queue: Handle, payloads: list[Any], error: str = "no use") -> list[str]:
    """Failed jobs, oldest first."""
    return ended(queue, payloads, Settlement("fail", "", "", text=error, note=error))


def ended(queue: Handle, payloads: list[Any], how: Settlement) -> list[str]:
    """Jobs that ended in one way, oldest first, a batch per request, because one by one would be slow."""
    ids: list[str] = queue.enqueue_many(payloads)
    left = len(ids)
    while left > 0:
        (claimed,) = queue.execute([claim.claim(queue.settings, new_request(), min(left, 50))])
        ends = [how._replace(job_id=job.id, token=job.claim_token) for job in claimed.jobs]
        assert set(queue.drive(settle_all(queue.settings, ends))) == {"OK"}
        left -= len(ends)
    return ids


def every(queue: Handle, state: str, *, limit: int = 1000, **wanted: Any) -> list[str]:
    """The ids of all that match, page by page."""
    found: list[str] = []
    cursor = None
    while True:
        page = queue.inspector.find(state, limit=limit, cursor=cursor, **wanted)
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return found


def acts(queue: Handle) -> list[dict[str, str]]:
    """The audit log's entries about actions on many jobs."""
    entries = [fields for _, fields in queue.redis.xrange(queue.keys.log)]
    return [fields for fields in entries if fields["move"].startswith("act ")]
