"""The replies so far in one schedule, and which replies are no longer allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from schedq.errors import SchedqError
from schedq.model.lifecycle import DELAYED, PENDING, PROCESSING
from schedq.model.records import Settlement
from schedq.model.runs import RunLost
from schedq.model.settings import Settings
from schedq.model.tasks import is_task_call
from schedq.transitions import Operation
from schedq.transitions.scripts import header
from scripts.tools.explore import failover, gate_laws, group_laws, promoter_laws, run_laws, schedule_laws
from tests.state import State

_SETTLE_WIDTH = len(Settlement._fields)
FREE_RELEASES = 5


@dataclass(frozen=True)
class JobLedger:
    """The state of one job as it follows from the replies alone, whatever Redis holds.

    Attributes:
        due_ms: no attempt may start before this instant.
        expires_ms: the first attempt must start before this instant; 0: it does not expire.
        attempts: number of attempts, except for released ones.
        holder: the token that may settle it; '' if there is none.
        ended: the token that settled it last, and how.
        is_done: a completion was accepted.
        is_gone: purged.
    """

    due_ms: int = 0
    expires_ms: int = 0
    attempts: int = 0
    released: int = 0
    crashes: int = 0
    holder: str = ""
    ended: tuple[str, str] = ("", "")
    is_done: bool = False
    is_gone: bool = False
    is_foreign: bool = False


Ledger = dict[str, JobLedger]


@dataclass(frozen=True)
class Entry:
    """One step: the request, the reply of Redis, and the stored state before and after."""

    queue: Settings
    operation: Operation[Any]
    reply: Any
    now_ms: int
    before: State
    after: State


def _given(entry: Entry, *names: str) -> list[Any]:
    """The values of arguments of the step's script, by their names in its header; a list for one that repeats."""
    assert entry.operation.script is not None
    known, args = header(entry.operation.script.name).args, entry.operation.args
    places = {each.name: slice(n, None) if each.repeats else n for n, each in enumerate(known)}
    return [args[places[name]] for name in names]


def enter(ledger: Ledger, entry: Entry) -> tuple[Ledger, list[str]]:
    """The ledger after a step, and the violations by that step."""
    if isinstance(entry.reply, SchedqError) and not isinstance(entry.reply, RunLost):
        return ledger, []
    handle = _HANDLERS.get(entry.operation.name)
    made = group_laws.new_jobs(entry.before, entry.after)
    expiries = {_key(entry, job_id): group_laws.expires_ms(entry.after.job(job_id), entry.now_ms) for job_id in made}
    ledger = {**{key: JobLedger(expires_ms=ms) for key, ms in expiries.items()}, **ledger} if expiries else ledger
    for key in (_key(entry, job_id) for job_id in run_laws.woken(entry.before, entry.after)):
        ledger = {**ledger, key: replace(ledger[key], due_ms=entry.now_ms)}
    complaints, ledger = list(group_laws.called_off(entry.before, entry.after)) if made else [], dict(ledger)
    return ledger, complaints if handle is None else [*complaints, *handle(ledger, entry), *_runs_kept(entry)]


def _runs_kept(entry: Entry) -> Iterator[str]:
    name, losers = entry.operation.name, ()
    if name == "step":
        (losers,) = map(tuple, _given(entry, "losers"))
    if name == "settle":
        name = "complete" if "complete" in _given(entry, "endings")[0] else name
    return run_laws.kept(name, losers, entry.before, entry.after)


def missing(ledger: Ledger, state: State, queue: Settings) -> Iterator[str]:
    """Jobs that were accepted, have not completed (completed ones may be trimmed), and are not stored."""
    prefix = f"{queue.name}/"
    there = {job_id for ids in state.places().values() for job_id in ids}
    for key, known in ledger.items():
        if key.startswith(prefix) and not (known.is_gone or known.is_done) and key.removeprefix(prefix) not in there:
            yield f"{key} was accepted but is not stored"


