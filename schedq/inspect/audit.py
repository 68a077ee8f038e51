"""The audit stream: how jobs ended and what operators did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.checks import checked_limit
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.transitions import Operation, pairs

_ENTRY_ID: Final = re.compile(r"\d{1,20}(?:-\d{1,20})?")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the audit stream.

    Attributes:
        entry_id: its id in the stream; `log(after=entry_id)` returns the entries that follow.
        at_ms: when it happened, ms on Redis's clock.
        move: how a job ended (completed, failed, cancelled, refuse), or what an operator did (pause, requeue, …).
        id: the job, schedule or worker it concerns; '' for the queue.
        attempts: the job's claims so far.
        note: details, or ''.
        fields: the stored entry, unchanged.
    """

    entry_id: str
    at_ms: int
    move: str
    id: str
    attempts: int
    note: str
    fields: Mapping[str, str]


def log(queue: Settings, after: str | None, limit: int) -> Operation[list[LogEntry]]:
    """At most `limit` entries, oldest first: the newest ones, or those that follow the entry `after`.

    Raises:
        UsageError: `limit` is not 1 to 1000, or `after` is not the id of an entry.
    """
    checked_limit(limit)
    if after is None:
        words = ("XREVRANGE", queue.keys.log, "+", "-", "COUNT", limit)
        return Operation("log", None, (), words, lambda reply: [*map(entry_of, reversed(reply))])
    if not isinstance(after, str) or not _ENTRY_ID.fullmatch(after):
        raise UsageError(f"after must be the entry_id of an entry, got {after!r}")
    words = ("XRANGE", queue.keys.log, f"({after}", "+", "COUNT", limit)
    return Operation("log", None, (), words, lambda reply: [*map(entry_of, reply)])


def entry_of(found: Sequence[Any]) -> LogEntry:
    """Read one entry as XRANGE returns it."""
    entry_id, flat = str(found[0]), [*(found[1] or ())]
    fields = pairs(flat[: len(flat) // 2 * 2])
    return LogEntry(
        entry_id,
        whole(fields.get("at_ms")) or whole(entry_id.partition("-")[0]),
        fields.get("move", ""),
        fields.get("id", ""),
        whole(fields.get("attempts")),
        fields.get("note", ""),
        fields,
    )
