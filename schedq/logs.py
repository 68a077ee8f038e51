"""The logger of schedq, through which every module logs, and the fields of a job for an application's own lines.

The logger keeps two promises. No text that a user gave can start a line of its own or steer a terminal, whatever
handlers and formatters an application uses. And a filter or handler that raises loses its line, but never stops a
worker.

    handler.addFilter(schedq.logs.JobFields())

Every line that is written while a handler runs then has `job_id`, `queue`, `task`, `attempt` and `worker`, for
whichever formatter the application uses. `schedq worker --log-format json` has that built in.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from textwrap import indent
from types import TracebackType
from typing import Any, Final

from schedq.model.current_job import running_job
from schedq.model.escaping import harmless, harmless_lines, rendered
from schedq.observer import AttemptEnd, AttemptFacts, Observer

_Raised = tuple[type[BaseException], BaseException, TracebackType | None]
_TRACEBACK: Final = BaseException.__dict__["__traceback__"]
"""A subclass may have made another one of it."""
_FRAMES_BETWEEN: Final = 2
"""Frames of this module between `findCaller` and the caller: `_record` and `log`."""


class Logger(logging.LoggerAdapter[logging.Logger]):
    """Logs as a `logging.Logger` does, with every argument on one line and every traceback escaped."""

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
        """Log a line.

        Args:
            level: of `logging`.
            msg: a sentence with places for the arguments.
            args: numbers stay what they are, everything else becomes one line of text.
            exc_info: an exception, or True for the one being handled.
            stack_info: add the caller's stack.
            stacklevel: as in `logging`.
            extra: attributes of the record, unchanged.
            kwargs: `below`, lines below the sentence: the traceback of `exc_info` if that was rendered before, else a
                stack.
        """
        if not self.logger.isEnabledFor(level):
            return
        below = str(kwargs.get("below", ""))
        try:
            record = self._record(level, msg, args, _raised(exc_info), stacklevel, extra, stack_info=stack_info)
            if record.exc_info:
                # Set in, so that no line of it, such as a note, can pass for another line of the log.
                record.exc_text = indent(harmless_lines(below or rendered(record.exc_info[1])), "  ")
            elif below:
                record.stack_info = harmless_lines(below.rstrip("\n"))
            self.logger.handle(record)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a filter or handler may do anything; the work must go on
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
        logger, known = self.logger, tuple(_told(value) for value in args)
        file, line, function, stack = logger.findCaller(stack_info, stacklevel + _FRAMES_BETWEEN)
        return logger.makeRecord(logger.name, level, file, line, msg, known, raised, function, extra, stack)

    def _report(self, problem: BaseException) -> None:
        """Tell, once for each kind of problem, that lines are lost: where `logging` itself tells of such things."""
        kind = type(problem).__name__
        if kind not in self._reported and logging.raiseExceptions:
            self._reported.add(kind)
            with suppress(Exception):
                sys.stderr.write(f"schedq: a log line is lost, a filter or handler raised {kind}\n")
                sys.stderr.write(rendered(problem) + "\n")


def _told(value: object) -> object:
    """An argument of a log line: a number as it is, for `%d`, anything else as one line of text."""
    return value if isinstance(value, int | float) else harmless(str(value))


def _raised(exc_info: Any) -> _Raised | None:
    """What `exc_info` means, as a record has it. An exception may be false by its own `__bool__`."""
    if isinstance(exc_info, BaseException):
        return type(exc_info), exc_info, _TRACEBACK.__get__(exc_info)
    if exc_info is True:
        exc_info = sys.exc_info()
    return None if not isinstance(exc_info, tuple) or exc_info[0] is None else exc_info


log: Final = Logger(logging.getLogger("schedq"))
FIELDS: Final = ("job_id", "queue", "task", "attempt", "worker", "duration_s", "lateness_s", "outcome", "error")
"""What lines about an attempt carry as attributes of their record: `duration_s` and `lateness_s` are seconds."""


class JobFields(logging.Filter):
    """Lets every record pass, and gives it the fields of the job that the caller runs, if it runs one.

    For a handler of `logging`. What a record says itself, by `extra=`, stays.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add what is known."""
        job = running_job()
        if job is not None:
            known = {
                "job_id": harmless(job.id),  # another program may have made it
                "queue": job.queue,
                "task": harmless(job.task),
                "attempt": job.attempts,
                "worker": job.worker,
            }
            for name, value in known.items():
                record.__dict__.setdefault(name, value)
        return True


class AttemptLog(Observer):
    """A line of level debug at the start of every attempt, and one at its end; the fields say how long it took."""

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """Say so."""
        log.debug(
            "job %s: %s started, attempt %d",
            attempt.job.id,
            attempt.task or "what nothing here can run",
            attempt.job.attempts,
            extra=_fields(attempt),
        )

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """Say how."""
        fields = _fields(attempt) | {"duration_s": round(end.duration_s, 6), "outcome": end.outcome}
        if end.error:
            fields["error"] = end.error
        task = attempt.task or "what nothing here can run"
        log.debug(
            "job %s: %s %s, attempt %d, %.3f s",
            attempt.job.id,
            task,
            end.outcome,
            attempt.job.attempts,
            end.duration_s,
            extra=fields,
        )


def _fields(attempt: AttemptFacts) -> dict[str, str | int | float]:
    fields: dict[str, str | int | float] = {
        "job_id": harmless(attempt.job.id),
        "queue": attempt.queue,
        "task": harmless(attempt.task),
        "attempt": attempt.job.attempts,
        "worker": attempt.worker,
    }
    if attempt.lateness_ms is not None:
        fields["lateness_s"] = attempt.lateness_ms / 1000
    return fields