def _key(entry: Entry, job_id: str) -> str:
    return f"{entry.queue.name}/{job_id}"


def _enqueued(ledger: Ledger, entry: Entry) -> Iterator[str]:
    ((job_id, _, mode, ms, *_),) = _given(entry, "new_jobs")
    ms = int(ms)
    key = _key(entry, job_id)
    known = ledger.get(key)
    was_there = f"job:{job_id}" in entry.before.keys
    if entry.reply != job_id:
        yield from _kept(entry, job_id)
        return
    if known is not None and not known.is_gone and not was_there and not known.is_done:
        yield f"{key} was deleted before it ended"
    if not was_there:
        after_ms = entry.after.job(str(job_id)).get("expires")
        ledger[key] = JobLedger(
            due_ms=entry.now_ms + ms if mode == "in" and ms else ms,  # without a delay, the clock may also go back
            expires_ms=entry.now_ms + int(after_ms) if after_ms else 0,
        )
    elif entry.before != entry.after:
        yield f"{key} was enqueued again, which changed something"
    yield from gate_laws.enqueued(entry.before, entry.after)


def _kept(entry: Entry, job_id: str) -> Iterator[str]:
    """Another job holds the unique key of a new one, which is not stored; that one may get its payload, once."""
    key, holder = _key(entry, job_id), entry.before.job(entry.reply)
    if job_id in entry.after.jobs():
        yield f"{key} was stored although {entry.reply} holds its unique key"
    if job_id in holder.get("replaced_by", "").split():
        if entry.after.job(entry.reply) != holder:
            yield f"{entry.reply} was replaced again by {job_id}"
    elif holder.get("status") not in (PENDING, DELAYED, PROCESSING):
        yield f"{key} is said to be the same as {entry.reply}, which has ended"
    elif holder.get("unique_rule", "").startswith("start ") and "started_at_ms" in holder:
        yield f"{key} is said to be the same as {entry.reply}, which has started"


def _claimed(ledger: Ledger, entry: Entry) -> Iterator[str]:
    if entry.reply.is_paused and entry.before != entry.after:
        yield "a claim of a paused queue changed something"
    if not entry.reply.is_paused and "paused" in entry.before.keys:
        yield "a claim got jobs of a paused queue"
    paused = entry.before.holds("paused_tasks", "hash")
    only, asked = _given(entry, "only", "limit")
    if "gates" in entry.after.keys:
        order = [key.partition("/")[2] for key in ledger if key.startswith(f"{entry.queue.name}/")]
        yield from gate_laws.claimed(entry.reply, int(asked), entry.before, entry.after, order)
    for job in entry.reply.jobs:
        key = _key(entry, job.id)
        known = ledger.get(key)
        if is_task_call(job.payload) and job.payload["task"] in paused:
            yield f"{key} was claimed although its task is paused"
        if only and is_task_call(job.payload) and job.payload["task"] not in json.loads(only):
            yield f"{key} was claimed by a worker that does not take its task"
        if known is None or known.is_gone:
            yield f"{key} was claimed but never enqueued"
            known = JobLedger()
        if known.is_done and not known.is_foreign:
            yield f"{key} started after it had completed"
        if known.holder and not known.is_foreign:
            yield f"{key} started while {known.holder} held it"
        if entry.now_ms < known.due_ms:
            yield f"{key} started {known.due_ms - entry.now_ms} ms early"
        if 0 < known.expires_ms <= entry.now_ms:
            yield f"{key} started although it had expired"
        if job.attempts != known.attempts + 1 and not known.is_foreign:
            yield f"{key} is at attempt {job.attempts}, after {known.attempts}"
        if job.attempts > entry.queue.max_attempts:
            yield f"{key} is at attempt {job.attempts} of {entry.queue.max_attempts}"
        if job.claim_token in (known.ended[0], known.holder):
            yield f"{key} got a token that had been used before"
        ledger[key] = replace(known, attempts=job.attempts, holder=job.claim_token, expires_ms=0)
    yield from _expired(ledger, entry)


