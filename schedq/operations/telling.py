"""What each reason for a job's not running says: a sentence, and the facts that it rests on."""

from __future__ import annotations

from typing import Any, Final

from schedq.ids import made_at_ms
from schedq.instants import span
from schedq.operations.sight import SEARCHED, Sight

Told = tuple[str, dict[str, Any]]
"""The reason in a sentence, and the facts that it rests on."""
_MOST_ERROR: Final = 300


# -- finished, or not there


def completed(seen: Sight) -> Told:
    """It is done."""
    at, attempts = seen.instant("completed_at_ms"), seen.attempts
    return f"it completed {_ago(seen, at)}, at attempt {attempts}", {"completed_at_ms": at, "attempts": attempts}


def failed(seen: Sight) -> Told:
    """Its last attempt failed, and how."""
    at, attempts = seen.instant("last_error_at_ms"), seen.attempts
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return f"it failed {_ago(seen, at)} after {tries} with {_error(seen)}", _failure(seen, at)


def cancelled(seen: Sight) -> Told:
    """Somebody cancelled it."""
    at = seen.instant("cancelled_at_ms")
    return f"it was cancelled {_ago(seen, at)}", {"cancelled_at_ms": at}


def wrong_type(seen: Sight) -> Told:
    """What is stored under its key is no job."""
    text = f"its data is damaged: a {seen.kind} is stored under its key, not a hash"
    return text + ("; the next look at it puts it into broken" if seen.entry else ""), {"type": seen.kind}


def no_data(seen: Sight) -> Told:
    """Its id stands in a place, its data is gone."""
    place = seen.entry
    return f"its id stands in {place}, and its data is gone; the next look at it puts it into broken", {"place": place}


def expired(seen: Sight) -> Told:
    """A history names it, its record is gone."""
    return f"it is {seen.history}, and its record is gone: expired or deleted", {"place": seen.history}


def broken(seen: Sight) -> Told:
    """It could not be run: data gone or damaged; there is a note."""
    note = seen.note
    if note is None:
        return "", {}
    return f"it could not be run: {note.reason} ({_ago(seen, note.at_ms)})", {
        "problem": note.reason,
        "at_ms": note.at_ms,
    }


def gone(seen: Sight) -> Told:
    """Nothing is stored; its id says when it was made."""
    made = made_at_ms(seen.id) or 0
    text = f"nothing is stored of it: an id made {_ago(seen, made)}; trimmed or purged since, or never stored here"
    return text, {"made_at_ms": made}


def unknown(_: Sight) -> Told:
    """Nothing is stored of such an id."""
    return "nothing is stored of it: trimmed, purged, or never there", {}


# -- it runs, or a worker has it


def lease_expired(seen: Sight) -> Told:
    """Its worker is silent; the reclaimer is to take it back."""
    end = seen.lease_ms or 0
    text = f"its worker{_by(seen)} is silent: the lease ended {_ago(seen, end)}, and the reclaimer is to take it back"
    if not seen.promoter:
        text += "; no promoter is alive to do so"
    return text, {**_claim(seen), "promoter": seen.promoter or None}


def stop_asked(seen: Sight) -> Told:
    """It runs, and was asked to stop."""
    at = seen.instant("stop")
    text = f"it was asked to stop {_ago(seen, at)}, and runs on worker{_by(seen)} still"
    return text, {**_claim(seen), "stop_asked_at_ms": at}


def running(seen: Sight) -> Told:
    """It runs: who holds its lease, until when."""
    started, end = seen.instant("started_at_ms"), seen.lease_ms or 0
    text = f"it is running, since {span(max(0, seen.now_ms - started))}: the lease is held by worker{_by(seen)} for"
    return f"{text} another {span(end - seen.now_ms)}, unless renewed", _claim(seen)


def unleased(seen: Sight) -> Told:
    """Another program claimed it, without a lease."""
    text = "it was claimed by a program that gives no lease; the reclaimer is to give it one"
    return text, {**_claim(seen), "lease_ends_at_ms": None}


# -- it waits for its time


def retry(seen: Sight) -> Told:
    """An attempt failed; when the next one is due."""
    failed_at, due = seen.instant("last_error_at_ms"), seen.due_ms or 0
    text = f"its next attempt is due in {_until(seen, due)}: attempt {_of(seen)} failed with {_error(seen)}"
    return text, {"due_at_ms": due, "due_in_ms": due - seen.now_ms, **_failure(seen, failed_at)}


