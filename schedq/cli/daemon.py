"""What long-running commands share: signal handling, the event loop and logging."""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import json
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial, wraps
from textwrap import dedent
from types import FrameType
from typing import Any, Final

import click

from schedq.errors import SchedqError
from schedq.logs import JobFields, log
from schedq.model.escaping import harmless
from schedq.worker import stacks
from schedq.worker.process import ENDED, PARENT_FD, REFUSED
from schedq.worker.stacks import log_stacks_on_signal

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_early_signals: Final[list[int]] = []
"""Stop signals that arrived before the work began."""
_LONGEST_MESSAGE: Final = 4096
_COLLECT_AFTER: Final = 10_000
"""Number of new objects after which the garbage collector runs."""
_LINGER_S: Final = 2.0
"""Seconds that the application's own threads and tasks may take to finish after the work has ended."""
_returns: Final = ContextVar("returns", default=False)
"""Whether a program runs the command and continues after it."""


def handle_signals() -> None:
    """Let SIGTERM and SIGINT exit with code 0 until the work begins, when there is nothing to stop yet.

    A child of `--processes` ignores them and leaves them to its parent, so that a signal to the whole process group
    counts once. SIGUSR1 logs the stacks.
    """
    log_stacks_on_signal()
    is_child = PARENT_FD in os.environ
    for number in _STOP_SIGNALS:
        # Not SIG_IGN: processes that handlers start would inherit it and could no longer be terminated.
        signal.signal(number, _ignore_signal if is_child else _exit_on_signal)


