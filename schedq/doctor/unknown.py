"""Jobs that are put back because no worker that took them has their task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schedq.doctor.finding import Finding, many, span
from schedq.errors import SchedqError
from schedq.operations import Flow
from schedq.operations.unknown import UnknownTask, soonest, unknown_tasks
from schedq.settings import Settings


def look(queue: Settings) -> Flow[tuple[UnknownTask, ...]]:
    """The tasks that are missing; none where the place can't be read, which other rooms say."""
    (answer,) = yield [soonest(queue)]
    return () if isinstance(answer, SchedqError) else unknown_tasks(answer)


def judge(queue: str, found: Sequence[UnknownTask], now_ms: int) -> Iterator[Finding]:
    """The findings about them."""
    for row in found:
        what = f"the task {row.task!r:.100}" if row.task else "a handler for payloads that are no task call"
        count, them = many(row.jobs, "job waits=jobs wait"), "it" if row.jobs == 1 else "them"
        yield Finding(
            "unknown-task",
            "warning",
            f"{count} for {what}, which no worker that took {them} had in the last {span(now_ms - row.since_ms)}",
            "they are put back without spending attempts, and fail when the queue's unknown_for has passed",
            "start a worker whose code has it, or finish the deploy; if the name is wrong, cancel the jobs",
            queue=queue,
            examples=(row.job_id,),
        )
