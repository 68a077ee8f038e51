"""Why a job is not running now: the table of reasons, from which the handbook's table is generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schedq.inspect.display import apart, count
from schedq.inspect.runs import to_undo, undo_in_words, waits_facts, waits_in_words
from schedq.inspect.snapshot import JobSnapshot, look
from schedq.inspect.uniqueness import IndexEntry, hold, read_entry
from schedq.inspect.why_gate import LIMITS, TURN, Reason
from schedq.model.expiry import EXPIRED, expires_at_ms
from schedq.model.ids import made_at_ms
from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, JOB_STATES, PENDING, PROCESSING
from schedq.model.settings import Settings
from schedq.model.times import span
from schedq.model.unique import checked_key
from schedq.transitions import RoundTrips, unwrap


def _at(place: str) -> Callable[[JobSnapshot], bool]:
    return lambda seen: seen.place == place


def _ago(seen: JobSnapshot, at_ms: int) -> str:
    return apart(at_ms, seen.now_ms) if at_ms else "at an unknown time"


def _since(seen: JobSnapshot, at_ms: int) -> str:
    return span(max(0, seen.now_ms - at_ms))


def _until_due(seen: JobSnapshot) -> str:
    return span(max(0, (seen.due_ms or 0) - seen.now_ms))


def _attempts(seen: JobSnapshot) -> str:
    return "1 attempt" if seen.record.attempts == 1 else f"{seen.record.attempts} attempts"


def _attempt(seen: JobSnapshot) -> str:
    return f"{seen.record.attempts} of {seen.max_attempts}" if seen.max_attempts else str(seen.record.attempts)


def _by(seen: JobSnapshot) -> str:
    return f" {seen.record.worker}" if seen.record.worker else " (without a name)"


def _wanted(seen: JobSnapshot) -> str:
    return f"the task {seen.task!r}" if seen.task else "a handler for payloads that are not task calls"


def _killer(seen: JobSnapshot) -> str:
    return f"it lost {seen.record.crashes} leases, so it may kill its workers"


def _ahead(seen: JobSnapshot) -> str:
    return f"{'at least ' if seen.ahead is None else ''}{count(seen.ahead_at_least, 'job')} ahead of it"


def _queueing(seen: JobSnapshot) -> str:
    rate, wait_ms = seen.ahead_facts["per_second"], seen.ahead_facts["wait_ms"]
    if not rate:
        return f"{_ahead(seen)}, and none ended in the last minute"
    shown = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s" if rate >= 0.1 else f"{rate * 60:.2g} a minute"
    return f"{_ahead(seen)} at {shown} (about {span(wait_ms)})"


def _held_back(seen: JobSnapshot) -> str:
    if not seen.is_passed_over:
        return f"{_killer(seen)}, and is held back for another {_until_due(seen)}"
    return (
        f"{_killer(seen)}: each takes one such job at a time, and the next one without such a job takes it; it is due "
        f"again in {_until_due(seen)} at the latest"
    )


def _for_ms(seen: JobSnapshot, since_ms: int | None) -> str:
    return f", for {_since(seen, since_ms)} now" if since_ms else ""


def _cancel_reason(seen: JobSnapshot) -> dict[str, str]:
    reason = seen.record.fields.get("cancel_reason", "")
    return {"cancel_reason": reason} if reason else {}


def _because(seen: JobSnapshot) -> str:
    reason, at_ms = seen.record.fields.get("cancel_reason", ""), expires_at_ms(seen.record.fields)
    if reason == EXPIRED and at_ms:
        return f": it expired {_ago(seen, at_ms)}, before it began"
    return f": {reason:.200}" if reason else ""


def _expiry(seen: JobSnapshot) -> int:
    """When a waiting job expires; 0 if it does not."""
    return expires_at_ms(seen.record.fields) if seen.place in (PENDING, DELAYED) and not seen.record.attempts else 0


def _late(seen: JobSnapshot) -> str:
    return f"it was due {span(seen.behind_ms)} ago and was not promoted"


def _no_task(seen: JobSnapshot) -> str:
    alive = len(seen.staying)
    return f"no live worker has {_wanted(seen)} ({alive} {'is' if alive == 1 else 'are'} alive)"


def _all_stuck(seen: JobSnapshot) -> str:
    held = f"all {seen.slots} slots of {count(len(seen.able), 'worker')} that could run it are stuck"
    return f"{held}: {', '.join(seen.stuck_tasks)} did not end when told to; restart them"


REASONS: Final = (
    Reason(
        "completed",
        "It is done.",
        _at(COMPLETED),
        lambda seen: f"it completed {_ago(seen, seen.instant('completed_at_ms'))}, at attempt {seen.record.attempts}",
        lambda seen: {"completed_at_ms": seen.record.completed_at_ms, "attempts": seen.record.attempts},
    ),
    Reason(
        "failed",
        "Its last attempt failed; the error.",
        _at(FAILED),
        lambda seen: f"it failed {_ago(seen, seen.record.last_error_at_ms)} after {_attempts(seen)} with {seen.error}",
        lambda seen: seen.failure_facts,
    ),
    Reason(
        "cancelled",
        "It was cancelled, or it expired before it began.",
        _at(CANCELLED),
        lambda seen: f"it was cancelled {_ago(seen, seen.instant('cancelled_at_ms'))}{_because(seen)}",
        lambda seen: {"cancelled_at_ms": seen.instant("cancelled_at_ms"), **_cancel_reason(seen)},
    ),
    Reason(
        "broken",
        "It could not run because its data was missing or damaged; there is a note.",
        lambda seen: seen.kind != "hash" and seen.note and not seen.entry,
        lambda seen: f"it could not be run: {seen.note.reason} ({_ago(seen, seen.note.at_ms)})" if seen.note else "",
        lambda seen: {"problem": seen.note.reason, "at_ms": seen.note.at_ms} if seen.note else {},
    ),
    Reason(
        "wrong_type",
        "What is stored under its key is not a job.",
        lambda seen: seen.kind not in ("hash", "none"),
        lambda seen: (
            f"its data is damaged: a {seen.kind} is stored under its key, not a hash"
            + ("; the next process to read it moves it to broken" if seen.entry else "")
        ),
        lambda seen: {"type": seen.kind},
    ),
    Reason(
        "no_data",
        "A list or zset has its id, but its data is gone.",
        lambda seen: seen.kind == "none" and seen.entry,
        lambda seen: f"its id is in {seen.entry}, but its data is gone; the next process to read it moves it to broken",
        lambda seen: {"place": seen.entry},
    ),
    Reason(
        "expired",
        "A history has its id, but its record is gone.",
        lambda seen: seen.history,
        lambda seen: f"it is {seen.history}, but its record is gone: expired or deleted",
        lambda seen: {"place": seen.history},
    ),
    Reason(
        "gone",
        "Nothing is stored; its id shows when it was created.",
        lambda seen: seen.kind == "none" and made_at_ms(seen.id) is not None,
        lambda seen: (
            f"nothing is stored about it, although its id was created {_ago(seen, made_at_ms(seen.id) or 0)}: trimmed "
            "or purged since, or never stored here"
        ),
        lambda seen: {"made_at_ms": made_at_ms(seen.id)},
        is_known=False,
    ),
    Reason(
        "unknown",
        "Nothing is stored under this id.",
        lambda seen: seen.kind == "none",
        lambda _: "nothing is stored about it: trimmed, purged, or never there",
        is_known=False,
    ),
    Reason(
        "lease_expired",
        "Its worker is silent; the reclaimer will take it back.",
        lambda seen: seen.place == PROCESSING and seen.lease_ms is not None and seen.lease_ms <= seen.now_ms,
        lambda seen: (
            f"its worker{_by(seen)} is silent: the lease ended {_ago(seen, seen.lease_ms or 0)}, and the reclaimer "
            "will take it back" + ("" if seen.promoter else "; no promoter is alive to do it")
        ),
        lambda seen: {**seen.claim_facts, "promoter": seen.promoter or None},
    ),
    Reason(
        "stop_asked",
        "It was asked to stop, and is still running.",
        lambda seen: seen.place == PROCESSING and seen.instant("stop"),
        lambda seen: f"it was asked to stop {_ago(seen, seen.instant('stop'))}, but still runs on worker{_by(seen)}",
        lambda seen: {**seen.claim_facts, "stop_asked_at_ms": seen.instant("stop")},
    ),
    Reason(
        "unleased",
        "Another program claimed it, without a lease.",
        lambda seen: seen.place == PROCESSING and seen.lease_ms is None,
        lambda _: "it was claimed by a program that sets no lease; the reclaimer will give it one",
        lambda seen: seen.claim_facts,
    ),
    Reason(
        "running",
        "It is running; which worker holds its lease, and until when.",
        _at(PROCESSING),
        lambda seen: (
            f"it has been running for {_since(seen, seen.instant('started_at_ms'))}: worker{_by(seen)} holds the lease "
            f"for another {span((seen.lease_ms or 0) - seen.now_ms)}, unless renewed"
        ),
        lambda seen: seen.claim_facts,
    ),
    Reason(
        "held_back",
        "It lost its lease more than once, and waits.",
        lambda seen: seen.is_suspect and seen.waits_after("" if seen.is_passed_over else "reclaim"),
        _held_back,
        lambda seen: {**seen.due_facts, "leases_lost": seen.record.crashes, "attempts": seen.record.attempts},
    ),
    Reason(
        "suspended",
        "It is a workflow that waits: for a time, a message, the next try of a step, or other jobs.",
        lambda seen: seen.waits_after("") and "waits" in seen.record.fields,
        lambda seen: (
            waits_in_words(seen.record.fields, seen.now_ms, seen.batches) or f"it is due in {_until_due(seen)}"
        ),
        lambda seen: {**seen.due_facts, "waits": waits_facts(seen.record.fields, seen.batches)},
    ),
    Reason(
        "retry",
        "An attempt failed; when the next one is due.",
        lambda seen: seen.waits_after("retry"),
        lambda seen: (
            f"its next attempt is due in {_until_due(seen)}: attempt {_attempt(seen)} failed with {seen.error}"
        ),
        lambda seen: {**seen.due_facts, **seen.failure_facts},
    ),
    Reason(
        "unknown_task",
        "No worker that claimed it had its task; it is put back, which costs no attempt.",
        lambda seen: seen.waits_after("snooze") and seen.instant("unknown_since_ms"),
        lambda seen: (
            f"no worker that claimed it in the last {_since(seen, seen.instant('unknown_since_ms'))} had "
            f"{_wanted(seen)}: it is put back for a while, without spending attempts, and tried again in "
            f"{_until_due(seen)}"
        ),
        lambda seen: {
            "task": seen.task or None,
            "unknown_since_ms": seen.instant("unknown_since_ms"),
            **seen.due_facts,
            "attempts": seen.record.attempts,
        },
    ),
    Reason(
        "snoozed",
        "Its handler put it off.",
        lambda seen: seen.waits_after("snooze"),
        lambda seen: f"it is due in {_until_due(seen)}: its handler put it off",
        lambda seen: seen.due_facts,
    ),
    Reason(
        "due_later",
        "Its time has not come.",
        lambda seen: seen.waits_after(""),
        lambda seen: f"it is due in {_until_due(seen)}",
        lambda seen: seen.due_facts,
    ),
    Reason(
        "paused",
        "The queue is paused.",
        lambda seen: seen.is_due and seen.paused_since_ms is not None,
        lambda seen: f"the queue is paused{_for_ms(seen, seen.paused_since_ms)}",
        lambda seen: {"paused_since_ms": seen.paused_since_ms or None},
    ),
    Reason(
        "task_paused",
        "Its task is paused.",
        lambda seen: seen.is_due and seen.task_paused_since_ms is not None,
        lambda seen: f"the task {seen.task!r} is paused{_for_ms(seen, seen.task_paused_since_ms)}",
        lambda seen: {"task": seen.task, "paused_since_ms": seen.task_paused_since_ms or None},
    ),
    *LIMITS,
    Reason(
        "promoter_behind",
        "It is due, but the promoter has not moved it yet.",
        lambda seen: seen.place == DELAYED and seen.promoter,
        lambda seen: f"{_late(seen)}: the promoter is that far behind",
        lambda seen: {**seen.late_facts, "promoter": seen.promoter},
    ),
    Reason(
        "no_promoter",
        "It is due, but no promoter is alive to move it.",
        _at(DELAYED),
        lambda seen: (
            f"{_late(seen)}: no promoter is alive, and "
            + ("one of the workers will take over" if seen.alive else "no worker is alive either")
        ),
        lambda seen: {**seen.late_facts, "workers": seen.alive},
    ),
    Reason(
        "no_worker",
        "No worker is alive.",
        lambda seen: seen.place == PENDING and not seen.alive and not seen.works_unseen,
        lambda seen: "no worker is alive" + (f"; {_ahead(seen)}" if seen.ahead_at_least else ""),
        lambda seen: {**seen.ahead_facts, "workers": 0},
    ),
    Reason(
        "all_stopping",
        "Every live worker was asked to stop.",
        lambda seen: seen.place == PENDING and seen.workers and not seen.staying,
        lambda seen: f"every live worker ({len(seen.workers)}) was asked to stop",
        lambda seen: {**seen.ahead_facts, "workers": len(seen.workers)},
    ),
    Reason(
        "no_task",
        "No live worker has its task, or a handler for its payload.",
        lambda seen: seen.place == PENDING and seen.workers and not seen.able,
        _no_task,
        lambda seen: {
            "task": seen.task or None,
            "tasks": sorted({task for worker in seen.staying for task in worker.tasks}),
            "workers": len(seen.staying),
            **seen.ahead_facts,
        },
    ),
    Reason(
        "all_stuck",
        "All slots of the workers that have its task are held by handlers that did not end when told to.",
        lambda seen: seen.place == PENDING and seen.are_stuck,
        _all_stuck,
        lambda seen: {
            "slots": seen.slots,
            "workers": [worker.id for worker in seen.able],
            "tasks": seen.stuck_tasks,
            **seen.ahead_facts,
        },
    ),
    Reason(
        "one_at_a_time",
        "It lost two leases; each worker runs one such job at a time.",
        lambda seen: seen.place == PENDING and seen.is_suspect and 0 < len(seen.able) <= seen.suspects,
        lambda seen: f"{_killer(seen)}: each takes one such job at a time, and all are running one",
        lambda seen: {
            "leases_lost": seen.record.crashes,
            "suspects_running": seen.suspects,
            "workers": len(seen.able),
        },
    ),
    TURN,
    Reason(
        "ahead",
        "Jobs are ahead of it; how many, and how fast they end.",
        lambda seen: seen.place == PENDING and seen.ahead != 0,
        _queueing,
        lambda seen: {**seen.ahead_facts, "workers": len(seen.able)},
    ),
    Reason(
        "busy",
        "It is next in line, and all workers are busy.",
        lambda seen: seen.place == PENDING and seen.is_busy,
        lambda seen: (
            f"it is next in line; all workers are busy: {seen.slots} of {seen.slots} slots of {len(seen.able)} live "
            "workers"
        ),
        lambda seen: {**seen.ahead_facts, "workers": len(seen.able), "slots": seen.slots},
    ),
    Reason(
        "next",
        "It is next in line, and about to run.",
        _at(PENDING),
        lambda seen: (
            "it is next in line, and "
            + ("the next idle worker will be woken for it" if seen.is_marked else "a worker is about to claim it")
            + ", unless all are busy with other queues"
        ),
        lambda seen: {**seen.ahead_facts, "workers": len(seen.able), "is_marked": seen.is_marked},
    ),
    Reason(
        "cut_short",
        "An error ended a move of it half-way.",
        lambda seen: seen.lease_ms is not None,
        lambda seen: (
            f"an error ended a move of it half-way: its record says {seen.record.status or 'nothing'}; the reclaimer "
            "will repair it"
        ),
        lambda seen: {"status": seen.record.status},
    ),
    Reason(
        "orphan",
        "Its record names a state whose list does not have it.",
        lambda seen: seen.record.status in JOB_STATES,
        lambda seen: (
            f"its record says {seen.record.status}, but no list has it, so no worker finds it; see schedq doctor"
        ),
        lambda seen: {"status": seen.record.status},
    ),
    Reason(
        "unlisted",
        "Another program stored its record but no list entry.",
        lambda _: True,
        lambda _: "its record names no known state and no list has it: its producer has not added it to pending",
        lambda seen: {"status": seen.record.status or None},
    ),
)
"""The first one that applies is the reason."""


@dataclass(frozen=True, slots=True)
class Why:
    """The one reason why a job is not running now.

    Attributes:
        queue: the queue that was searched.
        id: the job.
        now_ms: when this was read, on Redis's clock.
        reason: a word of the handbook's table, for programs.
        text: the reason as a sentence.
        is_known: whether anything is stored about the job.
        facts: the facts behind the reason; durations and instants in ms.
        max_attempts: how often the job may be claimed, by its own options or its task's; None if neither sets it.
    """

    queue: str
    id: str
    now_ms: int
    reason: str
    text: str
    is_known: bool
    facts: Mapping[str, Any]
    max_attempts: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return one dict with the facts next to the rest."""
        head = {"reason": self.reason, "text": self.text, "queue": self.queue, "id": self.id, "now_ms": self.now_ms}
        return {**head, **self.facts}