def _expired(ledger: Ledger, entry: Entry) -> Iterator[str]:
    """A claim cancels a waiting job only if it has expired."""
    for job_id in entry.after.jobs():
        fields = entry.after.job(job_id)
        if fields.get("status") != "cancelled" or entry.before.job(job_id).get("status") == "cancelled":
            continue
        known = ledger.get(_key(entry, job_id), JobLedger())
        if not 0 < known.expires_ms <= entry.now_ms:
            yield f"{job_id} was cancelled by a claim although it had not expired"
        if fields.get("cancel_reason") != "expired":
            yield f"{job_id} expired, but the reason of its cancellation is {fields.get('cancel_reason')}"


def _settled(ledger: Ledger, entry: Entry) -> Iterator[str]:
    words = entry.reply
    (endings,) = _given(entry, "endings")
    for number, word in enumerate(words):
        at = number * _SETTLE_WIDTH
        move, job_id, token, delay = endings[at : at + 4]
        key = _key(entry, str(job_id))
        known = ledger.get(key, JobLedger(is_gone=True))
        if known.is_foreign:
            continue  # a program that writes the hash directly may take a job from its holder
        if word == "OK":
            if known.holder != token:
                yield f"{key}: {move} by {token} was accepted although {known.holder or 'no one'} holds it"
            was_stopped = "stop" in entry.before.job(str(job_id))
            fields = (entry.before.job(str(job_id)), entry.after.job(str(job_id)))
            undoes = run_laws.begins_to_undo(*fields)
            if was_stopped and move != "complete" and fields[1].get("status") != "cancelled" and not undoes:
                yield f"{key} was asked to stop but continues"
            if move == "undo" or (was_stopped and move != "complete"):
                yield from run_laws.goes_back(f"{key}: {move}", *fields)
            yield from run_laws.cancelled(move, *fields)
            due_ms = entry.now_ms + int(delay)
            if move == "suspend" and not was_stopped:
                running = group_laws.running(entry.before)
                due_ms, complaints = run_laws.suspended(str(endings[at + 4]), entry.now_ms, *fields, running)
                yield from complaints
            ledger[key] = _after(known, str(move), str(token), due_ms, entry, str(job_id))
        elif word == "DUPLICATE" and known.ended != (token, move):
            yield f"{key}: {move} by {token} was treated as a repetition of {known.ended}"
        elif word == "LOST" and known.holder == token and not known.is_gone:
            yield f"{key}: {move} by {token} was rejected although it holds the job"
        elif word == "LOST" and known.ended == (token, move) and not known.is_gone:
            yield f"{key}: {move} by {token} was accepted, but rejected when sent again"
    if "OK" not in words and entry.before != entry.after:
        yield f"{endings[2]} got the replies {words} but changed something"


def _after(known: JobLedger, move: str, token: str, due_ms: int, entry: Entry, job_id: str) -> JobLedger:
    ended = replace(known, holder="", ended=(token, move))
    if move == "complete":
        return replace(ended, is_done=True)
    if run_laws.begins_to_undo(entry.before.job(job_id), entry.after.job(job_id)):
        return replace(ended, attempts=0, crashes=0, released=0)
    if entry.after.job(job_id).get("status") == "cancelled":
        return ended
    if move == "suspend":
        return replace(ended, due_ms=due_ms, attempts=known.attempts - 1)
    if move in ("retry", "snooze", "limit"):
        return replace(ended, due_ms=due_ms, attempts=known.attempts - (move != "retry"))
    if move == "release":
        given_back = known.released < FREE_RELEASES
        return replace(ended, attempts=known.attempts - given_back, released=known.released + 1)
    return ended


