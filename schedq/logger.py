"""The logger of schedq, through which every module logs.

It keeps two promises. No text that a user gave can start a line of its own or steer a terminal, whatever handlers and
formatters an application uses. And a filter or handler that raises loses its line, but never stops a worker.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from textwrap import indent
from types import TracebackType
from typing import Any, Final

from schedq.escaping import harmless, harmless_lines, rendered

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
