"""How a process that runs for ever writes its log: lines for people, or one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from schedq.cli.show import harmless


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Local time, level, sentence; more lines, set in, only for a traceback."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        line = f"{moment:%H:%M:%S}.{int(record.msecs):03d} {record.levelname:<7} {harmless(record.getMessage())}"
        traced = "".join(f"\n    {harmless(part)}" for part in _traceback(self, record).split("\n") if part)
        return line + traced


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One object per line: time (ISO 8601, UTC), level, logger, pid, message, and traceback if there is one."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if traced := _traceback(self, record):
            entry["traceback"] = traced
        return json.dumps(entry)


def set_up(log_format: str, verbosity: int) -> None:
    """Log to stderr: sentences of level info on, of level debug with `-v`, of other libraries too with `-vv`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity > 1 else logging.WARNING)
    logging.getLogger("schedq").setLevel(logging.DEBUG if verbosity else logging.INFO)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