def run(
    work: Coroutine[Any, Any, bytes | None], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """Run the work, which handles signals itself, until it ends; a fatal error is logged and exits with code 1.

    The work may return its last word to the parent of `--processes`.

    A child of `--processes` reports the error to its parent instead, which logs it once for all children.

    Args:
        work: as above.
        loop_factory: makes the event loop; by default it is uvloop's if that is installed.
    """
    _tune_garbage_collector()
    if _early_signals:
        work.close()
        sys.exit(0)
    try:
        with asyncio.Runner(loop_factory=loop_factory or _loop_factory()) as runner:
            _run_until_complete(runner.get_loop(), _run_to_end(work))
    except SchedqError:
        sys.exit(1)  # it is already logged
    finally:
        for number in _STOP_SIGNALS:
            signal.signal(number, _ignore_signal)  # the process is exiting


@contextmanager
def returning() -> Iterator[None]:
    """A command in a program that continues after it: no exit despite threads, and signals keep their handlers."""
    before = [(number, signal.getsignal(number)) for number in (*_STOP_SIGNALS, signal.SIGUSR1)]
    token = _returns.set(True)
    try:
        yield
    finally:
        _returns.reset(token)
        for number, handler in before:
            # None is one that was not set in Python. Other threads than the main one can't set any.
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _run_until_complete(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run the loop until the work is done, even if the application's code tries to exit the process.

    A SystemExit or KeyboardInterrupt in a task or callback that a handler started stops the loop and is raised here;
    code that awaits the task receives it as well. The loop then continues. Signals no longer raise either of them.
    """
    task = loop.create_task(work)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as error:
            if task.done() or _early_signals:
                raise
            log.error("a task or callback of the application tried to exit the process; continuing", exc_info=error)


def _tune_garbage_collector() -> None:
    """Collect garbage less often, and skip everything loaded so far: this took a seventh of a busy worker's time.

    A running job consists of about twenty objects, which are freed by reference counting when it ends. By default the
    collector would traverse them after every 700 new objects.
    """
    gc.collect()
    gc.freeze()
    first, *rest = gc.get_threshold()
    if first:  # 0: the application has switched it off
        gc.set_threshold(max(first, _COLLECT_AFTER), *rest)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop factory: uvloop's if it is installed; None for asyncio's own."""
    try:
        made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return made


async def _run_to_end(work: Coroutine[Any, Any, bytes | None]) -> None:
    code, parent = 1, os.environ.get(PARENT_FD)  # the work removes it, so that processes of handlers do not inherit it
    stacks.loops.add(asyncio.get_running_loop())
    try:
        last_word = await work
        code = 0
        _notify_parent(parent, last_word or ENDED)
    except SchedqError as error:
        if not _notify_parent(parent, REFUSED + str(error).encode(errors="replace")[:_LONGEST_MESSAGE]):
            log.error("%s", error)
        raise
    finally:
        if not _returns.get():
            # From here on asyncio and the interpreter wait for the application's threads, which may never end.
            timer = threading.Timer(_LINGER_S, _exit_despite_threads, (code,))
            timer.daemon = True
            timer.start()
            atexit.register(timer.cancel)  # by then no thread is left, and flushing at exit may take longer


def _notify_parent(parent: str | None, words: bytes) -> bool:
    """Write the last message to the parent process; False if there is no parent to read it."""
    if parent is None:
        return False
    try:
        os.write(int(parent), words)
    except OSError:
        return False  # it is gone
    return True


def _exit_despite_threads(code: int) -> None:
    log.warning("exiting although some of the application's threads or tasks have not ended")
    logging.shutdown()
    os._exit(code)


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    # Python swallows exceptions of a signal handler that runs during an object's __del__, so `run` checks the list too.
    _early_signals.append(number)
    sys.exit(0)


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    pass


_STANDARD_FIELDS: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""Attributes that every log record has."""


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Local time, level, job and message on one line; a traceback or a stack follows, indented."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        fields = vars(record)
        is_own = record.name.partition(".")[0] == "schedq"  # these lines name the job in their text
        job = (
            f"[{fields['task']} {fields['job_id']}] " if "job_id" in fields and "task" in fields and not is_own else ""
        )
        text = harmless(job + record.getMessage())
        line = f"{moment:%H:%M:%S}.{int(record.msecs):03d} {record.levelname:<7} {text}"
        below = f"{_traceback(self, record)}\n{record.stack_info or ''}"
        return line + "".join(f"\n    {harmless(part)}" for part in below.split("\n") if part)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object per line: time (ISO 8601, UTC), level, logger, pid, message, other fields, traceback, stack.

        Other fields are those of the job, see `schedq.logs`, and those passed as `extra=` that are strings, numbers,
        booleans or None.
        """
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD_FIELDS and name not in entry and isinstance(value, str | int | float | None):
                # JSON has neither infinity nor NaN.
                entry[name] = str(value) if isinstance(value, float) and not math.isfinite(value) else value
        if traced := _traceback(self, record):
            entry["traceback"] = traced
        if record.stack_info:
            entry["stack"] = record.stack_info
        return json.dumps(entry)


def log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `-v`, `-q`, `--log-format` and `--log-header` to a daemon, and set up logging before it starts."""

    @click.option("-v", "--verbose", count=True, help="Log more; -vv: also messages of libraries.")
    @click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
    @click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
    @click.option(
        "--log-header",
        "log_headers",
        metavar="NAME",
        multiple=True,
        help="Add this header of the job to JSON lines about it; repeatable.",
    )
    @wraps(command)
    def logged(*, verbose: int, quiet: bool, log_format: str, log_headers: tuple[str, ...], **values: Any) -> None:
        set_up_logging(log_format, verbose, quiet=quiet, headers=log_headers)
        command(**values)

    return logged


_prepared: Callable[[], None] | None = None


def same_logging() -> Callable[[], None] | None:
    """Return a function that sets up logging in a child process as it was set up here; it can be pickled."""
    return _prepared


def set_up_logging(log_format: str, verbosity: int, *, quiet: bool = False, headers: Sequence[str] = ()) -> None:
    """Log to stderr: schedq at level info, with `-v` at debug; with `-vv` other libraries at debug too.

    With `quiet`, at level warning. `headers` are names of headers that JSON lines about a job get.
    """
    global _prepared
    _prepared = partial(set_up_logging, log_format, verbosity, quiet=quiet, headers=tuple(headers))
    if quiet and verbosity:
        raise click.UsageError("give --quiet or -v, not both")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    handler.addFilter(JobFields(headers))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity > 1 else logging.WARNING)
    logging.getLogger("schedq").setLevel(logging.WARNING if quiet else logging.DEBUG if verbosity else logging.INFO)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_text:
        return dedent(record.exc_text)
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
