"""Finished jobs as the audit stream names them, page by page from a position, for copies that outlive Redis.

The stream says which job ended, how and when; the job's record has the rest, unless it has expired, or the job was
requeued since. A page begins with the entry at the position itself: while that is there, nothing after it was trimmed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from schedq.errors import Conflict
from schedq.inspect.audit import LogEntry, entry_of
from schedq.inspect.export import exported
from schedq.model.lifecycle import CANCELLED, COMPLETED, FAILED
from schedq.model.records import JobRecord, whole
from schedq.model.settings import Settings
from schedq.model.tasks import is_task_call
from schedq.model.times import LAST_INSTANT_MS
from schedq.transitions import Operation, RoundTrips, identity, unwrap

_STATES: Final = {COMPLETED: COMPLETED, FAILED: FAILED, "refuse": FAILED, CANCELLED: CANCELLED}
"""The entry's `move` → the state in which the job ended."""
_CANCELLED_MANY: Final = "act cancel"
_ENDED_AT: Final = {COMPLETED: "completed_at_ms", FAILED: "last_error_at_ms", CANCELLED: "cancelled_at_ms"}
_EXTRA: Final = ("started_at_ms", "worker", "traceback", "result_error", "cancel_reason", "history")
_FIELDS: Final = (
    *("status", "payload", "attempts", "max_attempts", "backoff", "timeout_ms", "completed_ttl_ms", "failed_ttl_ms"),
    *("enqueued_at_ms", "run_at_ms", "completed_at_ms", "cancelled_at_ms", "last_error_at_ms", "last_error"),
    *("result", "headers", "expires", "unique", "unique_rule", "gate", "key", "settled_move", *_EXTRA),
)
"""What is read of a record: all but the steps of a workflow, which may have megabytes."""
ENTRIES: Final = 500
"""Entries of the stream in a page."""
_TOGETHER: Final = 20
"""Records per round trip."""
_MOST_CHARACTERS: Final = 4 * 1_048_576
"""A page ends after this many characters, and the next one begins with the entry that follows."""

WHOLE: Final = "whole"
GONE: Final = "gone"
CHANGED: Final = "changed"
MANY: Final = "many"


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that were trimmed, or lost with the server, before they were read.

    Attributes:
        after: the last entry that was read.
        before: the first one that is there.
    """

    after: str
    before: str


@dataclass(slots=True)
class ArchivePage:
    """What one read of the stream found.

    Attributes:
        position: the last entry that was read; '' if none ever was.
        lines: one object per end of a job, in the order of the stream.
        gap: what was lost before them.
        is_last: nothing follows now.
    """

    position: str
    lines: list[dict[str, Any]] = field(default_factory=list)
    gap: Gap | None = None
    is_last: bool = True


def archive_page(queue: Settings, position: str) -> RoundTrips[ArchivePage]:
    """Read the entries after `position` and the records of the jobs that ended; '' begins with the oldest entry.

    Raises:
        SchedqError: Redis does not respond or refuses, or the stream's key is of another type.
    """
    entries, is_known = yield from _entries(queue, position or "-")
    page = ArchivePage(position, is_last=len(entries) < ENTRIES)
    if not is_known and entries and position and not (yield from _had_read_all(queue, position)):
        page.gap = Gap(position, entries[0].entry_id)
    size = 0
    for first in range(0, len(entries), _TOGETHER):
        some = entries[first : first + _TOGETHER]
        page.lines += yield from _lines(queue, some)
        page.position = some[-1].entry_id
        size += sum(len(str(line)) for line in page.lines[-len(some) :])
        if size > _MOST_CHARACTERS:
            page.is_last = False
            break
    return page


def _entries(queue: Settings, start: str) -> RoundTrips[tuple[list[LogEntry], bool]]:
    """The entries that follow, and whether the one at `start` is still there."""
    found = yield from _range(queue, start, ENTRIES + 1)
    if found and found[0].entry_id == start:
        return found[1:], True
    if found or start == "-":
        return found[:ENTRIES], False
    # All entries are older, or there are none: the stream was deleted, or restored from a backup.
    return (yield from _range(queue, "-", ENTRIES)), False


def _had_read_all(queue: Settings, position: str) -> RoundTrips[bool]:
    """Whether it was the last entry when sample.lua deleted the log of an unused queue, and none was trimmed since."""
    words = ("HGET", queue.keys.stats, "log_end"), ("XLEN", queue.keys.log)
    end, length = yield [Operation("log", None, (), each, identity) for each in words]
    return end == position and isinstance(length, int) and length < queue.log_size


def _range(queue: Settings, start: str, count: int) -> RoundTrips[list[LogEntry]]:
    words = ("XRANGE", queue.keys.log, start, "+", "COUNT", count)
    (reply,) = yield [Operation("log", None, (), words, lambda found: [*map(entry_of, found)])]
    return unwrap(reply)


def _lines(queue: Settings, entries: Sequence[LogEntry]) -> RoundTrips[list[dict[str, Any]]]:
    ended = [entry for entry in entries if entry.id and entry.move in _STATES]
    replies = []
    if ended:
        words = [("HMGET", queue.keys.job(entry.id), *_FIELDS) for entry in ended]
        replies = yield [Operation("archive", None, (), each, identity) for each in words]
    # What is there instead of a record can't be read, and must not stop everything that follows.
    known: list[Sequence[str | None]] = [[] if isinstance(reply, Conflict) else unwrap(reply) for reply in replies]
    records = dict(zip((entry.entry_id for entry in ended), known, strict=True))
    return list(_in_order(queue.name, entries, records))


def _in_order(
    queue: str, entries: Sequence[LogEntry], records: dict[str, Sequence[str | None]]
) -> Iterator[dict[str, Any]]:
    for entry in entries:
        if entry.entry_id in records:
            yield _line(queue, entry, records[entry.entry_id])
        elif entry.move == _CANCELLED_MANY and (count := whole(entry.fields.get("count"))):
            yield _head(queue, entry, CANCELLED, MANY) | {"count": count, "note": entry.note}


def _line(queue: str, entry: LogEntry, reply: Sequence[str | None]) -> dict[str, Any]:
    """All of one end: from the record if it is still about this end, else only what the stream knows."""
    state = _STATES[entry.move]
    fields = {name: value for name, value in zip(_FIELDS, reply, strict=False) if value is not None}
    if not fields:
        return _head(queue, entry, state, GONE)
    if fields.get("status") != state or whole(fields.get(_ENDED_AT[state])) != entry.at_ms:
        return _head(queue, entry, state, CHANGED)
    record = JobRecord.from_fields(entry.id, fields)
    line = _head(queue, entry, state, WHOLE)
    if is_task_call(record.payload):
        line["task"] = record.payload["task"]
    line |= {"worker": record.worker, "started_at_ms": record.started_at_ms, "history": list(record.history)}
    line |= {name: fields[name] for name in ("traceback", "result_error", "cancel_reason") if fields.get(name)}
    return exported(record, state) | line


def _head(queue: str, entry: LogEntry, state: str, record: str) -> dict[str, Any]:
    at = datetime.fromtimestamp(min(entry.at_ms, LAST_INSTANT_MS) / 1000, UTC)
    return {
        "entry": entry.entry_id,
        "queue": queue,
        "id": entry.id,
        "state": state,
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "at_ms": entry.at_ms,
        "attempts": entry.attempts,
        "record": record,
    }
