"""The tasks that no worker has had, of jobs that were put back for that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from schedq.operations import Operation
from schedq.operations.skimming import Skimmed, skim
from schedq.settings import Settings

_MOST_LOOKED_AT: Final = 100


@dataclass(frozen=True, slots=True)
class UnknownTask:
    """A task for which workers lack the function; its jobs are put back, and fail in the end.

    Attributes:
        task: its name; '' for payloads that are no task call.
        jobs: how many wait for it, of the delayed jobs that were looked at.
        since_ms: since when the first of them does, ms on Redis's clock.
        job_id: that one.
    """

    task: str
    jobs: int
    since_ms: int
    job_id: str


def soonest(queue: Settings) -> Operation[list[Skimmed]]:
    """The delayed jobs that are due next, among which those that were put back are, as they wait a minute at most."""
    return skim(queue, queue.keys.delayed, "due", 0, _MOST_LOOKED_AT)


def unknown_tasks(jobs: Iterable[Skimmed]) -> tuple[UnknownTask, ...]:
    """The tasks that such jobs wait for, the one with the most jobs first."""
    found: dict[str, list[Skimmed]] = {}
    for job in jobs:
        if job.unknown_since_ms:
            found.setdefault(job.task, []).append(job)
    rows = []
    for task, waiting in found.items():
        first = min(waiting, key=lambda job: (job.unknown_since_ms, job.id))
        rows.append(UnknownTask(task, len(waiting), first.unknown_since_ms, first.id))
    return tuple(sorted(rows, key=lambda row: (-row.jobs, row.task)))
