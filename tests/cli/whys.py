"""Situations in which a job is not running, each set up for real, and the expected explanation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from schedq import Discard, Fixed, Queue
from schedq.model import outcome
from schedq.transitions import claim
from tests.cli.scenes import beat, claimed

Stage = Callable[[Queue, Any], str]
THREE_DAYS_S: Final = 3 * 86_400
"""Long enough that no standing still of the machine shows in the words."""


@dataclass(frozen=True)
class Situation:
    """How a job came not to run.

    Attributes:
        name: in a user's words.
        stage: sets it up, with the queue and a plain client; returns the job's id.
        reason: the word for programs.
        says: a pattern that the sentence matches.
        facts: facts that must be among those given.
        settings: of the queue.
    """

    name: str
    stage: Stage
    reason: str
    says: str
    facts: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def _earlier(seconds: float) -> dict[str, Any]:
    """A queue that lives in the past: what it does was done so long ago. A negative time is one in the future."""
    return {"clock": lambda: time.time() - seconds}


def _key(queue: Queue, job_id: str) -> str:
    return queue.settings.keys.job(job_id)


def _with_worker(queue: Queue, **facts: str | int) -> None:
    known: dict[str, str | int] = {"running": 0, "tasks": '["send"]', "has_handler": 1}
    beat(queue, "w-1", **(known | facts))


def _promoter(queue: Queue, client: Any) -> None:
    client.set(queue.settings.keys.promoter, "p-1", px=600_000)


# -- finished


def _completed(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1)
    queue.complete(claimed(queue))
    return job_id


def _failed(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1, max_attempts=3, backoff=Fixed(0))
    for _attempt in range(3):
        queue.fail(claimed(queue), ValueError("no such user"))
    return job_id


def _discarded(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1)
    queue.fail(claimed(queue), Discard("card refused\nsecond line"))
    return job_id


def _cancelled(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1)
    queue.cancel(job_id)
    return job_id


# -- damaged, or not there


def _broken(queue: Queue, client: Any) -> str:
    job_id = _no_data(queue, client)
    queue.claim(0)
    return job_id


def _no_data(queue: Queue, client: Any) -> str:
    job_id = queue.enqueue(1)
    client.delete(_key(queue, job_id))
    return job_id


def _no_data_delayed(queue: Queue, client: Any) -> str:
    client.zadd(queue.settings.keys.delayed, {"theirs": 4_000_000_000_000})
    return "theirs"


def _wrong_type(queue: Queue, client: Any) -> str:
    job_id = _no_data(queue, client)
    client.set(_key(queue, job_id), "what is this")
    return job_id


def _expired(queue: Queue, client: Any) -> str:
    job_id = _completed(queue, client)
    client.delete(_key(queue, job_id))
    return job_id


def _purged(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1)
    queue.purge()
    return job_id


def _never_there(queue: Queue, _: Any) -> str:
    queue.enqueue(1)
    return "invoice-17"


# -- a worker has it


def _running(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1)
    claimed(queue)
    return job_id


def _asked(queue: Queue, _: Any) -> str:
    job_id = _running(queue, _)
    assert queue.cancel(job_id) == "asked"
    return job_id


def _lease_over_with_promoter(queue: Queue, client: Any) -> str:
    _promoter(queue, client)
    return _running(queue, client)


def _taken_by_another_program(queue: Queue, client: Any) -> str:
    job_id = queue.enqueue(1)
    client.lmove(queue.settings.keys.pending, queue.settings.keys.processing, "RIGHT", "LEFT")
    client.hset(_key(queue, job_id), mapping={"status": "processing", "claim_token": "theirs"})
    return job_id


# -- it waits for its time


def _delayed(queue: Queue, _: Any) -> str:
    return queue.enqueue(1, delay=THREE_DAYS_S)


def _retry(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1, max_attempts=5, backoff=Fixed(THREE_DAYS_S))
    queue.fail(claimed(queue), "smtp timeout")
    return job_id


def _held_back(queue: Queue, client: Any) -> str:
    job_id = queue.enqueue(1, max_attempts=9, backoff=Fixed(THREE_DAYS_S))
    for _attempt in range(2):
        claimed(queue)
        client.zadd(queue.settings.keys.leases, {job_id: 1})
        assert queue.reclaim_stuck() == [job_id]
    return job_id


def _passed_over(queue: Queue, client: Any) -> str:
    keys, job_id = queue.settings.keys, queue.enqueue(1)
    client.hset(keys.job(job_id), mapping={"crashes": 2, "settled_move": "retry"})
    queue._ask(claim.claim(queue.settings, "r-1", 5, "w-1", suspects=False))
    return job_id


def _snoozed(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1)
    queue.snooze(claimed(queue), THREE_DAYS_S)
    return job_id


def _unknown(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue({"task": "resize"})
    settlement = outcome.unknown(claimed(queue), "this worker has no task 'resize'", queue.settings)
    queue.settle(settlement._replace(delay_ms=1000 * THREE_DAYS_S))
    return job_id


def _paused_and_not_due(queue: Queue, _: Any) -> str:
    queue.pause()
    return queue.enqueue(1, delay=THREE_DAYS_S)


# -- it is due


def _paused(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1)
    queue.pause()
    return job_id


def _task_paused(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue({"task": "send"})
    queue.pause(task="send")
    return job_id


def _held(queue: Queue, _: Any) -> str:
    queue.enqueue({"task": "send"})
    job_id = _task_paused(queue, _)
    assert queue.claim(0) is None
    return job_id


def _due_while_paused(queue: Queue, _: Any) -> str:
    job_id = queue.enqueue(1, delay=THREE_DAYS_S)
    queue.pause()
    return job_id


def _due(queue: Queue, _: Any) -> str:
    return queue.enqueue(1, delay=THREE_DAYS_S)


def _due_with_promoter(queue: Queue, client: Any) -> str:
    _promoter(queue, client)
    return _due(queue, client)


def _due_with_worker(queue: Queue, client: Any) -> str:
    client.zadd(queue.settings.keys.delayed, {"theirs": 1000})
    client.hset(_key(queue, "theirs"), "payload", "1")
    _with_worker(queue)
    return "theirs"


def _alone(queue: Queue, _: Any) -> str:
    queue.enqueue_many([1, 2])
    return queue.enqueue(1)


def _workers_died(queue: Queue, client: Any) -> str:
    """Jobs ended recently, by a worker that no longer exists."""
    for _job in range(3):
        job_id = queue.enqueue(1)
        queue.complete(claimed(queue))
        client.hset(_key(queue, job_id), "worker", "w-dead")
    return queue.enqueue(1)


def _stopping(queue: Queue, client: Any) -> str:
    _with_worker(queue)
    client.hset(queue.settings.keys.worker("w-1"), "stop", 1)
    return queue.enqueue({"task": "send"})


def _stuck(queue: Queue, _: Any) -> str:
    jobs = '[{"id": "j1", "queue": "mail", "task": "render", "why": "timed out", "since_ms": 1}]'
    _with_worker(queue, concurrency=2, stuck=2, stuck_jobs=jobs)
    return queue.enqueue({"task": "send"})


def _no_such_task(queue: Queue, _: Any) -> str:
    _with_worker(queue)
    return queue.enqueue({"task": "resize", "args": [1]})


def _no_handler(queue: Queue, _: Any) -> str:
    _with_worker(queue, has_handler=0)
    return queue.enqueue({"kind": "email"})


def _suspect(queue: Queue, client: Any) -> str:
    other, job_id = queue.enqueue_many([1, 2])
    claimed(queue)
    for name in (other, job_id):
        client.hset(_key(queue, name), "crashes", 2)
    _with_worker(queue, running=1, jobs=f'[{{"id":"{other}","task":""}}]')
    return job_id


def _behind_many(queue: Queue, client: Any) -> str:
    _with_worker(queue)
    with Queue(queue.name, redis=client, **_earlier(1)) as past:
        past.enqueue_many(range(120))
        for _job in range(120):
            past.complete(claimed(past))
    queue.enqueue_many(range(1204))
    return queue.enqueue("last")


def _behind_and_nothing_moves(queue: Queue, _: Any) -> str:
    _with_worker(queue)
    queue.enqueue(1)
    return queue.enqueue(2)


def _far_behind(queue: Queue, client: Any) -> str:
    _with_worker(queue)
    job_id = queue.enqueue(1)
    client.delete(queue.settings.keys.pending)
    for place, rest in (("lpush", 60_000), ("rpush", 60_000)):
        if place == "rpush":
            client.rpush(queue.settings.keys.pending, job_id)
        for _batch in range(rest // 10_000):
            getattr(client, place)(queue.settings.keys.pending, *["x"] * 10_000)
    return job_id


def _all_busy(queue: Queue, _: Any) -> str:
    _with_worker(queue, concurrency=2, running=2)
    queue.enqueue_many([1, 2])
    claimed(queue), claimed(queue)
    return queue.enqueue(3)


def _next(queue: Queue, _: Any) -> str:
    _with_worker(queue)
    return queue.enqueue({"task": "send"})


def _next_by_hand(queue: Queue, _: Any) -> str:
    """No worker sends heartbeats, but jobs end: another program claims manually."""
    for _job in range(3):
        queue.enqueue(1)
        queue.complete(claimed(queue))
    return queue.enqueue(1)


# -- it is in no list


def _cut_short(queue: Queue, client: Any) -> str:
    job_id = queue.enqueue(1)
    client.delete(queue.settings.keys.pending)
    client.zadd(queue.settings.keys.leases, {job_id: 0})
    return job_id


def _orphan(queue: Queue, client: Any) -> str:
    job_id = queue.enqueue(1)
    client.delete(queue.settings.keys.pending)
    return job_id


def _unlisted(queue: Queue, client: Any) -> str:
    client.hset(_key(queue, "theirs"), "payload", "1")
    return "theirs"


def _stray(queue: Queue, client: Any) -> str:
    """A finished job with an entry left in `pending`, which a claim will drop."""
    job_id = _completed(queue, client)
    client.lpush(queue.settings.keys.pending, job_id)
    return job_id


SOME: Final = r"\d[\w. ]*"
AWAKE: Final = {"visibility_ms": THREE_DAYS_S * 1000}
SITUATIONS: Final = (
    Situation("it completed", _completed, "completed", rf"it completed {SOME} ago, at attempt 1"),
    Situation("it completed and an entry is left", _stray, "completed", "it completed"),
    Situation(
        "its attempts failed",
        _failed,
        "failed",
        rf"it failed {SOME} ago after 3 attempts with ValueError: no such user",
        {"attempts": 3, "max_attempts": 3, "error": "ValueError: no such user"},
    ),
    Situation("it was discarded", _discarded, "failed", "after 1 attempt with card refused$", {"attempts": 1}),
    Situation("it was cancelled", _cancelled, "cancelled", rf"it was cancelled {SOME} ago"),
    Situation(
        "it could not be run", _broken, "broken", r"could not be run: its data is gone", {"problem": "its data is gone"}
    ),
    Situation("its data is gone", _no_data, "no_data", "is in pending, but its data is gone", {"place": "pending"}),
    Situation("scheduled without data", _no_data_delayed, "no_data", "is in delayed", {"place": "delayed"}),
    Situation(
        "its data is not a hash", _wrong_type, "wrong_type", "a string is stored under its key", {"type": "string"}
    ),
    Situation("its record expired", _expired, "expired", "it is completed, but its record is gone"),
    Situation("it was purged", _purged, "gone", rf"nothing is stored about it, although its id was created {SOME} ago"),
    Situation("it was never there", _never_there, "unknown", "nothing is stored about it: trimmed, purged, or never"),
    Situation(
        "it runs",
        _running,
        "running",
        r"it has been running for .* another 3 d, unless renewed",
        {"attempts": 1},
        AWAKE,
    ),
    Situation("it runs and was cancelled", _asked, "stop_asked", rf"was asked to stop {SOME} ago", {}, AWAKE),
    Situation(
        "its worker died",
        _running,
        "lease_expired",
        r"is silent: the lease ended 3 d ago.*; no promoter is alive",
        {"promoter": None, "attempts": 1},
        _earlier(THREE_DAYS_S),
    ),
    Situation(
        "its worker died, a promoter lives",
        _lease_over_with_promoter,
        "lease_expired",
        "the reclaimer will take it back$",
        {"promoter": "p-1"},
        _earlier(THREE_DAYS_S),
    ),
    Situation("another program runs it", _taken_by_another_program, "unleased", "a program that sets no lease"),
    Situation("it is due later", _delayed, "due_later", r"it is due in 3 d$"),
    Situation("it is due later and the queue is paused", _paused_and_not_due, "due_later", "it is due in 3 d"),
    Situation(
        "it waits for another attempt",
        _retry,
        "retry",
        r"its next attempt is due in 3 d: attempt 1 of 5 failed with smtp timeout",
        {"attempts": 1, "max_attempts": 5, "error": "smtp timeout"},
    ),
    Situation(
        "it lost its leases",
        _held_back,
        "held_back",
        r"it lost 2 leases, so it may kill its workers, and is held back for another 3 d",
        {"leases_lost": 2},
    ),
    Situation(
        "claims passed it over, as it lost its leases",
        _passed_over,
        "held_back",
        r"it lost 2 leases.*: each takes one such job at a time.*; it is due again in 3 d at the latest$",
        {"leases_lost": 2},
        _earlier(-THREE_DAYS_S),
    ),
    Situation("its handler put it off", _snoozed, "snoozed", r"it is due in 3 d: its handler put it off"),
    Situation(
        "no worker that claimed it had its task",
        _unknown,
        "unknown_task",
        r"no worker that claimed it in the last [\d.]+ m?s had the task 'resize': .* attempts, and tried again in 3 d",
        {"task": "resize", "attempts": 0},
    ),
    Situation("the queue is paused", _paused, "paused", rf"the queue is paused, for {SOME} now"),
    Situation(
        "its task is paused",
        _task_paused,
        "task_paused",
        rf"the task 'send' is paused, for {SOME} now",
        {"task": "send"},
    ),
    Situation(
        "its task is paused and a claim has held it",
        _held,
        "task_paused",
        rf"the task 'send' is paused, for {SOME} now",
        {"task": "send"},
    ),
    Situation("it came due in a pause", _due_while_paused, "paused", "paused", {}, _earlier(2 * THREE_DAYS_S)),
    Situation(
        "the promoter is behind",
        _due_with_promoter,
        "promoter_behind",
        "it was due 3 d ago and was not promoted: the promoter is that far behind",
        {"promoter": "p-1"},
        _earlier(2 * THREE_DAYS_S),
    ),
    Situation(
        "no process promotes",
        _due,
        "no_promoter",
        "no promoter is alive, and no worker is alive either",
        {"workers": 0},
        _earlier(2 * THREE_DAYS_S),
    ),
    Situation("a worker lives and does not promote", _due_with_worker, "no_promoter", "workers will take over"),
    Situation("no worker is there", _alone, "no_worker", "no worker is alive; 2 jobs ahead of it", {"ahead": 2}),
    Situation("the workers died", _workers_died, "no_worker", "no worker is alive$", {"ahead": 0, "workers": 0}),
    Situation("the workers go", _stopping, "all_stopping", r"every live worker \(1\) was asked to stop"),
    Situation(
        "no worker has the task",
        _no_such_task,
        "no_task",
        r"no live worker has the task 'resize' \(1 is alive\)",
        {"task": "resize", "tasks": ["send"]},
    ),
    Situation(
        "no worker has a handler",
        _no_handler,
        "no_task",
        "a handler for payloads that are not task calls",
        {"task": None},
    ),
    Situation(
        "handlers that do not end hold all slots",
        _stuck,
        "all_stuck",
        r"all 2 slots of 1 worker that could run it are stuck: render did not end when told to; restart them",
        {"slots": 2, "workers": ["w-1"], "tasks": ["render"], "ahead": 0},
    ),
    Situation(
        "each worker runs a suspect",
        _suspect,
        "one_at_a_time",
        "it lost 2 leases.* each takes one such job at a time",
        {"leases_lost": 2, "suspects_running": 1},
    ),
    Situation(
        "jobs are ahead of it",
        _behind_many,
        "ahead",
        r"^1,204 jobs ahead of it at [\d.]+/s \(about .+\)$",
        {"ahead": 1204, "is_exact": True, "pending": 1205},
    ),
    Situation(
        "jobs are ahead of it and none ends",
        _behind_and_nothing_moves,
        "ahead",
        "^1 job ahead of it, and none ended in the last minute$",
        {"ahead": 1, "per_second": 0, "wait_ms": None},
    ),
    Situation(
        "too many are ahead of it to be counted",
        _far_behind,
        "ahead",
        "^at least 50,000 jobs ahead of it",
        {"is_exact": False, "pending": 120_001},
    ),
    Situation("all workers are busy", _all_busy, "busy", "all workers are busy: 2 of 2 slots of 1 live", {"slots": 2}),
    Situation(
        "it is next",
        _next,
        "next",
        "next in line, and the next idle worker will be woken",
        {"ahead": 0, "is_marked": True},
    ),
    Situation("it is next for a manual claim", _next_by_hand, "next", "next in line", {"workers": 0}),
    Situation("a move was cut short", _cut_short, "cut_short", "half-way: its record says pending"),
    Situation("no list has it", _orphan, "orphan", "its record says pending, but no list has it"),
    Situation("its producer did not list it", _unlisted, "unlisted", "has not added it to pending"),
)
