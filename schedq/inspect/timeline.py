"""A job's history: enqueued, due, promoted, each attempt, its end; of a workflow's run also what it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from schedq.inspect import runs
from schedq.inspect.snapshot import JobSnapshot, see
from schedq.model.lifecycle import CANCELLED, COMPLETED, FAILED, FINISHED, PROCESSING
from schedq.model.records import JobRecord, whole
from schedq.model.runs import TRIES, Run
from schedq.model.settings import Settings
from schedq.model.times import LAST_INSTANT_MS
from schedq.transitions import RoundTrips, unwrap

RUNNING: Final = "running"
_ENDED_AT: Final = {COMPLETED: "completed_at_ms", FAILED: "last_error_at_ms", CANCELLED: "cancelled_at_ms"}
RUN_BEGAN: Final = "run began"
STARTED_OVER: Final = "started over"
OPERATION: Final = "operation"
OVER: Final = "operation over"
NEXT_TRY: Final = "next try"
MESSAGE: Final = "message"
WAITING: Final = "waiting"
RETRY: Final = "retry"
STEP_KIND: Final = "step"
_OF_OPERATIONS: Final = (OPERATION, OVER, NEXT_TRY)
"""What stays in the order of the operations within a millisecond."""
_ORDER: Final = (
    *("enqueued", "requeued", "due", "promoted", "attempt", RUN_BEGAN, STARTED_OVER, OPERATION, MESSAGE),
    "asked to stop",
)


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
class OperationRecord:
    """One operation of a workflow's run; instants and durations in ms on Redis's clock.

    Attributes:
        name: with the path of its branch, as in `1.2/charge`.
        kind: step, sleep, receive, call, map, first or gather.
        outcome: ok, error, timeout or cancelled; waiting while the run waits for it; retry of a step that is tried
            again.
        began_at_ms: when it began; of a step that is tried again, when the next try begins.
        ended_at_ms: when it was over: of a sleep its instant, of a receive the arrival of the message, of a call or a
            map the end of its jobs; 0 if it is not over.
        duration_ms: how long it took, or has been waiting.
        note: the error; for what the run waits, the topic or the batch; or ''.
    """

    name: str
    kind: str
    outcome: str
    began_at_ms: int
    ended_at_ms: int
    duration_ms: int
    note: str = ""

    @property
    def label(self) -> str:
        """Its kind and its name."""
        return self.name if self.kind in self.name else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One past or coming event of a job.

    Attributes:
        at_ms: when it happened or will happen; for an attempt, its start.
        what: enqueued, requeued, due, promoted, attempt, asked to stop, completed, failed, cancelled; of a run also
            run began, started over, operation (it began), operation over, next try, message (that nothing has taken).
        attempt: the attempt, if it is one.
        operation: the operation, if it is one.
        topic: of a message.
    """

    at_ms: int
    what: str
    attempt: AttemptRecord | None = None
    operation: OperationRecord | None = None
    topic: str = ""

    @property
    def text(self) -> str:
        """What happened, in words, without instants and durations."""
        it = self.operation
        if self.attempt is not None:
            return f"attempt {self.attempt.number}: {self.attempt.outcome}"
        if self.what == MESSAGE:
            return f"message on topic {self.topic}, which nothing has taken"
        if it is None:
            return self.what
        if self.what == NEXT_TRY:
            return f"{it.label}: next try"
        return f"{it.label} begins" if self.what == OPERATION and it.kind != STEP_KIND else f"{it.label}: {it.outcome}"


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
        run_began_at_ms: when its run began, or last started over; 0 for jobs of other tasks.
        life: how often its run has started over.
        operations: what its run has done, in the order in which that was recorded, and what it waits for.
        messages: messages to its run that nothing has taken: their arrival and topic.
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
    run_began_at_ms: int = 0
    life: int = 0
    operations: tuple[OperationRecord, ...] = ()
    messages: tuple[tuple[int, str], ...] = ()

    @property
    def steps(self) -> tuple[TimelineEvent, ...]:
        """All events, earliest first."""
        found = [
            TimelineEvent(self.enqueued_at_ms, "enqueued"),
            TimelineEvent(self.due_at_ms, "requeued" if self._is_requeued else "due"),
            TimelineEvent(self.promoted_at_ms, "promoted"),
            *(TimelineEvent(attempt.started_at_ms, "attempt", attempt) for attempt in self.attempts),
            TimelineEvent(self.run_began_at_ms, STARTED_OVER if self.life else RUN_BEGAN),
            *(event for operation in self.operations for event in _events(operation)),
            *(TimelineEvent(at_ms, MESSAGE, topic=topic) for at_ms, topic in self.messages),
            TimelineEvent(self.stop_asked_at_ms, "asked to stop"),
            TimelineEvent(self.ended_at_ms, self.status),
        ]
        return tuple(sorted((event for event in found if event.at_ms), key=_place_in_time))

    @property
    def _is_requeued(self) -> bool:
        """It had ended before it was last due; only a requeue starts it again."""
        before = [it.outcome for it in self.attempts if 0 < it.ended_at_ms <= self.due_at_ms]
        return before[-1:] in (["failed"], ["cancelled"])

    def to_dict(self) -> dict[str, Any]:
        """Return the timeline as one dict."""
        return asdict(self)