def _renewed(ledger: Ledger, entry: Entry) -> Iterator[str]:
    reports, pairs = _given(entry, "reports", "held")
    assert not reports, "none of the actors reports progress"
    for number, word in enumerate(entry.reply):
        job_id, token = str(pairs[2 * number]), pairs[2 * number + 1]
        known = ledger.get(_key(entry, job_id), JobLedger())
        if (word != "LOST") != (known.holder == token and not known.is_gone):
            yield f"{job_id}: renewal by {token} returned {word} although {known.holder or 'no one'} holds it"
    if set(entry.reply) == {"LOST"} and entry.before != entry.after:
        yield "a rejected renewal changed something"


def _reclaimed(ledger: Ledger, entry: Entry) -> Iterator[str]:
    sweep, _ = entry.reply
    for job_id in sweep.taken_back:
        key = _key(entry, job_id)
        known = ledger.get(key, JobLedger())
        ends = entry.before.holds("leases", "zset").get(job_id)
        if ends is None or float(ends) > entry.now_ms:
            yield f"{key} was taken back although its lease ends at {ends}"
        if known.is_done and not known.is_foreign:
            yield f"{key} was taken back after it had completed"
        crashes = known.crashes + 1
        due = int(entry.after.job(job_id).get("run_at_ms") or 0)
        in_order = int(entry.after.job(job_id).get("retry_at_ms") or 0) > entry.now_ms
        is_delayed = entry.after.job(job_id).get("status") == "delayed" or in_order
        if is_delayed and due < entry.now_ms + 1000:
            yield f"{key} lost {crashes} leases but is retried without a delay"
        if entry.after.job(job_id).get("status") in ("failed", "cancelled"):
            yield from run_laws.goes_back(f"{key}: a reclaim", entry.before.job(job_id), entry.after.job(job_id))
        if run_laws.begins_to_undo(entry.before.job(job_id), entry.after.job(job_id)):
            ledger[key] = JobLedger(ended=(known.holder, "reclaim"))
            continue
        ledger[key] = replace(
            known,
            holder="",
            ended=(known.holder, "reclaim"),
            crashes=crashes,
            attempts=max(known.attempts, crashes),
            due_ms=due if is_delayed else known.due_ms,
        )


def _recovered(ledger: Ledger, entry: Entry) -> Iterator[str]:
    (request,) = _given(entry, "request")
    for job in entry.reply[1]:
        if not job.claim_token.startswith(f"{request}."):
            yield f"{job.id} is held by {job.claim_token} but was returned to {request}"
    if entry.before != entry.after:
        yield "a recover request changed something"


def _cancelled(ledger: Ledger, entry: Entry) -> Iterator[str]:
    request, job_id = _given(entry, "request", "id")
    status = entry.after.job(job_id).get("status")
    known = ledger.get(_key(entry, job_id), JobLedger(is_gone=True))
    is_repeated = entry.before.job(job_id).get("request", "").startswith(f"{request} ")
    if is_repeated:
        if entry.before != entry.after:
            yield f"{job_id}: a repeated cancellation changed something"
    elif entry.reply == "cancelled" and (status != "cancelled" or known.holder):
        yield f"{job_id} was reported as cancelled but is {status}"
    elif entry.reply == "asked" and run_laws.begins_to_undo(entry.before.job(job_id), entry.after.job(job_id)):
        ledger[_key(entry, job_id)] = JobLedger(ended=known.ended)
    elif entry.reply == "asked" and status != "processing" and "undoing" not in entry.after.job(job_id):
        yield f"{job_id} was asked to stop but is {status}"
    elif entry.reply == "no" and not (known.is_gone or status in ("completed", "failed", "cancelled")):
        yield f"{job_id} could not be cancelled although it is {status}"


