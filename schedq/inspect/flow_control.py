"""Pauses and resumes flows."""

from __future__ import annotations

from collections.abc import Sequence

from schedq.errors import UsageError
from schedq.inspect.stats import get_job
from schedq.model.graph import CONTROL, FLOW_TASK
from schedq.model.records import JobRecord
from schedq.model.runs import Run
from schedq.model.settings import Settings
from schedq.model.tasks import is_task_call
from schedq.transitions import RoundTrips, send, unwrap


def pause(queue: Settings, job_id: str, plain_tasks: Sequence[str], *, is_paused: bool) -> RoundTrips[bool]:
    """Stop a flow from starting new nodes, or let it continue; returns False if it has ended or is not stored.

    Args:
        queue: where its job is.
        job_id: the job.
        plain_tasks: the names of tasks that are known to be no flows.
        is_paused: pause it, or let it continue.

    Raises:
        UsageError: the job is not one of a flow.
    """
    (reply,) = yield [get_job(queue, job_id)]
    record: JobRecord | None = unwrap(reply)
    if record is None:
        return False
    run = record.fields.get("run", "")
    task = record.payload["task"] if is_task_call(record.payload) else ""
    if task != FLOW_TASK and (not Run.read(run).is_flow if run else task in plain_tasks):
        raise UsageError(f"job {job_id} is not one of a flow, so it can't be paused; cancel it, or pause its task")
    (sent,) = yield [send.send(queue, job_id, CONTROL, [is_paused, Run.read(run).requeued], None, plain_tasks)]
    return bool(unwrap(sent))