def _events(it: OperationRecord) -> list[TimelineEvent]:
    """Its beginning, and unless it is a step, whose beginning says all, its end."""
    if it.outcome == RETRY:
        return [TimelineEvent(it.began_at_ms, NEXT_TRY, operation=it)]
    # When a race or a gather began is known of its last attempt only.
    found = [TimelineEvent(it.began_at_ms, OPERATION, operation=it)] if it.kind not in ("first", "gather") else []
    if it.kind != STEP_KIND and it.ended_at_ms:
        found.append(TimelineEvent(max(it.ended_at_ms, it.began_at_ms), OVER, operation=it))
    return found


def _place_in_time(event: TimelineEvent) -> tuple[int, int]:
    """Sort by time; within a millisecond, in the order of a job's life cycle."""
    what = OPERATION if event.what in _OF_OPERATIONS else event.what
    return event.at_ms, _ORDER.index(what) if what in _ORDER else len(_ORDER)


def timeline(queue: Settings, job_id: str) -> RoundTrips[Timeline | None]:
    """A job's history; None if nothing is stored about it."""
    (reply,) = yield [see(queue, job_id)]
    seen: JobSnapshot = unwrap(reply)
    return None if seen.kind != "hash" else _of(seen.record, seen.now_ms)


def _of(record: JobRecord, now_ms: int) -> Timeline:
    fields = record.fields
    is_running, run = record.status == PROCESSING, Run.read(fields.get("run", ""))
    attempts = [_ended(entry) for entry in record.history] or _by_others(record)
    if is_running:
        attempts.append(_running(record, now_ms))
    return Timeline(
        id=record.id,
        status=record.status,
        now_ms=now_ms,
        enqueued_at_ms=record.enqueued_at_ms,
        due_at_ms=record.run_at_ms if record.run_at_ms < LAST_INSTANT_MS else 0,
        promoted_at_ms=whole(fields.get("promoted_at_ms")),
        stop_asked_at_ms=whole(fields.get("stop")) if is_running else 0,
        attempts=tuple(attempts),
        earlier=max(0, attempts[0].number - 1) if attempts else 0,
        ended_at_ms=whole(fields.get(_ENDED_AT.get(record.status, ""))),
        run_began_at_ms=run.began_ms,
        life=run.life,
        operations=tuple(_operations(fields, now_ms)),
        messages=tuple(runs.arrivals(fields)),
    )


def _operations(fields: Mapping[str, str], now_ms: int) -> Iterator[OperationRecord]:
    for name, memo in runs.done(fields):
        note = runs.error_of(memo)
        took = max(0, memo.ended_ms - memo.began_ms)
        yield OperationRecord(name, memo.kind, memo.outcome, memo.began_ms, memo.ended_ms, took, note)
    for wait in runs.open_waits(fields):
        since_ms = runs.since_ms(fields, wait.name)
        if since_ms:
            note, waited = wait.group or wait.topic, max(0, now_ms - since_ms)
            yield OperationRecord(wait.name, wait.kind, WAITING, since_ms, 0, waited, note)
    for field, text in fields.items():
        _, at_ms, _, error = (*text.split(" ", 3), "", "", "", "")[:4]
        if field.startswith(TRIES) and whole(at_ms) > now_ms:
            yield OperationRecord(field.removeprefix(TRIES), STEP_KIND, RETRY, whole(at_ms), 0, 0, error)


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
