"""`schedq enqueue`: new jobs from the shell."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, TextIO

import click

from schedq.backoff import Plan, Steps
from schedq.cli import show
from schedq.cli.options import json_option, redis_option, time_options
from schedq.cli.queues import used, warn_if_new, warn_if_no_task
from schedq.cli.typed import DURATION, DURATIONS, JOB_ID, QUEUE_NAME, Json, from_json
from schedq.durability import LEVELS, Durability
from schedq.errors import NotAcknowledged, QueueFull, SchedqError
from schedq.queue import Queue
from schedq.registry import is_task_call

_BATCH: Final = 1000


@click.command(
    short_help="Store jobs, to run now or later.",
    epilog="""\b
Examples:
  schedq enqueue emails '{"to": "ada@example.org"}' --delay 5m
  schedq enqueue emails --task send_email --args '["ada@example.org"]'
  schedq enqueue emails --lines < payloads.jsonl""",
    no_args_is_help=True,
)
@click.argument("name", type=QUEUE_NAME)
@click.argument("payload", required=False)
@click.option("--lines", is_flag=True, help="One payload on each line of standard input.")
@click.option("--task", metavar="T", help="Call the task of this name, instead of a PAYLOAD.")
@click.option("--args", type=Json(list, "JSON array"), metavar="ARRAY", help="Its positional arguments, JSON.")
@click.option("--kwargs", type=Json(dict, "JSON object"), metavar="OBJECT", help="Its keyword arguments, JSON.")
@time_options
@click.option(
    "--id", "job_id", type=JOB_ID, metavar="ID", help="Your own id: sent again with the same payload, nothing changes."
)
@click.option("--must-create", is_flag=True, help="Refuse an --id that exists, whatever its payload.")
@click.option("--reuse-id", is_flag=True, help="Replace a finished job of that --id; refuse one that waits or runs.")
@click.option("--max-attempts", type=click.IntRange(1, 1_000_000), metavar="N", help="Attempts it gets.")
@click.option("--backoff", type=DURATIONS, metavar="D[,D...]", help="Waits between attempts; the last one repeats.")
@click.option("--timeout", type=DURATION, metavar="D", help="What one attempt may take.")
@click.option("--durability", type=click.Choice(LEVELS), help="What must have it before this returns.")
@redis_option
@json_option
def enqueue(
    name: str,
    payload: str | None,
    lines: bool,  # noqa: FBT001 - click passes flags by name
    task: str | None,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    delay: timedelta | None,
    run_at: datetime | None,
    job_id: str | None,
    must_create: bool,  # noqa: FBT001
    reuse_id: bool,  # noqa: FBT001
    max_attempts: int | None,
    backoff: tuple[float, ...] | None,
    timeout: timedelta | None,
    durability: Durability | None,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Store jobs in the queue NAME, to run now or later, and print their ids.

    PAYLOAD is JSON text, or - for standard input. With --lines a line of standard input is a job; with --task the job
    calls a task of the application. A queue that is new here, and a task that no live worker knows, are warned of; the
    job is stored, as it may come before the first worker.
    """
    _check_one_source(payload, task, is_lines=lines)
    if delay is not None and run_at is not None:
        raise click.UsageError("give --delay or --run-at, not both")
    if task is None and (args is not None or kwargs is not None):
        raise click.UsageError("--args and --kwargs are for --task")
    if lines and job_id is not None:
        raise click.UsageError("--id is for one job, and --lines brings many")
    if (must_create or reuse_id) and job_id is None:
        raise click.UsageError("--must-create and --reuse-id are for an --id of your own")
    if must_create and reuse_id:
        raise click.UsageError("give --must-create or --reuse-id, not both")
    if timeout is not None and not timeout:
        raise click.BadParameter("it must be more than 0", param_hint="--timeout")
    plan: Plan | None = None if backoff is None else Steps(backoff)
    options: dict[str, Any] = {
        "delay": delay,
        "run_at": run_at,
        "max_attempts": max_attempts,
        "backoff": plan,
        "timeout": timeout,
        "durability": durability,
    }
    if lines:
        _enqueue_lines(name, redis_url, options, as_json=as_json)
        return
    found = _payload(payload) if task is None else _call(task, args, kwargs)
    with used(name, redis_url) as queue:
        _warn(queue, [found], redis_url)
        stored = queue.enqueue(found, job_id=job_id, must_create=must_create, reuse_id=reuse_id, **options)
    if as_json:
        show.out_json({"queue": name, "id": stored})
    else:
        show.line(stored)


def _check_one_source(payload: str | None, task: str | None, *, is_lines: bool) -> None:
    given = [what for what, there in (("PAYLOAD", payload), ("--lines", is_lines), ("--task", task)) if there]
    if len(given) != 1:
        raise click.UsageError(
            f"give one of PAYLOAD, --lines and --task, not {' and '.join(given)}"
            if given
            else "what shall the job be? give PAYLOAD, --lines or --task"
        )


def _payload(text: str | None) -> Any:
    return from_json(_standard_input().read() if text == "-" else text or "")


def _call(task: str, args: list[Any] | None, kwargs: dict[str, Any] | None) -> dict[str, Any]:
    call: dict[str, Any] = {"task": task}
    if args:
        call["args"] = args
    if kwargs:
        call["kwargs"] = kwargs
    return call


def _standard_input() -> TextIO:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    if isinstance(sys.stdin, io.TextIOWrapper):
        # Bytes that are no UTF-8 come through, to be refused as such with the number of their line.
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    return sys.stdin


def _enqueue_lines(name: str, redis_url: str | None, options: dict[str, Any], *, as_json: bool) -> None:
    """Store a job for each line, a batch at a time; what was stored before a mistake is printed, and stays."""
    ids: list[str] = []

    def stored(some: list[str]) -> None:
        if as_json:
            ids.extend(some)
        else:
            for job_id in some:
                show.line(job_id)

    with ExitStack() as end:
        if as_json:
            end.callback(lambda: show.out_json({"queue": name, "ids": ids}))
        with used(name, redis_url) as queue:
            _store(queue, options, stored, redis_url)


def _warn(queue: Queue, payloads: Iterable[Any], redis_url: str | None) -> None:
    """Say what may be mistyped. The first job of a queue may come before its first worker, so it is stored."""
    with suppress(SchedqError):  # who may enqueue need not be allowed to look
        warn_if_new(queue, redis_url)
        warn_if_no_task(queue, [payload["task"] for payload in payloads if is_task_call(payload)])


def _store(queue: Queue, options: dict[str, Any], stored: Callable[[list[str]], None], redis_url: str | None) -> None:
    count = 0
    payloads = _parsed(_standard_input())
    while True:
        try:
            batch = list(islice(payloads, _BATCH))
            if not batch:
                return
            if not count:
                _warn(queue, batch, redis_url)
            some = queue.enqueue_many(batch, **options)
        except (QueueFull, NotAcknowledged) as error:
            stored(list(error.stored))
            raise
        except (SchedqError, click.ClickException) as error:
            raise click.ClickException(f"{_said(error)}; {show.count(count, 'job')} before it stored") from error
        stored(some)
        count += len(some)


def _said(error: Exception) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def _parsed(lines: TextIO) -> Iterator[Any]:
    for number, text in enumerate(lines, 1):
        if text.strip():
            try:
                yield from_json(text)
            except click.BadParameter as error:
                raise click.ClickException(f"line {number}: {error.message}") from error
