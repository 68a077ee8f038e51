"""The logger that every module of schedq uses, and a filter that adds a job's fields to an application's own log.

The logger guarantees two things, whatever handlers and formatters an application uses. Text from users can neither
start a new log line nor control a terminal. And if a filter or handler raises, its line is lost, but the worker
continues.

    handler.addFilter(schedq.logs.JobFields())

Every record logged while a job runs then has the attributes `job_id`, `queue`, `task`, `attempt` and `worker`, for
any formatter. `schedq worker --log-format json` has this built in.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from textwrap import indent
from types import TracebackType
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.current_job import CurrentJob, running_job
from schedq.model.escaping import harmless, harmless_lines, rendered
from schedq.observer import AttemptEnd, AttemptFacts, Observer

_Raised = tuple[type[BaseException], BaseException, TracebackType | None]
_TRACEBACK: Final = BaseException.__dict__["__traceback__"]
"""The original descriptor: a subclass may have overridden `__traceback__`."""
_FRAMES_BETWEEN: Final = 2
"""Frames of this module between `findCaller` and the caller: `_record` and `log`."""


class Logger(logging.LoggerAdapter[logging.Logger]):
    """Logs like a `logging.Logger`, but escapes tracebacks and keeps every argument on one line."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})
        self._reported: set[str] = set()

    def log(
        self,
        level: int,
        msg: object,
        *args: object,
        exc_info: Any = None,
        stack_info: bool = False,
        stacklevel: int = 1,
        extra: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        """Log a message.

        Args:
            level: a level of `logging`.
            msg: a format string with `%` placeholders.
            args: numbers are passed unchanged, everything else is turned into one line of text.
            exc_info: an exception, or True for the one being handled.
            stack_info: add the caller's stack.
            stacklevel: as in `logging`.
            extra: attributes of the record, unchanged.
            kwargs: `below`: lines to show below the message, either the traceback of `exc_info` rendered earlier, or
                a stack.
        """
        if not self.logger.isEnabledFor(level):
            return
        below = str(kwargs.get("below", ""))
        try:
            record = self._record(level, msg, args, _raised(exc_info), stacklevel, extra, stack_info=stack_info)
            if record.exc_info:
                # Indented, so that none of its lines, such as an exception's note, can be mistaken for a log line.
                record.exc_text = indent(harmless_lines(below or rendered(record.exc_info[1])), "  ")
            elif below:
                record.stack_info = harmless_lines(below.rstrip("\n"))
            self.logger.handle(record)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a filter or handler may do anything; the work must continue
            self._report(problem)

    def _record(
        self,
        level: int,
        msg: object,
        args: tuple[object, ...],
        raised: _Raised | None,
        stacklevel: int,
        extra: Mapping[str, object] | None,
        *,
        stack_info: bool,
    ) -> logging.LogRecord:
        logger, known = self.logger, tuple(_printable(value) for value in args)
        file, line, function, stack = logger.findCaller(stack_info, stacklevel + _FRAMES_BETWEEN)
        return logger.makeRecord(logger.name, level, file, line, msg, known, raised, function, extra, stack)

    def _report(self, problem: BaseException) -> None:
        """Report on stderr, as `logging` does, that lines are lost; once for each type of exception."""
        kind = type(problem).__name__
        if kind not in self._reported and logging.raiseExceptions:
            self._reported.add(kind)
            with suppress(Exception):
                sys.stderr.write(f"schedq: a log line is lost, a filter or handler raised {kind}\n")
                sys.stderr.write(rendered(problem) + "\n")


def _printable(value: object) -> object:
    """An argument for a log message: a number unchanged, for `%d`; anything else as one line of text."""
    return value if isinstance(value, int | float) else harmless(str(value))


def _raised(exc_info: Any) -> _Raised | None:
    """`exc_info` in the form that a log record needs. An exception may be falsy, by its own `__bool__`."""
    if isinstance(exc_info, BaseException):
        return type(exc_info), exc_info, _TRACEBACK.__get__(exc_info)
    if exc_info is True:
        exc_info = sys.exc_info()
    return None if not isinstance(exc_info, tuple) or exc_info[0] is None else exc_info


log: Final = Logger(logging.getLogger("schedq"))
FIELDS: Final = ("job_id", "queue", "task", "attempt", "worker", "duration_s", "lateness_s", "outcome", "error")
"""Attributes of log records about an attempt; `duration_s` and `lateness_s` are seconds.

Those that the worker writes itself have the job's headers, if there are any, as the mapping `headers`.
"""


class JobFields(logging.Filter):
    """Adds the fields of the current job, if there is one, to every record; lets all records pass.

    Attach it to a handler of `logging`. Attributes that a record already has, from `extra=`, are kept.

    Args:
        headers: names of headers whose values become fields too, also in the worker's own lines about an attempt.

    Raises:
        UsageError: `headers` is one text instead of a list of names.
    """

    def __init__(self, headers: Sequence[str] = ()) -> None:
        super().__init__()
        if isinstance(headers, str):
            raise UsageError(f"headers must be a list of names, got {headers!r:.200}; write [{headers!r:.200}]")
        self._headers = frozenset(headers)

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the job's fields and return True."""
        job = running_job()
        if job is not None:
            known = {
                "job_id": harmless(job.id),  # another program may have chosen it
                "queue": job.queue,
                "task": harmless(job.task),
                "attempt": job.attempts,
                "worker": job.worker,
            }
            for name, value in known.items():
                record.__dict__.setdefault(name, value)
        if self._headers:
            self._add_headers(record, job)
        return True

    def _add_headers(self, record: logging.LogRecord, job: CurrentJob | None) -> None:
        headers: object = getattr(record, "headers", None) if job is None else job.headers
        if isinstance(headers, Mapping):
            for name in headers.keys() & self._headers:
                record.__dict__.setdefault(name, harmless(str(headers[name])))


class AttemptLog(Observer):
    """Logs a debug message at the start and at the end of every attempt; the fields include its duration."""

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """Log that the attempt started."""
        log.debug(
            "job %s: %s started, attempt %d",
            attempt.job.id,
            attempt.task or "a payload without a handler",
            attempt.job.attempts,
            extra=_fields(attempt),
        )

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """Log the outcome of the attempt."""
        fields = _fields(attempt) | {"duration_s": round(end.duration_s, 6), "outcome": end.outcome}
        if end.error:
            fields["error"] = end.error
        task = attempt.task or "a payload without a handler"
        log.debug(
            "job %s: %s %s, attempt %d, %.3f s",
            attempt.job.id,
            task,
            end.outcome,
            attempt.job.attempts,
            end.duration_s,
            extra=fields,
        )


def _fields(attempt: AttemptFacts) -> dict[str, object]:
    fields: dict[str, object] = {
        "job_id": harmless(attempt.job.id),
        "queue": attempt.queue,
        "task": harmless(attempt.task),
        "attempt": attempt.job.attempts,
        "worker": attempt.worker,
    }
    if attempt.lateness_ms is not None:
        fields["lateness_s"] = attempt.lateness_ms / 1000
    if attempt.job.headers:
        fields["headers"] = attempt.job.headers
    return fields