def held_back(seen: Sight) -> Told:
    """It lost its leases more than once, and waits."""
    lost, due = seen.record.crashes if seen.record else 0, seen.due_ms or 0
    text = f"it lost {lost} leases, so it may kill its workers"
    if seen.is_passed_over:
        text += ": each takes one such job at a time, and the next that has none takes it; it is due again"
        text += f" in {_until(seen, due)} at the latest"
    else:
        text += f", and is held back for another {_until(seen, due)}"
    return text, {"due_at_ms": due, "due_in_ms": due - seen.now_ms, "leases_lost": lost, "attempts": seen.attempts}


def unknown_task(seen: Sight) -> Told:
    """Every worker that took it lacked its task; it is put back and costs no attempt."""
    since, due = seen.instant("unknown_since_ms"), seen.due_ms or 0
    text = f"no worker that took it had {_wanted(seen)} in the last {span(max(0, seen.now_ms - since))}: "
    text += f"it is put back for a while, without spending attempts, and tried again in {_until(seen, due)}"
    facts = {"task": seen.task or None, "unknown_since_ms": since, "due_at_ms": due, "due_in_ms": due - seen.now_ms}
    return text, {**facts, "attempts": seen.attempts}


def snoozed(seen: Sight) -> Told:
    """Its handler put it off."""
    text, facts = due_later(seen)
    return text + ": its handler put it off", facts


def due_later(seen: Sight) -> Told:
    """Its time has not come."""
    due = seen.due_ms or 0
    return f"it is due in {_until(seen, due)}", {"due_at_ms": due, "due_in_ms": due - seen.now_ms}


# -- it is due


def paused(seen: Sight) -> Told:
    """The queue is paused."""
    since = seen.paused_since_ms or 0
    text = f"the queue is paused, since {span(max(0, seen.now_ms - since))}" if since else "the queue is paused"
    return text, {"paused_since_ms": since or None}


def promoter_behind(seen: Sight) -> Told:
    """It is due, and the promoter has not moved it yet."""
    text, facts = _late(seen)
    return f"{text}: the promoter is that far behind", {**facts, "promoter": seen.promoter}


def no_promoter(seen: Sight) -> Told:
    """It is due, and nobody is there to move it."""
    text, facts = _late(seen)
    help_is_near = "one of the workers is to take over" if seen.alive else "no worker is alive either"
    return f"{text}: no promoter is alive, and {help_is_near}", {**facts, "workers": seen.alive}


def _late(seen: Sight) -> Told:
    due = seen.due_ms or 0
    behind = seen.now_ms - due
    return f"it was due {span(behind)} ago and was not promoted", {"due_at_ms": due, "behind_ms": behind}


def no_worker(seen: Sight) -> Told:
    """No worker is alive."""
    return f"no worker is alive{_with_ahead(seen)}", {**_ahead_of(seen), "workers": 0}


def all_stopping(seen: Sight) -> Told:
    """Every live worker was asked to stop."""
    return f"every live worker ({len(seen.crew)}) was asked to stop", {**_ahead_of(seen), "workers": len(seen.crew)}


def no_task(seen: Sight) -> Told:
    """No live worker has its task, or a handler for its payload."""
    known = sorted({task for worker in seen.staying for task in worker.tasks})
    count = len(seen.staying)
    text = f"no live worker has {_wanted(seen)} ({count} {'is' if count == 1 else 'are'} alive)"
    return text, {"task": seen.task or None, "tasks": known, "workers": count, **_ahead_of(seen)}


def all_stuck(seen: Sight) -> Told:
    """Handlers that do not end when they are told to hold every slot of the workers that have its task."""
    """Handlers that do not end when they are told to hold every slot of the workers that have its task."""
    tasks = sorted({str(job.get("task", "")) for worker in seen.able for job in worker.stuck_jobs} - {""})
    count, slots = len(seen.able), seen.slots
    held = f"all {slots} slots of {count} {'worker' if count == 1 else 'workers'} that could run it are stuck"
    text = f"{held}: {', '.join(tasks)} did not end when told to; restart them"
    workers = [worker.id for worker in seen.able]
    return text, {"slots": slots, "workers": workers, "tasks": tasks, **_ahead_of(seen)}


def one_at_a_time(seen: Sight) -> Told:
    """It lost two leases; each worker runs one such job at a time."""
    lost = seen.record.crashes if seen.record else 0
    text = f"it lost {lost} leases, so it may kill its workers: each takes one such job at a time, and all have theirs"
    return text, {"leases_lost": lost, "suspects_running": seen.suspects, "workers": len(seen.able)}