def _requeued(ledger: Ledger, entry: Entry) -> Iterator[str]:
    request, ids = _given(entry, "request", "ids")
    for job_id, word in zip(map(str, ids), entry.reply, strict=False):
        if entry.before.job(job_id).get("request", "").startswith(f"{request} "):
            continue
        was = entry.before.job(job_id).get("status")
        if word == "yes":
            if was not in ("failed", "cancelled"):
                yield f"{job_id} was requeued although it was {was}"
            key = _key(entry, job_id)
            ledger[key] = JobLedger(ended=("", ""), due_ms=0)
            yield from run_laws.requeued(entry.before.job(job_id), entry.after.job(job_id))


def _recorded(ledger: Ledger, entry: Entry) -> Iterator[str]:
    """Only the holder records something, and it knows whether it was."""
    job_id, token = _given(entry, "id", "token")
    key, name = _key(entry, job_id), entry.operation.name
    known = ledger.get(key, JobLedger(is_gone=True))
    holds = known.holder == token and not known.is_gone
    if isinstance(entry.reply, RunLost):
        if holds:
            yield f"{key}: {name} by {token} was rejected although it holds the job"
        if entry.before != entry.after:
            yield f"{key}: {name} by {token} was rejected, but changed something"
        return
    if not holds:
        yield f"{key}: {name} by {token} was accepted although {known.holder or 'no one'} holds it"
    if entry.reply.word == "EXISTS" and entry.before != entry.after:
        yield f"{key}: {name} found a memo, but changed something"
    was, now = entry.before.job(job_id), entry.after.job(job_id)
    if name == "receive":
        operation, topic, timeout = _given(entry, "name", "topic", "timeout")
        yield from run_laws.received(operation, topic, timeout, entry.reply, entry.now_ms, was)
    if name == "step" and entry.reply.word == "OK":
        (losers,) = _given(entry, "losers")
        yield from run_laws.given_back(losers, was, now)
    if name == "start_over":
        (args,) = _given(entry, "args")
        yield from run_laws.started_over(args, was, now)
    if entry.reply.word == "OK" and name in ("step", "receive", "start_over"):
        ledger[key] = replace(known, attempts=1, crashes=0, released=0)


def _sent(ledger: Ledger, entry: Entry) -> Iterator[str]:
    job_id, topic, message, value = _given(entry, "id", "topic", "message", "value")
    yield from run_laws.sent(
        message, topic, value, is_accepted=entry.reply, before=entry.before, after=entry.after, job_id=job_id
    )
    key = _key(entry, job_id)
    if key in ledger and entry.before.job(job_id).get("status") == DELAYED != entry.after.job(job_id).get("status"):
        ledger[key] = replace(ledger[key], due_ms=entry.now_ms)


def _rescheduled(ledger: Ledger, entry: Entry) -> Iterator[str]:
    request, job_id, mode, ms = _given(entry, "request", "id", "mode", "ms")
    key = _key(entry, str(job_id))
    if entry.reply and not entry.before.job(str(job_id)).get("request", "").startswith(f"{request} "):
        if entry.before.job(str(job_id)).get("status") != "delayed":
            yield f"{key} was rescheduled although it was not delayed"
        due = entry.now_ms + int(ms) if mode == "in" else int(ms)
        if "waits" in entry.before.job(str(job_id)) and due > entry.now_ms:
            yield f"{key} was given another time although it is suspended"
        ledger[key] = replace(ledger.get(key, JobLedger()), due_ms=due)


def _promoted(ledger: Ledger, entry: Entry) -> Iterator[str]:
    (me,) = _given(entry, "promoter_id")
    yield from promoter_laws.promoted(me, entry.before, entry.after, is_leader=entry.reply.is_leader)


def _woken(ledger: Ledger, entry: Entry) -> Iterator[str]:
    if entry.after.holds("pending", "list") and "paused" not in entry.after.keys and "wake" not in entry.after.keys:
        yield "the wake marker was put back but is missing"


def _held(ledger: Ledger, entry: Entry) -> Iterator[str]:
    name, action = _given(entry, "name", "action")
    yield from gate_laws.held(name, action, entry.before, entry.after)


