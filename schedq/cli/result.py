"""`schedq result`: the result of a job; and waiting for it, with a bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click

from schedq.cli import output
from schedq.cli.params import DURATION, JOB_ID, json_option, queue_of_id_option, redis_option
from schedq.cli.queues import queue_of_job
from schedq.errors import JobCancelled, JobFailed
from schedq.inspect import display
from schedq.model.progress import Progress
from schedq.queue.queue import Queue


@click.command(
    epilog="""\b
Examples:
  schedq result 0d4s3…k8
  schedq result 0d4s3…k8 --wait --timeout 10m --queue emails""",
    no_args_is_help=True,
)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option("--wait", "waits", is_flag=True, help="Wait until the job has ended, with a progress bar on a terminal.")
@click.option("--timeout", type=DURATION, metavar="D", help="With --wait: stop waiting after this time.")
@queue_of_id_option
@redis_option
@json_option
def result(
    job_id: str, waits: bool, timeout: timedelta | None, queue_name: str | None, redis_url: str | None, as_json: bool
) -> None:
    """Print the result of the job ID as JSON.

    Exit code 1: there is none, because the job failed, was cancelled, has not ended yet, or is no longer stored.
    Standard error says which.
    """
    if timeout is not None and not waits:
        raise click.UsageError("--timeout needs --wait")
    with queue_of_job(queue_name, redis_url, [job_id]) as queue:
        if waits:
            wait_for_end(queue, job_id, timeout)
        show_result(queue, job_id, as_json=as_json)


def wait_for_end(queue: Queue, job_id: str, timeout: timedelta | None = None) -> None:
    """Wait until a job has ended, at most for this long, and show its progress."""
    with _bar(f"job {job_id}") as moved:
        queue.wait(job_id, timeout, on_progress=moved)


def show_result(queue: Queue, job_id: str, *, as_json: bool) -> None:
    """Print the result of a job that has ended.

    Raises:
        JobFailed, JobCancelled, JobGone, click.ClickException: there is none.
    """
    about: dict[str, Any] = {"queue": queue.name, "id": job_id}
    try:
        found = queue.result(job_id, 0)
    except TimeoutError as error:
        raise click.ClickException(str(error)) from error
    except (JobFailed, JobCancelled) as error:
        if as_json:
            status = "failed" if isinstance(error, JobFailed) else "cancelled"
            output.show_json({**about, "status": status, "error": str(error)})
            raise click.exceptions.Exit(1) from error
        raise
    output.show_json({**about, "status": "completed", "result": found} if as_json else found)


@contextmanager
def _bar(what: str) -> Iterator[Callable[[Progress], None]]:
    """Show a bar if stderr is a terminal; yields a function that takes the progress."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    texts = (TextColumn("{task.description}", markup=False), TextColumn("{task.fields[said]}", markup=False))
    columns = (texts[0], BarColumn(), texts[1], TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None, said="")

        def moved(found: Progress) -> None:
            done, total = (1, 1) if found.total == 0 else (found.done, found.total)
            bar.update(task, completed=done, total=total, said=display.progress(found))

        yield moved