def behind_others(seen: Sight) -> Told:
    """Jobs are before it; how many, how fast they go."""
    return _jobs_ahead(seen), {**_ahead_of(seen), "workers": len(seen.able)}


def busy(seen: Sight) -> Told:
    """It is next in line, and all workers are busy."""
    slots = seen.slots
    text = f"it is next in line; all workers are busy: {slots} of {slots} slots of {len(seen.able)} live workers"
    return text, {**_ahead_of(seen), "workers": len(seen.able), "slots": slots}


def next_in_line(seen: Sight) -> Told:
    """It is next in line, and about to run."""
    told = "a wake-up is there for the next idle worker" if seen.is_marked else "a worker is on its way to it"
    text = f"it is next in line, and {told}, unless all are busy with other queues"
    return text, {**_ahead_of(seen), "workers": len(seen.able), "is_marked": seen.is_marked}


# -- it stands nowhere


def cut_short(seen: Sight) -> Told:
    """A move of it was cut short."""
    text = f"a move of it was cut short: its record says {seen.status or 'nothing'}; the reclaimer is to put it right"
    return text, {"status": seen.status}


def orphan(seen: Sight) -> Told:
    """Its record names a place that does not have it."""
    text = f"its record says {seen.status}, and it stands in no place, so nobody finds it; see schedq doctor"
    return text, {"status": seen.status}


def unlisted(seen: Sight) -> Told:
    """Another program made its record, and no entry."""
    text = "its record names no known state and it stands in no place: its producer has not put it into pending"
    return text, {"status": seen.status or None}


# -- words and facts that several have


def _wanted(seen: Sight) -> str:
    return f"the task {seen.task!r}" if seen.task else "a handler for payloads that are no task call"


def _of(seen: Sight) -> str:
    most = seen.max_attempts
    return f"{seen.attempts} of {most}" if most else str(seen.attempts)


def _ago(seen: Sight, at_ms: int) -> str:
    if not at_ms:
        return "at a time that is not known"
    return f"{span(seen.now_ms - at_ms)} ago" if at_ms <= seen.now_ms else f"in {span(at_ms - seen.now_ms)}"


def _until(seen: Sight, at_ms: int) -> str:
    return span(max(0, at_ms - seen.now_ms))


def _error(seen: Sight) -> str:
    error = seen.record.last_error if seen.record else ""
    lines = error.strip().splitlines()
    return lines[0][:_MOST_ERROR] if lines else "an error that is not known"


def _failure(seen: Sight, at_ms: int) -> dict[str, Any]:
    return {"attempts": seen.attempts, "max_attempts": seen.max_attempts, "error": _error(seen), "failed_at_ms": at_ms}


def _by(seen: Sight) -> str:
    name = seen.record.worker if seen.record else ""
    return f" {name}" if name else " (without a name)"


def _claim(seen: Sight) -> dict[str, Any]:
    worker = seen.record.worker if seen.record else ""
    started = seen.instant("started_at_ms") or seen.instant("claimed_at_ms")
    facts = {"worker": worker or None, "started_at_ms": started, "lease_ends_at_ms": seen.lease_ms}
    return {**facts, "attempts": seen.attempts}


def _ahead_of(seen: Sight) -> dict[str, Any]:
    """Jobs before it, exactly unless it is too far from both ends of `pending` to be seen."""
    is_exact, rate = seen.ahead is not None, round(seen.per_second, 3)
    ahead = seen.ahead if seen.ahead is not None else SEARCHED
    wait = round(ahead * 1000 / rate) if rate else None
    return {"ahead": ahead, "is_exact": is_exact, "pending": seen.pending, "per_second": rate, "wait_ms": wait}


def _with_ahead(seen: Sight) -> str:
    facts = _ahead_of(seen)
    return f"; {_counted(facts)} ahead of it" if facts["ahead"] else ""


def _counted(facts: dict[str, Any]) -> str:
    ahead = facts["ahead"]
    return f"{'' if facts['is_exact'] else 'at least '}{ahead:,} {'job' if ahead == 1 else 'jobs'}"


def _jobs_ahead(seen: Sight) -> str:
    facts = _ahead_of(seen)
    rate, wait = facts["per_second"], facts["wait_ms"]
    if not rate:
        return f"{_counted(facts)} ahead of it, and none has ended in the last minute"
    shown = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s" if rate >= 0.1 else f"{rate * 60:.2g} a minute"
    return f"{_counted(facts)} ahead of it at {shown} (about {span(wait)})"
