"""Scenes with gates: what scripts do to the places, lanes and turns of their jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Literal

from schedq import ClaimedJob, Queue, Rate
from schedq.inspect import bulk
from schedq.inspect.bulk import purge_page
from schedq.model.records import Options, Settlement
from schedq.transitions import cancel, claim, enqueue, gates, promote, reclaim, settle
from scripts.tools.crashes.scene import Scene, Staged, command, mark_job, wipe_job
from tests.doors import Clock


def _two_gates(queue: Queue) -> None:
    queue.gate(
        "api", concurrency=3, key_concurrency=1, rate=Rate(20, per=1, burst=9), key_rate=Rate(10, per=1, burst=5)
    )
    queue.gate("ledger", serial=True, weight=2)


def _jobs(queue: Queue, *keys: str, gate: str = "api") -> list[str]:
    return [queue.enqueue(key, gate=gate, key=key) for key in keys]


def _claimed(queue: Queue, most: int = 10) -> list[ClaimedJob]:
    found: claim.Claim = queue._ask(claim.claim(queue.settings, "before", most))
    return list(found.jobs)


def _enqueue(queue: Queue, clock: Clock) -> Staged:
    """One key has jobs, one is full, one is new, and one gate is not known yet."""
    _two_gates(queue)
    old = [*_jobs(queue, "a", "b", "b"), *_jobs(queue, "c", gate="ledger")]
    _claimed(queue, 1)
    given = [Options(gate="api", key="a"), Options(gate="api", key="new"), Options(gate="ledger", key="c", delay=5)]
    new = [enqueue.prepare(queue.settings, n, each) for n, each in enumerate([*given, Options(gate="other")])]
    operation: Any = enqueue._store_some(queue.settings, new, ())
    operation = operation._replace(read=lambda reply: len(reply) == len(new))
    return Staged(operation, old, [job.job_id for job in new], reply=True)


def _claim_one_gate(queue: Queue, clock: Clock) -> Staged:
    """Keys that are ready, full or rest, a job that another program pushed, and one without data."""
    _two_gates(queue)
    ids = _jobs(queue, "a", "a", "b", "c", "c", "d")
    _claimed(queue, 1)
    wipe_job(queue, ids[2])
    pushed = queue.enqueue("pushed")
    mark_job(queue, pushed, "gate", "api", "key", "c")
    queue._ask(gates.hold(queue.settings, "api", "d", "hold", 1000))
    clock.pass_time(2)
    operation = claim.claim(queue.settings, "request", 20, "worker")
    return Staged(operation, [*ids[:2], *ids[3:], pushed], may_go=[ids[2]])


def _claim_two_gates(queue: Queue, clock: Clock) -> Staged:
    """Plain jobs and those of two gates, of which the queue may start some."""
    _two_gates(queue)
    ids = [*_jobs(queue, "a", "b", "b"), *_jobs(queue, "a", "a", gate="ledger"), queue.enqueue("plain")]
    queue._ask(gates.set_limits(queue.settings, "", json.dumps({"concurrency": 4, "rate": [[30, 1000, 1]]})))
    return Staged(claim.claim(queue.settings, "request", 20, "worker"), ids)


def _settle(gate: str, *moves: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        queue.gate("api", key_concurrency=1)
        queue.gate("ledger", serial=True)
        keys = [f"k{n}" for n in range(len(moves))]
        ids = _jobs(queue, *keys, *keys, gate=gate)
        ends = [
            Settlement(move, job.id, job.claim_token, 5000, "x", "key", gate_key=job.gate_key)
            for move, job in zip(moves, _claimed(queue), strict=True)
        ]
        return Staged(settle.settle(queue.settings, ends), ids)

    return stage


def _define(by: str) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        _two_gates(queue)
        ids = _jobs(queue, "a", "a", "b")
        _claimed(queue, 1)
        if by == "remove":
            return Staged(gates.remove(queue.settings, "api"), ids)
        return Staged(gates.set_limits(queue.settings, "api", json.dumps({"key_concurrency": 2})), ids)

    return stage


def _hold(action: Literal["pause", "hold", "resume"]) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        ids = _jobs(queue, "a", "a", "b")
        if action == "resume":
            queue._ask(gates.hold(queue.settings, "api", "a", "pause"))
        return Staged(gates.hold(queue.settings, "api", "a", action, 5000), ids)

    return stage


def _promote(queue: Queue, clock: Clock) -> Staged:
    """Jobs that are due, keys whose rest is over, and limits that have changed."""
    _two_gates(queue)
    due = queue.enqueue("due", delay=1, gate="api", key="a")
    ids = _jobs(queue, "b", "b", "c")
    (job,) = _claimed(queue, 1)
    limited = Settlement("limit", job.id, job.claim_token, 500, note="key", gate_key=job.gate_key)
    queue._ask(settle.settle(queue.settings, [limited]))
    queue._ask(gates.set_limits(queue.settings, "api", json.dumps({"key_concurrency": 2})))
    clock.pass_time(2)
    return Staged(promote.promote(queue.settings, 100, "me"), [due, *ids])


def _reclaim(queue: Queue, clock: Clock) -> Staged:
    """Lost leases of jobs of two gates, and a place whose job has lost its record and its lease."""
    _two_gates(queue)
    ids = [*_jobs(queue, "b", "b"), *_jobs(queue, "c", "c", gate="ledger")]
    held = _claimed(queue)
    gone = next(job.id for job in held if job.key == "b")
    in_order = next(job.id for job in held if job.gate == "ledger")
    wipe_job(queue, gone)
    command(queue, "LREM", queue.settings.keys.processing, 0, gone)
    command(queue, "ZREM", queue.settings.keys.leases, gone)
    mark_job(queue, in_order, "attempts", 2, "crashes", 1, "max_attempts", 9)
    clock.pass_time(11)
    waits: list[str | int] = [in_order, 2, 9, 4000, ""]
    operation = reclaim._reclaim(queue.settings, offset=0, shorten=0, decided=waits, looked_at="", knows_tasks=0)
    return Staged(operation, [job_id for job_id in ids if job_id != gone])


def _cancel(queue: Queue, clock: Clock) -> Staged:
    _two_gates(queue)
    first, *others = _jobs(queue, "a", "a", "b", gate="ledger")
    return Staged(cancel.cancel(queue.settings, first), [first, *others], reply="cancelled")


def _delete(queue: Queue, clock: Clock) -> Staged:
    _two_gates(queue)
    ids = _jobs(queue, "a", "a", "b")
    return Staged(bulk.delete(queue.settings, "request", [ids[0], ids[2]], "pending", 0), [ids[1]], may_go=ids)


def _purge(queue: Queue, clock: Clock) -> Staged:
    _two_gates(queue)
    ids = _jobs(queue, "a", "a", "b", "b")
    running = [job.id for job in _claimed(queue)]
    clock.pass_time(1)
    operation = purge_page(queue.settings, queue.settings.keys.processing, "list", "", 0)
    return Staged(operation, [job_id for job_id in ids if job_id not in running], may_go=running)


SCENES: Final = (
    Scene("enqueue, gates", _enqueue),
    Scene("claim, one gate", _claim_one_gate),
    Scene("claim, two gates", _claim_two_gates),
    Scene("settle, a gate", _settle("api", "complete", "snooze", "limit")),
    Scene("settle, in order", _settle("ledger", "retry", "release")),
    Scene("limits of a gate", _define("set")),
    Scene("removal of a gate", _define("remove")),
    Scene("pause a key", _hold("pause")),
    Scene("hold a key", _hold("hold")),
    Scene("resume a key", _hold("resume")),
    Scene("promote, gates", _promote),
    Scene("reclaim, gates", _reclaim),
    Scene("cancel, gates", _cancel),
    Scene("delete jobs, gates", _delete),
    Scene("purge, gates", _purge),
)
