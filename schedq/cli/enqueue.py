"""`schedq enqueue`: store jobs."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, Final, Literal, TextIO

import click

from schedq.cli import offers, output
from schedq.cli.params import (
    DURATION,
    DURATIONS,
    GATE_KEY,
    GATE_NAME,
    HEADER,
    JOB_ID,
    UNIQUE_KEY,
    Checked,
    Offered,
    delay_option,
    from_json,
    json_of,
    json_option,
    option_group,
    redis_option,
    run_at_option,
)
from schedq.cli.queue_argument import QueueCommand, queue_argument
from schedq.cli.queues import (
    open_or_create,
    warn_if_new,
    warn_if_no_task,
    wrong_usage,
)
from schedq.cli.result import show_result, wait_for_end
from schedq.errors import NotAcknowledged, QueueFull, SchedqError, UsageError
from schedq.inspect import display
from schedq.model.backoff import Steps
from schedq.model.durability import LEVELS
from schedq.model.headers import stored_headers
from schedq.model.records import Options
from schedq.model.tasks import is_task_call
from schedq.model.times import parsed_duration
from schedq.model.unique import Unique
from schedq.queue.queue import Queue
from schedq.transitions.enqueue import create, prepare

_BATCH: Final = 1000
_OF_OWN_IDS: Final = ("job_id", "must_create", "reuse_id")
"""Options that apply to a single job only."""


_FOREVER: Final = timedelta.max


def _how_long(text: str) -> timedelta:
    return parsed_duration(text) if text else _FOREVER


_WAIT: Final = Checked("duration", _how_long)


class _EnqueueCommand(QueueCommand):
    """Reads `--wait` with and without a duration."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_wait(ctx, list(args)))

    def _with_wait(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The same words, with `--wait=` or `--wait=D` for `--wait` and `--wait D`.

        A number after --wait is the payload if there is no other payload and no task: `enqueue mail --wait 5`.
        """
        end = args.index("--") if "--" in args else len(args)
        if "--wait" not in args[:end]:
            return args
        at = args.index("--wait")
        before, after = args[:at], args[at + 1 :]
        if after and _is_duration(after[0]):
            rest = self.given(ctx, [*before, *after[1:]])
            words = sum(name in rest for name in self.positions())
            is_named = "queue_name" in rest and rest["queue_name"] != rest.get("name")
            if "task" in rest or words + is_named == len(self.positions()):
                return [*before, f"--wait={after[0]}", *after[1:]]
        return [*before, "--wait=", *after]


def _is_duration(text: str) -> bool:
    try:
        parsed_duration(text)
    except UsageError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class UniqueOptions:
    """The rule of a unique job as a user gave it; without `unique` there is none."""

    unique: str | None = None
    until: Literal["done", "start"] | None = None
    per: timedelta | None = None
    on_conflict: Literal["keep", "replace", "raise"] | None = None

    def rule(self, *, is_many: bool) -> Unique | None:
        """The rule; None for a job that is not unique.

        Raises:
            click.UsageError: there is a rule without a key, or a key for several jobs.
        """
        if self.unique is None:
            if self.until or self.per is not None or self.on_conflict:
                raise click.UsageError("--until, --per and --on-conflict need --unique KEY")
            return None
        if is_many:
            raise click.UsageError("--unique is the key of one job and can't be used with --lines")
        return Unique(key=self.unique, until=self.until or "done", per=self.per, on_conflict=self.on_conflict or "keep")


unique_options: Final = option_group(
    "uniqueness",
    UniqueOptions,
    click.option(
        "--unique", type=UNIQUE_KEY, metavar="KEY", help="Store no job if another one holds this key; print its id."
    ),
    click.option(
        "--until",
        type=click.Choice(["done", "start"]),
        help="With --unique: hold the key until the job has ended (the default), or only until it begins.",
    ),
    click.option("--per", type=DURATION, metavar="D", help="With --unique: also hold the key for this long from now."),
    click.option(
        "--on-conflict",
        type=click.Choice(["keep", "replace", "raise"]),
        help="With --unique: keep the job that holds the key as it is (the default), replace its payload and options "
        "if it has not begun, or fail.",
    ),
)


@click.command(
    cls=_EnqueueCommand,
    epilog="""\b
Examples:
  schedq enqueue emails '{"to": "ada@example.org"}' --delay 5m
  schedq enqueue emails --task send_email --args '["ada@example.org"]'
  schedq enqueue emails --task send_report --unique nightly
  schedq enqueue emails --task sync --args '[42]' --gate api --key 42
  schedq enqueue emails --lines < payloads.jsonl""",
    no_args_is_help=True,
)
@queue_argument()
@click.argument("payload", required=False)
@click.option("--lines", is_flag=True, help="Read one payload from each line of standard input.")
@click.option(
    "--task",
    type=Offered("task", str, offers.tasks),
    metavar="T",
    help="Call the task with this name, instead of giving a PAYLOAD.",
)
@click.option("--args", type=json_of(list, "JSON array"), metavar="ARRAY", help="Positional arguments of the task.")
@click.option("--kwargs", type=json_of(dict, "JSON object"), metavar="OBJECT", help="Keyword arguments of the task.")
@delay_option
@run_at_option
@click.option(
    "--id",
    "job_id",
    type=JOB_ID,
    metavar="ID",
    help="Your own id; enqueuing it again with the same payload changes nothing.",
)
@click.option("--must-create", is_flag=True, help="Refuse an --id that already exists, whatever its payload.")
@click.option("--reuse-id", is_flag=True, help="Replace a finished job with that --id; refuse one that waits or runs.")
@click.option("--max-attempts", type=click.IntRange(1, 1_000_000), metavar="N", help="Maximum number of attempts.")
@click.option("--backoff", type=DURATIONS, metavar="D[,D...]", help="Delays between attempts; the last one repeats.")
@click.option("--timeout", type=DURATION, metavar="D", help="How long one attempt may take.")
@click.option(
    "--expires", type=DURATION, metavar="D", help="Cancel the job if it has not begun by then, counted from now."
)
@click.option(
    "--header",
    "headers",
    type=HEADER,
    metavar="NAME=VALUE",
    multiple=True,
    help="A text attached to the job, for its handler and middleware; repeatable.",
)
@click.option("--completed-ttl", type=DURATION, metavar="D", help="How long to keep its record once it has completed.")
@click.option("--failed-ttl", type=DURATION, metavar="D", help="The same once it has failed or was cancelled.")
@unique_options
@click.option("--gate", type=GATE_NAME, metavar="G", help="The gate for whose limits the job counts.")
@click.option("--key", type=GATE_KEY, metavar="K", help="With --gate: the job's key there; different keys take turns.")
@click.option("--durability", type=click.Choice(LEVELS), help="Where the job must be stored before this returns.")
@click.option(
    "--wait",
    "wait",
    type=_WAIT,
    metavar="[D]",
    help="Wait until the job has ended, at most for this long, with a progress bar on a terminal, and print its result "
    "instead of its id.",
)
@redis_option
@json_option
def enqueue(
    name: str,
    payload: str | None,
    lines: bool,
    task: str | None,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    wait: timedelta | None,
    uniqueness: UniqueOptions,
    redis_url: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Store jobs in the queue NAME, to run now or later, and print their ids.

    With --wait, print the job's result as `schedq result` does; the exit code is 1 if there is none, or none in time.

    PAYLOAD is JSON text, or - for standard input. With --lines, each line of standard input is a job; with --task, the
    job calls a task of the application. A new queue, or a task that no live worker has, prints a warning; the job is
    stored anyway, because the worker may start later.
    """
    _check_source(payload, task, lines=lines, has_arguments=args is not None or kwargs is not None)
    _check_options(**options, waits=wait is not None, is_many=lines)
    options |= {"headers": _headers(options["headers"]), "backoff": options["backoff"] and Steps(options["backoff"])}
    rule = uniqueness.rule(is_many=lines)
    if lines:
        _enqueue_lines(name, redis_url, options, as_json=as_json)
        return
    job = _job(payload, task, args=args, kwargs=kwargs)
    with open_or_create(name, redis_url) as queue:
        _warn(queue, [job], redis_url, options["gate"])
        stored, is_new = _enqueue_one(queue, job, Options(**options, unique=rule), as_json=as_json)
        if wait is not None:
            output.warn(f"job {stored}")
            wait_for_end(queue, stored, None if wait == _FOREVER else wait)
            show_result(queue, stored, as_json=as_json)
        elif as_json:
            output.show_json({"queue": name, "id": stored, "created": is_new})
        else:
            output.line(stored)


def _enqueue_one(queue: Queue, payload: Any, options: Options, *, as_json: bool) -> tuple[str, bool]:
    """Store one job; returns its id, and whether it is new. Says so if another job holds its unique key."""
    encoded = prepare(queue.settings, payload, options, is_marked=True)
    stored, is_new = queue._ask(create(queue.settings, encoded))
    if isinstance(options.unique, Unique) and not (is_new or as_json or stored == options.job_id):
        output.warn(f"no new job: job {stored} holds the unique key {options.unique.key!r}")
    return stored, is_new


def _check_source(payload: str | None, task: str | None, *, lines: bool, has_arguments: bool) -> None:
    """Refuse a command that says twice or not at all what to enqueue."""
    given = [name for name, value in (("PAYLOAD", payload), ("--lines", lines), ("--task", task)) if value]
    if not given:
        raise click.UsageError("nothing to enqueue: give PAYLOAD, --lines or --task")
    if len(given) > 1:
        raise click.UsageError(f"give one of PAYLOAD, --lines and --task, not {' and '.join(given)}")
    if task is None and has_arguments:
        raise click.UsageError("--args and --kwargs need --task")


def _job(payload: str | None, task: str | None, **arguments: object) -> Any:
    """The payload of a single job."""
    if task is not None:
        return {"task": task} | {name: value for name, value in arguments.items() if value}
    return from_json(utf8(sys.stdin).read() if payload == "-" else payload or "")


def _headers(given: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """The headers by name; None without any."""
    headers = dict(given)
    if len(headers) < len(given):
        twice = next(name for name, count in Counter(name for name, _ in given).items() if count > 1)
        raise click.BadParameter(f"{twice!r:.80} is given twice", param_hint="--header")
    with wrong_usage():
        stored_headers(headers)
    return headers or None


def _check_options(
    *,
    delay: object,
    run_at: object,
    job_id: object,
    gate: object,
    key: object,
    must_create: bool,
    reuse_id: bool,
    timeout: object,
    expires: object,
    waits: bool,
    is_many: bool,
    **_: object,
) -> None:
    """Refuse options that can't be combined."""
    mistakes = {
        "give --delay or --run-at, not both": delay is not None and run_at is not None,
        "--id names one job and can't be used with --lines": is_many and job_id is not None,
        "--wait waits for one job and can't be used with --lines": is_many and waits,
        "--key needs --gate": key is not None and gate is None,
        "--must-create and --reuse-id need --id": (must_create or reuse_id) and job_id is None,
        "give --must-create or --reuse-id, not both": must_create and reuse_id,
    }
    for mistake, is_made in mistakes.items():
        if is_made:
            raise click.UsageError(mistake)
    for option, value in (("--timeout", timeout), ("--expires", expires)):
        if value is not None and not value:
            raise click.BadParameter("it must be more than 0", param_hint=option)


def _enqueue_lines(name: str, redis_url: str | None, options: dict[str, Any], *, as_json: bool) -> None:
    """Store a job for each line, batch by batch. Jobs stored before an error stay, and their ids are printed."""
    ids: list[str] = []

    def stored(some: Iterable[str]) -> None:
        for job_id in some:
            ids.append(job_id)
            if not as_json:
                output.line(job_id)

    try:
        with open_or_create(name, redis_url) as queue:
            _store(
                queue, {name: value for name, value in options.items() if name not in _OF_OWN_IDS}, stored, redis_url
            )
    finally:
        if as_json:
            output.show_json({"queue": name, "ids": ids})


def _store(
    queue: Queue, options: dict[str, Any], stored: Callable[[Iterable[str]], None], redis_url: str | None
) -> None:
    count = 0
    payloads = _payloads(utf8(sys.stdin))
    try:
        while batch := list(islice(payloads, _BATCH)):
            if not count:
                _warn(queue, batch, redis_url, options["gate"])
            stored(queue.enqueue_many(batch, **options))
            count += len(batch)
    except (QueueFull, NotAcknowledged) as error:
        stored(error.stored)
        raise
    except (SchedqError, click.ClickException) as error:
        raise click.ClickException(f"{error}; {display.count(count, 'job')} before it stored") from error


def _warn(queue: Queue, payloads: Iterable[Any], redis_url: str | None, gate: str | None) -> None:
    """Warn about names that may be mistyped. The job is stored anyway: the worker may start later."""
    with suppress(SchedqError):  # a user who may enqueue is not necessarily allowed to read
        warn_if_new(queue, redis_url)
        warn_if_no_task(queue, [payload["task"] for payload in payloads if is_task_call(payload)])
        if gate is not None and queue.gates.get(gate) is None:
            output.warn(f"queue {queue.name} has no gate {gate} yet, so it limits nothing")


def _payloads(lines: TextIO) -> Iterator[Any]:
    for number, text in enumerate(lines, 1):
        if text.strip():
            try:
                yield from_json(text)
            except click.BadParameter as error:
                raise click.ClickException(f"line {number}: {error.message}") from error


def utf8(file: TextIO | None) -> TextIO:
    """The file, decoded so that a line that is not UTF-8 can be reported by its number."""
    if file is None:
        raise click.UsageError("standard input is closed")
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(encoding="utf-8", errors="surrogateescape")
    return file