def _purged(ledger: Ledger, entry: Entry) -> Iterator[str]:
    began = int(entry.reply[0])
    for job_id in entry.before.jobs():
        was, now = entry.before.job(job_id), entry.after.job(job_id)
        yield from run_laws.deleted(f"{job_id}: a purge", was, now)
        if run_laws.begins_to_undo(was, now):
            ledger[_key(entry, job_id)] = JobLedger(ended=ledger.get(_key(entry, job_id), JobLedger()).ended)
    for job_id in entry.before.jobs().keys() - entry.after.jobs().keys():
        if int(entry.before.job(job_id).get("enqueued_at_ms", 0)) > began:
            yield f"{job_id} was enqueued after the purge had begun but was purged"
    for key, known in ledger.items():
        queue, _, job_id = key.partition("/")
        if (
            queue == entry.queue.name
            and f"job:{job_id}" in entry.before.keys
            and f"job:{job_id}" not in entry.after.keys
        ):
            ledger[key] = replace(known, is_gone=True, holder="")


def _deleted(ledger: Ledger, entry: Entry) -> Iterator[str]:
    """A job that was not running is gone completely; a running or rejected one is unchanged."""
    if entry.before == entry.after:
        return
    (ids,) = _given(entry, "ids")
    for job_id, word in zip(map(str, ids), entry.reply, strict=False):
        key = _key(entry, job_id)
        known = ledger.get(key, JobLedger())
        if word != "yes":
            if f"job:{job_id}" in entry.before.keys and f"job:{job_id}" not in entry.after.keys:
                yield f"{key} should not have been deleted but is gone"
            continue
        if f"job:{job_id}" in entry.after.keys:
            yield f"{key} was reported as deleted but still exists"
        if known.holder:
            yield f"{key} was deleted while {known.holder} held it"
        yield from run_laws.deleted(f"{key}: a delete", entry.before.job(job_id), {})
        ledger[key] = replace(known, is_gone=True, holder="")


def _fired(ledger: Ledger, entry: Entry) -> Iterator[str]:
    """Slots only advance; each creates one job, at its time, and is recorded once."""
    jobs, words = entry.reply
    new = entry.after.jobs().keys() - entry.before.jobs().keys()
    if len(new) != jobs:
        yield f"{jobs} jobs were reported as created, but {len(new)} exist"
    for job_id in new:
        key = _key(entry, job_id)
        fields = entry.after.job(job_id)
        if key in ledger:
            yield f"{key} was created twice"
        if int(fields["slot_ms"]) > entry.now_ms:
            yield f"{key} was created before its slot"
        ledger[key] = JobLedger(due_ms=int(fields["run_at_ms"]))
    yield from schedule_laws.advanced(entry.before, entry.after)
    if "FIRED" not in words and entry.before != entry.after:
        yield f"nothing was fired ({words}), but something changed"


def _filled(ledger: Ledger, entry: Entry) -> Iterator[str]:
    name, at, items, *holder = _given(entry, "name", "at", "items", "run", "token")
    yield from group_laws.filled(name, int(at) + len(items), getattr(entry.reply, "total", None), entry.before, *holder)


_HANDLERS = {
    "replicate": failover.replicated,
    "fail_over": failover.failed_over,
    "fire": _fired,
    "fill_group": _filled,
    "enqueue": _enqueued,
    "claim": _claimed,
    "settle": _settled,
    "recover": _recovered,
    "renew": _renewed,
    "reclaim": _reclaimed,
    "cancel": _cancelled,
    "requeue": _requeued,
    "reschedule": _rescheduled,
    "add_undo": _recorded,
    "step": _recorded,
    "failed_try": _recorded,
    "until": _recorded,
    "receive": _recorded,
    "start_over": _recorded,
    "send": _sent,
    "promote": _promoted,
    "wake": _woken,
    "purge": _purged,
    "delete": _deleted,
    "hold_gate": _held,
}
