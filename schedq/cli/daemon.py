"""Commands that run until they are told to stop: their signals, their event loop, their log."""

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
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import wraps
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
"""Signals to stop that came before the work had begun."""
_LONGEST_MESSAGE: Final = 4096
_COLLECT_AFTER: Final = 10_000
"""New objects after which the collector looks for cycles."""
_LINGER_S: Final = 2.0
"""Seconds after the end of the work in which the application's own threads and tasks may end."""


def handle_signals() -> None:
    """Let SIGTERM and SIGINT end the process with code 0 until the work has begun: there is nothing to stop yet.

    A child of `--processes` leaves them to its parent from here on, so that a signal to the whole group counts once.
    SIGUSR1 logs the stacks.
    """
    log_stacks_on_signal()
    is_child = PARENT_FD in os.environ
    for number in _STOP_SIGNALS:
        # Not SIG_IGN: processes that handlers start would inherit it, and could not be ended any more.
        signal.signal(number, _ignore_signal if is_child else _exit_on_signal)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run the work, which handles the signals, to its end; a fatal error is logged, and the exit code is 1.

    A child of `--processes` tells its parent instead, which logs it once for all.
    """
    _tune_garbage_collector()
    if _early_signals:
        work.close()
        sys.exit(0)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            _run_until_complete(runner.get_loop(), _run_to_end(work))
    except SchedqError:
        sys.exit(1)  # it is in the log
    finally:
        for number in _STOP_SIGNALS:
            signal.signal(number, _ignore_signal)  # it is on its way out


def _run_until_complete(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run the loop until the work is done, even if the application's code tries to end the process.

    A SystemExit or KeyboardInterrupt in a task or callback that a handler started stops the loop and is raised here.
    A caller that awaits the task receives it as well; the loop then continues. Signals raise neither by now.
    """
    task = loop.create_task(work)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as error:
            if task.done() or _early_signals:
                raise
            log.error("a task or callback of the application tried to end the process; going on", exc_info=error)


def _tune_garbage_collector() -> None:
    """Collect garbage less often, and never in what is loaded by now: that took a seventh of a busy worker's time.

    A running job is some twenty objects, which are freed without the collector when it ends. By default the collector
    would look through them for every 700 new ones.
    """
    gc.collect()
    gc.freeze()
    first, *rest = gc.get_threshold()
    if first:  # 0: the application has switched it off
        gc.set_threshold(max(first, _COLLECT_AFTER), *rest)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of the event loop: uvloop's if it is installed; None for asyncio's own."""
    try:
        made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return made


async def _run_to_end(work: Coroutine[Any, Any, None]) -> None:
    code, parent = 1, os.environ.get(PARENT_FD)  # which the work takes out, so that no handler's process inherits it
    stacks.loops.add(asyncio.get_running_loop())
    try:
        await work
        code = 0
        _notify_parent(parent, ENDED)
    except SchedqError as error:
        if not _notify_parent(parent, REFUSED + str(error).encode(errors="replace")[:_LONGEST_MESSAGE]):
            log.error("%s", error)
        raise
    finally:
        # From here on asyncio and the interpreter wait for what the application started, which may never end.
        timer = threading.Timer(_LINGER_S, _exit_despite_threads, (code,))
        timer.daemon = True
        timer.start()
        atexit.register(timer.cancel)  # no thread is left then, and a flush at exit may take longer


def _notify_parent(parent: str | None, words: bytes) -> bool:
    """Write the last message to the parent process; False if there is none that can read it."""
    if parent is None:
        return False
    try:
        os.write(int(parent), words)
    except OSError:
        return False  # it is gone
    return True


def _exit_despite_threads(code: int) -> None:
    log.warning("leaving without the threads and tasks that do not end")
    logging.shutdown()
    os._exit(code)


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    # Python drops what a signal handler raises while an object's __del__ runs, so `run` checks the list too.
    _early_signals.append(number)
    sys.exit(0)


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    pass


_STANDARD_FIELDS: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""Fields that every record has."""


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Local time, level and message on one line; a traceback or a stack follows, indented."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        line = f"{moment:%H:%M:%S}.{int(record.msecs):03d} {record.levelname:<7} {harmless(record.getMessage())}"
        below = f"{_traceback(self, record)}\n{record.stack_info or ''}"
        return line + "".join(f"\n    {harmless(part)}" for part in below.split("\n") if part)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One object per line: time (ISO 8601, UTC), level, logger, pid, message, further fields, traceback, stack.

        Further fields are those of a job, see `schedq.logs`, and those that the caller passed as `extra=`, if they are
        strings, numbers, booleans or None.
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
                # JSON has no infinity and no NaN.
                entry[name] = str(value) if isinstance(value, float) and not math.isfinite(value) else value
        if traced := _traceback(self, record):
            entry["traceback"] = traced
        if record.stack_info:
            entry["stack"] = record.stack_info
        return json.dumps(entry)


def log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `-v`, `-q` and `--log-format` to a daemon, and set up its log before it starts."""

    @click.option("-v", "--verbose", count=True, help="Say more; twice: also what libraries say.")
    @click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
    @click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
    @wraps(command)
    def logged(*, verbose: int, quiet: bool, log_format: str, **values: Any) -> None:
        set_up_logging(log_format, verbose, quiet=quiet)
        command(**values)

    return logged


def set_up_logging(log_format: str, verbosity: int, *, quiet: bool = False) -> None:
    """Log to stderr: schedq from level info on, from debug with `-v`, other libraries from debug too with `-vv`.

    With `quiet`, from level warning on.
    """
    if quiet and verbosity:
        raise click.UsageError("--quiet and -v exclude each other")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    handler.addFilter(JobFields())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity > 1 else logging.WARNING)
    logging.getLogger("schedq").setLevel(logging.WARNING if quiet else logging.DEBUG if verbosity else logging.INFO)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_text:
        return dedent(record.exc_text)
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
