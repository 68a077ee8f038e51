"""How a process that runs for ever writes its log: lines for people, or one JSON object per line."""

from __future__ import annotations

import json
import logging
import math
import sys
from datetime import UTC, datetime
from textwrap import dedent
from typing import Final

import click

from schedq.escaping import harmless
from schedq.logs import JobFields

_OWN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""What every record has, whatever it is about."""


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Local time, level, sentence; more lines, set in, only for a traceback or a stack."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        line = f"{moment:%H:%M:%S}.{int(record.msecs):03d} {record.levelname:<7} {harmless(record.getMessage())}"
        below = f"{_traceback(self, record)}\n{record.stack_info or ''}"
        return line + "".join(f"\n    {harmless(part)}" for part in below.split("\n") if part)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One object per line: time (ISO 8601, UTC), level, logger, pid, message, its subject, traceback, stack.

        Its subject are the fields of a job, see `schedq.logs`, and what the caller gave by `extra=`, if that is a
        text, a number, a truth value or None.
        """
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _OWN and name not in entry and isinstance(value, str | int | float | None):
                # No JSON has a word for what is not finite.
                entry[name] = str(value) if isinstance(value, float) and not math.isfinite(value) else value
        if traced := _traceback(self, record):
            entry["traceback"] = traced
        if record.stack_info:
            entry["stack"] = record.stack_info
        return json.dumps(entry)


def set_up(log_format: str, verbosity: int, *, quiet: bool = False) -> None:
    """Log to stderr: sentences of level info on, of level debug with `-v`, of other libraries too with `-vv`.

    Quiet, of level warning on.
    """
    if quiet and verbosity:
        raise click.UsageError("--quiet and -v exclude each other")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Lines())
    handler.addFilter(JobFields())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity > 1 else logging.WARNING)
    logging.getLogger("schedq").setLevel(logging.WARNING if quiet else logging.DEBUG if verbosity else logging.INFO)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_text:
        return dedent(record.exc_text)
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
