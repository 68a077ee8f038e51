"""A job's history: enqueued, due, promoted, each attempt, its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from schedq.inspect.snapshot import JobSnapshot, see
from schedq.model.lifecycle import CANCELLED, COMPLETED, FAILED, FINISHED, PROCESSING
from schedq.model.records import JobRecord, whole
from schedq.model.settings import Settings
from schedq.transitions import RoundTrips, unwrap

RUNNING: Final = "running"
_ENDED_AT: Final = {COMPLETED: "completed_at_ms", FAILED: "last_error_at_ms", CANCELLED: "cancelled_at_ms"}
_ORDER: Final = ("enqueued", "due", "promoted", "attempt", "asked to stop")


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt at a job; instants and durations in ms on Redis's clock, 0 if unknown.

    Attributes:
        number: its number; may occur twice, because a release, a snooze or `RateLimited` gives an attempt back.
        worker: id of the worker, or ''.
        started_at_ms: when it was claimed.
        ended_at_ms: when it ended; 0 while it runs.
        duration_ms: how long it took, or has been running.
        outcome: completed, retry, failed, snoozed, limited, released, lost, cancelled, or running.
        error: the error of a failed attempt, shortened, or ''.
    """

    number: int
    worker: str
    started_at_ms: int
    ended_at_ms: int
    duration_ms: int
    outcome: str
    error: str


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One past or coming event of a job.

    Attributes:
        at_ms: when it happened or will happen; for an attempt, its start.
        what: enqueued, due, promoted, attempt, asked to stop, completed, failed, cancelled.
        attempt: the attempt, if it is one.
    """

    at_ms: int
    what: str
    attempt: AttemptRecord | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The history of a job; instants are ms on Redis's clock, 0 where they do not apply or are unknown.

    Attributes:
        id: the job.
        status: its current state.
        now_ms: when this was read.
        enqueued_at_ms: when it was enqueued.
        due_at_ms: when it is or was last due; 0 if it never waited.
        promoted_at_ms: when it last moved from `delayed` to `pending`.
        stop_asked_at_ms: when it was asked to stop, if it is still running.
        attempts: the last 10 attempts that ended, in order, and the running one.
        earlier: the least number of earlier attempts, of which nothing is kept.
        ended_at_ms: when it was completed, failed or cancelled.
    """

    id: str
    status: str
    now_ms: int
    enqueued_at_ms: int
    due_at_ms: int
    promoted_at_ms: int
    stop_asked_at_ms: int
    attempts: tuple[AttemptRecord, ...]
    earlier: int
    ended_at_ms: int

    @property
    def steps(self) -> tuple[TimelineEvent, ...]:
        """All events, earliest first."""
        found = [
            TimelineEvent(self.enqueued_at_ms, "enqueued"),
            TimelineEvent(self.due_at_ms, "due"),
            TimelineEvent(self.promoted_at_ms, "promoted"),
            *(TimelineEvent(attempt.started_at_ms, "attempt", attempt) for attempt in self.attempts),
            TimelineEvent(self.stop_asked_at_ms, "asked to stop"),
            TimelineEvent(self.ended_at_ms, self.status),
        ]
        return tuple(sorted((event for event in found if event.at_ms), key=_place_in_time))

    def to_dict(self) -> dict[str, Any]:
        """Return the timeline as one dict."""
        return asdict(self)


def _place_in_time(event: TimelineEvent) -> tuple[int, int]:
    """Sort by time; within a millisecond, in the order of a job's life cycle."""
    return event.at_ms, _ORDER.index(event.what) if event.what in _ORDER else len(_ORDER)


def timeline(queue: Settings, job_id: str) -> RoundTrips[Timeline | None]:
    """A job's history; None if nothing is stored about it."""
    (reply,) = yield [see(queue, job_id)]
    seen: JobSnapshot = unwrap(reply)
    return None if seen.kind != "hash" else _of(seen.record, seen.now_ms)


def _of(record: JobRecord, now_ms: int) -> Timeline:
    fields = record.fields
    runs = record.status == PROCESSING
    attempts = [_ended(entry) for entry in record.history] or _by_others(record)
    if runs:
        attempts.append(_running(record, now_ms))
    return Timeline(
        id=record.id,
        status=record.status,
        now_ms=now_ms,
        enqueued_at_ms=record.enqueued_at_ms,
        due_at_ms=record.run_at_ms,
        promoted_at_ms=whole(fields.get("promoted_at_ms")),
        stop_asked_at_ms=whole(fields.get("stop")) if runs else 0,
        attempts=tuple(attempts),
        earlier=max(0, attempts[0].number - 1) if attempts else 0,
        ended_at_ms=whole(fields.get(_ENDED_AT.get(record.status, ""))),
    )


def _ended(entry: Mapping[str, Any]) -> AttemptRecord:
    started, ended = whole(entry.get("started_at_ms")), whole(entry.get("ended_at_ms"))
    return AttemptRecord(
        number=whole(entry.get("attempt")),
        worker=str(entry.get("worker", "")),
        started_at_ms=started,
        ended_at_ms=ended,
        duration_ms=max(0, ended - started) if started else 0,
        outcome=str(entry.get("outcome", "")),
        error=str(entry.get("error", "")),
    )


def _running(record: JobRecord, now_ms: int) -> AttemptRecord:
    started = record.started_at_ms or record.claimed_at_ms
    took = max(0, now_ms - started) if started else 0
    return AttemptRecord(record.attempts, record.worker, started, 0, took, RUNNING, "")


def _by_others(record: JobRecord) -> list[AttemptRecord]:
    """The last attempt of a job that another program ended; other programs keep no history."""
    started = record.started_at_ms or record.claimed_at_ms
    ended = whole(record.fields.get(_ENDED_AT.get(record.status, "")))
    if record.status not in FINISHED or record.status == CANCELLED or not started or ended < started:
        return []
    error = record.last_error if record.status == FAILED else ""
    number = max(1, record.attempts)
    return [AttemptRecord(number, record.worker, started, ended, ended - started, record.status, error)]
