"""A few facts about many jobs at once, without payloads and results; tasks that no worker has."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedq.model.progress import Progress, of_fields
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation

_SUMMARIZE: Final = Binding("summarize", "source", "order", "offset", "limit")
MOST_SUMMARIZED: Final = 120
"""The most jobs that one script summarizes; it blocks all other clients for 20 to 40 µs each."""
_WIDTH: Final = 11
_TASK: Final = re.compile(r'\s*\{\s*"task"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A few facts about one job; instants are ms on Redis's clock, 0 where they do not apply.

    Attributes:
        id: the job.
        task: the name of its task; '' if the payload is not a task call.
        lateness_ms: the time from when it could start to its last start; None if unknown.
        waits_ms: how long it has waited, counted from the last recorded instant.
        started_at_ms: when its last attempt started.
        ended_at_ms: when it completed or failed.
        attempts: claims so far.
        worker: the worker of the last attempt.
        error: the beginning of its last error, or ''.
        unknown_since_ms: since when no worker that claimed it had its task.
        progress: how far its last attempt has come; None if it reported nothing.
    """

    id: str
    task: str
    lateness_ms: int | None
    waits_ms: int
    started_at_ms: int
    ended_at_ms: int
    attempts: int
    worker: str
    error: str
    unknown_since_ms: int = 0
    progress: Progress | None = None

    @property
    def is_gone(self) -> bool:
        """Whether its record has expired, and only its entry in the list is left."""
        return not (self.attempts or self.waits_ms or self.ended_at_ms or self.error or self.task)


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of some durations, in ms; its values are None if there were none.

    Attributes:
        count: the number of durations.
        p50_ms: the median.
        p99_ms: the 99th percentile.
        max_ms: the longest.
    """

    count: int
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None

    @classmethod
    def of(cls, durations: Iterable[int]) -> Spread:
        """Compute the distribution."""
        found = sorted(durations)
        if not found:
            return cls(0, None, None, None)
        return cls(len(found), _quantile(found, 0.5), _quantile(found, 0.99), found[-1])


def _quantile(found: Sequence[int], share: float) -> int:
    return found[math.ceil(share * len(found)) - 1]


def summaries(
    queue: Settings, place: str, order: str, offset: int = 0, limit: int = MOST_SUMMARIZED
) -> Operation[list[JobSummary]]:
    """Summarize a page of a list or zset; `order` is newest, oldest or due. Large jobs shorten the page."""

    def read(reply: list[Any]) -> list[JobSummary]:
        return [_job_summary(*reply[n : n + _WIDTH]) for n in range(1, len(reply), _WIDTH)]

    return Operation("look over", *_SUMMARIZE(queue, source=place, order=order, offset=offset, limit=limit), read)


def _job_summary(
    job_id: str,
    ready: str,
    waits: str,
    started: str,
    ended: str,
    attempts: str,
    worker: str,
    error: str,
    payload: str,
    unknown: str,
    reported: str,
) -> JobSummary:
    return JobSummary(
        job_id,
        task_of(payload),
        whole(started) - whole(ready) if ready else None,
        whole(waits),
        whole(started),
        whole(ended),
        whole(attempts),
        worker,
        error,
        whole(unknown),
        of_fields({"progress": reported, "attempts": attempts})[0] if reported else None,
    )


def by_task(jobs: Iterable[JobSummary]) -> dict[str, list[JobSummary]]:
    """Group jobs by task."""
    found: dict[str, list[JobSummary]] = {}
    for job in jobs:
        found.setdefault(job.task, []).append(job)
    return found


def task_of(payload: str) -> str:
    """The task that a payload calls, from the payload's beginning; '' if that is not enough to know."""
    found = _TASK.match(payload)
    try:
        call = {"task": json.loads(found[1])} if found else json.loads(payload)  # a short payload is complete
    except ValueError:
        return ""
    return str(call.get("task", "")) if isinstance(call, dict) else ""


# -- tasks that no worker has


@dataclass(frozen=True, slots=True)
class UnknownTask:
    """A task that no worker has. Its jobs are put back, and fail in the end.

    Attributes:
        task: its name; '' for payloads that are not task calls.
        jobs: how many of the delayed jobs looked at wait for it.
        since_ms: since when the first of them has been waiting for it, ms on Redis's clock.
        job_id: the id of that job.
    """

    task: str
    jobs: int
    since_ms: int
    job_id: str


def soonest(queue: Settings) -> Operation[list[JobSummary]]:
    """The delayed jobs that are due next, including jobs that were put back, which wait at most a minute."""
    return summaries(queue, queue.keys.delayed, "due", 0, 100)


def unknown_tasks(jobs: Iterable[JobSummary]) -> tuple[UnknownTask, ...]:
    """The tasks that no worker has among these jobs, the one with the most jobs first."""
    rows = []
    for task, waiting in by_task(job for job in jobs if job.unknown_since_ms).items():
        first = min(waiting, key=lambda job: (job.unknown_since_ms, job.id))
        rows.append(UnknownTask(task, len(waiting), first.unknown_since_ms, first.id))
    return tuple(sorted(rows, key=lambda row: (-row.jobs, row.task)))
