"""What commands on jobs have in common: an answer for each id, and the reason where nothing was done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from schedq.cli import show
from schedq.queue import Queue


def for_each(
    queue: Queue, job_ids: Sequence[str], act: Callable[[str], str | None], *, wish: str, as_json: bool
) -> None:
    """Do something to each job and say what came of it; exit code 1 if one of them refused.

    Args:
        queue: where they are.
        job_ids: the jobs; one that is given twice counts once.
        act: does it; answers in words what was done, or None for nothing.
        wish: what a job must be for it, as in "only a failed job can be requeued".
        as_json: one object for all, at the end, instead of a line for each.
    """
    answers: list[dict[str, str]] = []
    refused: list[str] = []
    for job_id in dict.fromkeys(job_ids):
        done = act(job_id)
        if done is None:
            record = queue.get_job(job_id)
            state = "gone" if record is None else record.status or "without state"
            refused.append(job_id)
            answers.append({"id": job_id, "answer": "no", "state": state})
            if not as_json:
                show.warn(_why(queue, job_id, state, wish))
        else:
            answers.append({"id": job_id, "answer": done})
            if not as_json:
                show.line(f"{job_id}: {done}")
    if as_json:
        show.out_json({"queue": queue.name, "jobs": answers})
    if refused:
        raise click.exceptions.Exit(1)


def _why(queue: Queue, job_id: str, state: str, wish: str) -> str:
    if state == "gone":
        return f"nothing is stored of job {job_id} in queue {queue.name}"
    return f"job {job_id} is {state}; {wish}"