def why(queue: Settings, job_id: str) -> RoundTrips[Why]:
    """The one reason why a job is not running now; writes nothing."""
    seen = yield from look(queue, job_id)
    key = seen.record.fields.get("unique", "")
    entry = (yield [read_entry(queue, key)])[0] if key else None
    return _why(queue, seen, key, entry if isinstance(entry, IndexEntry) else None)


def holder(queue: Settings, key: str) -> RoundTrips[Why | None]:
    """The same for the job that holds a unique key; None if no job does.

    Raises:
        UsageError: it is not a valid key.
    """
    (reply,) = yield [read_entry(queue, checked_key(key))]
    entry: IndexEntry | None = unwrap(reply)
    if entry is None:
        return None
    found = _why(queue, (yield from look(queue, entry.job_id)), key, entry)
    return found if "unique" in found.facts else None


def _why(queue: Settings, seen: JobSnapshot, key: str, entry: IndexEntry | None) -> Why:
    reason = next(reason for reason in REASONS if reason.holds(seen))
    text, facts = reason.text(seen), reason.facts(seen)
    if at_ms := _expiry(seen):
        left = at_ms - seen.now_ms
        text += f"; it expires in {span(left)}" if left > 0 else "; it has expired, and the next claim cancels it"
        facts = {**facts, "expires_at_ms": at_ms}
    if names := to_undo(seen.record.fields):
        text, facts = text + undo_in_words(seen.record.fields), {**facts, "to_undo": names}
    held, more = hold(seen, key, entry) if entry else ("", {})
    text, facts = f"{text}; {held}" if held else text, {**facts, **more}
    return Why(queue.name, seen.id, seen.now_ms, reason.name, text, reason.is_known, facts, seen.max_attempts)
