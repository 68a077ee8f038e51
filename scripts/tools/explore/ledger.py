"""What has been answered so far on one schedule, and what may never be answered after it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schedq.errors import SchedqError
from schedq.model.settings import Settings
from schedq.transitions import Operation
from tests.state import Key, State

_SETTLE_BEGINS, _SETTLE_WIDTH = 9, 7
FREE_RELEASES = 5


@dataclass(frozen=True)
class Told:
    """What is known of one job from the answers alone, whatever Redis holds.

    Attributes:
        due_ms: before this no attempt may begin.
        attempts: how many it has had, given-back ones left out.
        holder: the token that may end it; empty when nobody holds it.
        ended: the token that ended it last, and how.
        is_done: a completion was accepted.
        is_gone: purged.
    """

    due_ms: int = 0
    attempts: int = 0
    released: int = 0
    crashes: int = 0
    holder: str = ""
    ended: tuple[str, str] = ("", "")
    is_done: bool = False
    is_gone: bool = False
    is_foreign: bool = False


Book = dict[str, Told]


@dataclass(frozen=True)
class Entry:
    """One step: who did what, what Redis answered, and what was there before and after."""

    queue: Settings
    operation: Operation[Any]
    answer: Any
    now_ms: int
    before: State
    after: State


def enter(book: Book, entry: Entry) -> tuple[Book, list[str]]:
    """The book after a step, and what is wrong with that step."""
    if isinstance(entry.answer, SchedqError):
        return book, []
    handle = _HANDLERS.get(entry.operation.name)
    if handle is None:
        return book, []
    book = dict(book)
    return book, list(handle(book, entry))


def missing(book: Book, state: State, queue: Settings) -> Iterator[str]:
    """Jobs that were accepted, have not completed (and may have been trimmed then), and are nowhere."""
    prefix = f"{queue.name}/"
    there = {job_id for ids in state.places().values() for job_id in ids}
    for key, told in book.items():
        if key.startswith(prefix) and not (told.is_gone or told.is_done) and key.removeprefix(prefix) not in there:
            yield f"{key} was accepted and is nowhere"


def _key(entry: Entry, job_id: str) -> str:
    return f"{entry.queue.name}/{job_id}"


def _enqueued(book: Book, entry: Entry) -> Iterator[str]:
    args = entry.operation.args
    job_id, mode, ms = str(args[5]), args[7], int(args[8])
    key = _key(entry, job_id)
    told = book.get(key)
    was_there = f"job:{job_id}" in entry.before.keys
    if told is not None and not told.is_gone and not was_there and not told.is_done:
        yield f"{key} was forgotten before it ended"
    if not was_there:
        book[key] = Told(due_ms=entry.now_ms + ms if mode == "in" else ms)
    elif entry.before != entry.after:
        yield f"{key} was enqueued again, and that changed something"


def _claimed(book: Book, entry: Entry) -> Iterator[str]:
    if entry.answer.is_paused and entry.before != entry.after:
        yield "a claim of a paused queue changed something"
    if not entry.answer.is_paused and "paused" in entry.before.keys:
        yield "a paused queue was claimed from"
    for job in entry.answer.jobs:
        key = _key(entry, job.id)
        told = book.get(key)
        if told is None or told.is_gone:
            yield f"{key} was claimed, and nobody enqueued it"
            told = Told()
        if told.is_done and not told.is_foreign:
            yield f"{key} began after it had completed"
        if told.holder and not told.is_foreign:
            yield f"{key} began while {told.holder} held it"
        if entry.now_ms < told.due_ms:
            yield f"{key} began {told.due_ms - entry.now_ms} ms early"
        if job.attempts != told.attempts + 1 and not told.is_foreign:
            yield f"{key} is at attempt {job.attempts}, after {told.attempts}"
        if job.attempts > entry.queue.max_attempts:
            yield f"{key} is at attempt {job.attempts} of {entry.queue.max_attempts}"
        if job.claim_token in (told.ended[0], told.holder):
            yield f"{key} got a token that was used"
        book[key] = replace(told, attempts=job.attempts, holder=job.claim_token)


def _settled(book: Book, entry: Entry) -> Iterator[str]:
    words = entry.answer
    for number, word in enumerate(words):
        at = _SETTLE_BEGINS + number * _SETTLE_WIDTH
        move, job_id, token, delay = entry.operation.args[at : at + 4]
        key = _key(entry, str(job_id))
        told = book.get(key, Told(is_gone=True))
        if told.is_foreign:
            continue  # whoever writes to the hash by hand may take a job from its holder
        if word == "OK":
            if told.holder != token:
                yield f"{key}: {move} by {token} was accepted, and {told.holder or 'nobody'} holds it"
            was_stopped = "stop" in entry.before.job(str(job_id))
            if was_stopped and move != "complete" and entry.after.job(str(job_id)).get("status") != "cancelled":
                yield f"{key} was asked to stop, and goes on"
            book[key] = _after(told, str(move), str(token), entry.now_ms + int(delay), entry, str(job_id))
        elif word == "DUPLICATE" and told.ended != (token, move):
            yield f"{key}: {move} by {token} was called a repetition of {told.ended}"
        elif word == "LOST" and told.holder == token and not told.is_gone:
            yield f"{key}: {move} was refused to {token}, who holds it"
        elif word == "LOST" and told.ended == (token, move) and not told.is_gone:
            yield f"{key}: {move} by {token} was accepted, and is refused when it is sent again"
    if "OK" not in words and entry.before != entry.after:
        yield f"{entry.operation.args[_SETTLE_BEGINS + 2]} settled, was answered {words}, and changed something"


def _after(told: Told, move: str, token: str, due_ms: int, entry: Entry, job_id: str) -> Told:
    ended = replace(told, holder="", ended=(token, move))
    if move == "complete":
        return replace(ended, is_done=True)
    if entry.after.job(job_id).get("status") == "cancelled":
        return ended
    if move in ("retry", "snooze"):
        return replace(ended, due_ms=due_ms, attempts=told.attempts - (move == "snooze"))
    if move == "release":
        given_back = told.released < FREE_RELEASES
        return replace(ended, attempts=told.attempts - given_back, released=told.released + 1)
    return ended


def _renewed(book: Book, entry: Entry) -> Iterator[str]:
    pairs = entry.operation.args[3:]
    for number, word in enumerate(entry.answer):
        job_id, token = str(pairs[2 * number]), pairs[2 * number + 1]
        told = book.get(_key(entry, job_id), Told())
        if (word != "LOST") != (told.holder == token and not told.is_gone):
            yield f"{job_id}: renewal by {token} was {word}, and {told.holder or 'nobody'} holds it"
    if set(entry.answer) == {"LOST"} and entry.before != entry.after:
        yield "a renewal was refused, and changed something"


def _reclaimed(book: Book, entry: Entry) -> Iterator[str]:
    sweep, _ = entry.answer
    for job_id in sweep.taken_back:
        key = _key(entry, job_id)
        told = book.get(key, Told())
        ends = entry.before.holds("leases", "zset").get(job_id)
        if ends is None or float(ends) > entry.now_ms:
            yield f"{key} was taken back, and its lease ends {ends}"
        if told.is_done and not told.is_foreign:
            yield f"{key} was taken back after it had completed"
        crashes = told.crashes + 1
        due = int(entry.after.job(job_id).get("run_at_ms") or 0)
        is_delayed = entry.after.job(job_id).get("status") == "delayed"
        if is_delayed and due < entry.now_ms + 1000:
            yield f"{key} lost {crashes} leases and comes back without a wait"
        book[key] = replace(
            told,
            holder="",
            ended=(told.holder, "reclaim"),
            crashes=crashes,
            attempts=max(told.attempts, crashes),
            due_ms=due if is_delayed else told.due_ms,
        )


def _recovered(book: Book, entry: Entry) -> Iterator[str]:
    request = entry.operation.args[1]
    for job in entry.answer[1]:
        if not job.claim_token.startswith(f"{request}."):
            yield f"{job.id} is held by {job.claim_token}, and was given to {request}"
    if entry.before != entry.after:
        yield "who asked what it holds changed something"


def _cancelled(book: Book, entry: Entry) -> Iterator[str]:
    job_id = str(entry.operation.args[5])
    status = entry.after.job(job_id).get("status")
    told = book.get(_key(entry, job_id), Told(is_gone=True))
    request = entry.operation.args[4]
    is_repeated = entry.before.job(job_id).get("request", "").startswith(f"{request} ")
    if is_repeated:
        if entry.before != entry.after:
            yield f"{job_id}: the same cancellation was sent again, and changed something"
    elif entry.answer == "cancelled" and (status != "cancelled" or told.holder):
        yield f"{job_id} was called cancelled, and is {status}"
    elif entry.answer == "asked" and status != "processing":
        yield f"{job_id} was asked to stop, and is {status}"
    elif entry.answer == "no" and not (told.is_gone or status in ("completed", "failed", "cancelled")):
        yield f"{job_id} could not be cancelled, and is {status}"


def _requeued(book: Book, entry: Entry) -> Iterator[str]:
    request, *ids = entry.operation.args[4:]
    for job_id, word in zip(map(str, ids), entry.answer, strict=False):
        if entry.before.job(job_id).get("request", "").startswith(f"{request} "):
            continue
        was = entry.before.job(job_id).get("status")
        if word == "yes":
            if was not in ("failed", "cancelled"):
                yield f"{job_id} was requeued and had been {was}"
            key = _key(entry, job_id)
            book[key] = Told(ended=("", ""), due_ms=0)


def _rescheduled(book: Book, entry: Entry) -> Iterator[str]:
    _, job_id, mode, ms = entry.operation.args[5:]
    key = _key(entry, str(job_id))
    request = entry.operation.args[5]
    if entry.answer and not entry.before.job(str(job_id)).get("request", "").startswith(f"{request} "):
        if entry.before.job(str(job_id)).get("status") != "delayed":
            yield f"{key} was rescheduled and was not delayed"
        due = entry.now_ms + int(ms) if mode == "in" else int(ms)
        book[key] = replace(book.get(key, Told()), due_ms=due)


def _promoted(book: Book, entry: Entry) -> Iterator[str]:
    me, holder = entry.operation.args[3], entry.before.holds("promoter", "string")[0]
    if entry.answer.is_leader and holder not in ("", me):
        yield f"{me} promoted while {holder} had the lease"
    if not entry.answer.is_leader and _but_standbys(entry.before) != _but_standbys(entry.after):
        yield "a promoter that stands by changed more than its own place"
    is_paused = "paused" in entry.after.keys
    waits = bool(entry.after.holds("pending", "list"))
    if entry.answer.is_leader and waits and not is_paused and "wake" not in entry.after.keys:
        yield "the promoter left jobs waiting and no marker"


def _but_standbys(state: State) -> dict[str, Key]:
    return {name: key for name, key in state.keys.items() if name != "standbys"}


def _woken(book: Book, entry: Entry) -> Iterator[str]:
    if entry.after.holds("pending", "list") and "paused" not in entry.after.keys and "wake" not in entry.after.keys:
        yield "the marker was put back, and is not there"


def _purged(book: Book, entry: Entry) -> Iterator[str]:
    began = int(entry.answer[0])
    for job_id in entry.before.jobs().keys() - entry.after.jobs().keys():
        if int(entry.before.job(job_id).get("enqueued_at_ms", 0)) > began:
            yield f"{job_id} came after the purge had begun, and was purged"
    for key, told in book.items():
        queue, _, job_id = key.partition("/")
        if (
            queue == entry.queue.name
            and f"job:{job_id}" in entry.before.keys
            and f"job:{job_id}" not in entry.after.keys
        ):
            book[key] = replace(told, is_gone=True, holder="")


def _deleted(book: Book, entry: Entry) -> Iterator[str]:
    """What rests is gone whole; what runs, or was refused, is as it was."""
    if entry.before == entry.after:
        return
    for job_id, word in zip(map(str, entry.operation.args[4:]), entry.answer, strict=False):
        key = _key(entry, job_id)
        told = book.get(key, Told())
        if word != "yes":
            if f"job:{job_id}" in entry.before.keys and f"job:{job_id}" not in entry.after.keys:
                yield f"{key} was not to be deleted, and is gone"
            continue
        if f"job:{job_id}" in entry.after.keys:
            yield f"{key} was called deleted, and is there"
        if told.holder:
            yield f"{key} was deleted while {told.holder} held it"
        book[key] = replace(told, is_gone=True, holder="")


def _fired(book: Book, entry: Entry) -> Iterator[str]:
    """Slots go on and never back; each makes one job, at its time, and is told of once."""
    jobs, words = entry.answer
    new = entry.after.jobs().keys() - entry.before.jobs().keys()
    if len(new) != jobs:
        yield f"{jobs} jobs were said to be made, and {len(new)} are there"
    for job_id in new:
        key = _key(entry, job_id)
        fields = entry.after.job(job_id)
        if key in book:
            yield f"{key} was made twice"
        if int(fields["slot_ms"]) > entry.now_ms:
            yield f"{key} was made before its slot"
        book[key] = Told(due_ms=int(fields["run_at_ms"]))
    before, after = (state.holds("schedules", "zset") for state in (entry.before, entry.after))
    for name, slot in before.items():
        if float(after.get(name, "inf")) < float(slot):
            yield f"schedule {name} went back from slot {slot} to {after[name]}"
        fields = entry.after.job(f"{name}-{slot}")
        if fields and after.get(name) == slot:
            yield f"schedule {name} has fired slot {slot}, and it is the next one still"
    if "FIRED" not in words and entry.before != entry.after:
        yield f"nothing was fired, {words}, and something changed"


_HANDLERS = {
    "fire": _fired,
    "enqueue": _enqueued,
    "claim": _claimed,
    "settle": _settled,
    "recover": _recovered,
    "renew": _renewed,
    "reclaim": _reclaimed,
    "cancel": _cancelled,
    "requeue": _requeued,
    "reschedule": _rescheduled,
    "promote": _promoted,
    "wake": _woken,
    "purge": _purged,
    "delete": _deleted,
}


def laws(state: State, allowed: Sequence[str]) -> list[str]:
    """Laws that a state breaks, and jobs that can't be run any more."""
    found = state.broken_laws()
    found["broken"] = [f"{job_id} has lost its data" for job_id in state.ids("broken")]
    return [
        f"{law}: {complaint}" for law, complaints in found.items() if law not in allowed for complaint in complaints
    ]


def unaccounted(state: State) -> Iterator[str]:
    """Slots of schedules that have ended, of which nothing is told, or without the job that they are said to have."""
    for name, key in state.keys.items():
        parts = name.split(":")
        if parts[0] != "schedule" or len(parts) != 2:
            continue
        told = [json.loads(line) for line in state.holds(f"{name}:slots", "list")]
        slots = [
            slot for line in told for slot in range(line["slot_ms"], line["to_ms"] + 1, int(key.holds["every_ms"]))
        ]
        if slots and slots != list(range(slots[0], slots[-1] + 1, int(key.holds["every_ms"]))):
            yield f"of the slots of {parts[1]} {slots} are told"
        fired = [line["job_id"] for line in told if line["outcome"] == "fired"]
        if len(fired) != int(key.holds.get("runs", 0)):
            yield f"{parts[1]} ran {key.holds.get('runs')} times, and {fired} are told"
        jobs = [job_id for job_id in state.jobs() if state.job(job_id).get("schedule") == parts[1]]
        if sorted(fired) != sorted(jobs):
            yield f"{parts[1]} made {sorted(jobs)}, and {fired} are told"
