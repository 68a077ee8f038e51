"""Each key of each request in turn has the wrong type: reported before anything changes, or harmless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schedq import Conflict, Discard, Rate
from schedq.transitions import scripts
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import one_door

HINTS = {
    "wake",
    "wake_held",
    "log",
    "stats",
    "promoter",
    "standbys",
    "asleep",
    "workers",
    "schedules",
    "tasks",
    "suspects",
}
HINTS |= {"groups", "undos"}
"""Keys that only inform, count or speed things up never block a job."""

UNTOUCHED = {("enqueue", "delayed"), ("claim", "cancelled"), ("claim", "lanes")}
UNTOUCHED |= {
    (verb, history) for verb in ("enqueue", "enqueue later") for history in ("completed", "failed", "cancelled")
}
UNTOUCHED |= {("requeue", "unique_keys"), ("enqueue unique", "held")}
UNTOUCHED |= {("enqueue unique", history) for history in ("completed", "failed", "cancelled")}
UNTOUCHED |= {("promote", key) for key in ("paused_tasks", "held", "lanes")}
UNTOUCHED |= {(verb, "held") for verb in ("enqueue", "enqueue later", "enqueue own id", "reclaim", "cancel", "stop")}
UNTOUCHED |= {(verb, "held") for verb in ("complete", "retry", "fail", "snooze", "release")}
UNTOUCHED |= {("complete", key) for key in ("pending", "delayed", "failed", "cancelled")}
"""Keys that matter only for jobs with callers' own ids, for those that have expired, in batches, or while a task is
paused."""

OF_GATES = {"lanes", "gates", "open_gates", "resting", "gate_holds", "gate_turns"}
"""Keys that matter only while jobs belong to gates."""

ZSETS = {
    "groups",
    "undos",
    "open_gates",
    "resting",
    "gate_holds",
    "delayed",
    "leases",
    "wake",
    "wake_held",
    "workers",
    "schedules",
    "suspects",
    "held",
}

IN_USE = {"gates": ("claim", "promote", "reclaim")}
"""Verbs that look at a key of gates as soon as it exists."""

Verb = Callable[[Handle, dict[str, Any]], object]
VERBS: dict[str, tuple[str, Verb]] = {
    "enqueue": ("enqueue", lambda queue, jobs: queue.enqueue("new")),
    "enqueue later": ("enqueue", lambda queue, jobs: queue.enqueue("new", delay=1)),
    "enqueue own id": ("enqueue", lambda queue, jobs: queue.enqueue("new", job_id="mine")),
    "enqueue unique": ("enqueue_unique", lambda queue, jobs: queue.enqueue("new", unique="mine")),
    "claim": ("claim", lambda queue, jobs: queue.claim(0)),
    "complete": ("settle", lambda queue, jobs: queue.complete(jobs["held"])),
    "retry": ("settle", lambda queue, jobs: queue.fail(jobs["held"])),
    "fail": ("settle", lambda queue, jobs: queue.fail(jobs["held"], Discard())),
    "snooze": ("settle", lambda queue, jobs: queue.snooze(jobs["held"], 1)),
    "release": ("settle", lambda queue, jobs: queue.release(jobs["held"])),
    "renew": ("renew", lambda queue, jobs: queue.renew(jobs["held"])),
    "promote": ("promote", lambda queue, jobs: queue.promote_due()),
    "reclaim": ("reclaim", lambda queue, jobs: queue.reclaim_stuck()),
    "cancel": ("cancel", lambda queue, jobs: queue.cancel(jobs["pending"])),
    "stop": ("cancel", lambda queue, jobs: queue.cancel(jobs["held"].id)),
    "reschedule": ("reschedule", lambda queue, jobs: queue.reschedule(jobs["delayed"], delay=5)),
    "run now": ("reschedule", lambda queue, jobs: queue.run_now(jobs["delayed"])),
    "requeue": ("requeue", lambda queue, jobs: queue.requeue(jobs["failed"])),
    "resume": ("resume", lambda queue, jobs: queue.resume()),
    "watch": ("watch", lambda queue, jobs: queue.wait(jobs["pending"], 0)),
    "stats": ("stats", lambda queue, jobs: queue.stats()),
}
CASES = [
    (verb, key)
    for verb, (script, _) in VERBS.items()
    for key in (each.name for header in [scripts.header(script)] for each in (*header.keys, *header.rare))
    if key not in ("paused", "gate_keys", "group_keys", "wakes", "worker_keys")
]


def fill(queue: Handle, clock: Clock) -> dict[str, Any]:
    """A job in every place; the delayed one is due, and one lease has ended."""
    queue.enqueue("completed")
    queue.complete(queue.claim(0))
    queue.enqueue("failed")
    failed = queue.claim(0)
    queue.fail(failed, Discard())
    queue.cancel(queue.enqueue("cancelled"))
    queue.redis.lpush(queue.keys.broken, '{"id":"b","reason":"made by hand","at_ms":1}')
    queue.enqueue("lost")
    queue.claim(0)
    queue.enqueue("held")
    clock.pass_time(12)
    held = queue.claim(0)
    queue.enqueue("due", delay=1)
    clock.pass_time(1)
    later = queue.enqueue("later", delay=60)
    return {"held": held, "pending": queue.enqueue("pending"), "delayed": later, "failed": failed.id}


@one_door
@pytest.mark.parametrize(("verb", "key"), CASES)
def test_a_key_of_the_wrong_type(make_queue: MakeQueue, clock: Clock, verb: str, key: str):
    queue = make_queue(clock=clock)
    jobs = fill(queue, clock)
    name = queue.keys.prefix + key
    queue.redis.delete(name)
    if key in ZSETS:
        queue.redis.set(name, "what is this")
    else:
        queue.redis.zadd(name, {"what is this": 1})
    before = queue.dump()

    if (
        (key in HINTS and verb != "stats")
        or (verb, key) in UNTOUCHED
        or (key in OF_GATES and verb not in IN_USE.get(key, ()))
    ):
        VERBS[verb][1](queue, jobs)
        assert queue.dump() != before or verb in ("renew", "promote", "resume")  # which may find nothing to do
    else:
        with pytest.raises(Conflict, match=key):
            VERBS[verb][1](queue, jobs)
        assert queue.dump() == before
    queue.forget()  # the data under that key is gone, so the laws can't hold


@one_door
@pytest.mark.parametrize("key", ["ready", "running", "rates"])
def test_a_key_of_a_gate_of_the_wrong_type_stops_that_gate_alone(make_queue: MakeQueue, clock: Clock, key: str):
    queue = make_queue(clock=clock)
    for name in ("damaged", "whole"):
        queue.gate(name, key_concurrency=1, rate=Rate(100, per=1))
    queue.enqueue("runs", gate="damaged", key="6")
    runs = queue.claim(0)
    for name in ("damaged", "whole", "damaged"):
        queue.enqueue(name, gate=name, key="7")
    damaged = f"{queue.keys.prefix}gate:damaged:{key}"
    queue.redis.delete(damaged)
    queue.redis.set(damaged, "what is this")

    def ran() -> list[Any]:
        found = []
        for _ in range(3):
            queue.reclaim_stuck()
            queue.promote_due()
            while (job := queue.claim(0)) is not None:
                found.append(job.payload)
                queue.complete(job)
            clock.pass_time(0.1)
        return found

    assert ran() == ["whole"]
    assert queue.complete(runs)
    queue.enqueue("new", gate="damaged", key="8")
    assert ran() == []
    queue.redis.delete(damaged)
    assert sorted(ran()) == ["damaged", "damaged", "new"]


@one_door
def test_a_gate_starts_its_jobs_without_the_turns_of_keys_that_rest(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.gate("api", key_concurrency=1, key_rate=Rate(1, per=1))
    for key in ("a", "a", "b"):
        queue.enqueue(key, gate="api", key=key)
    tags = f"{queue.keys.prefix}gate:api:tags"
    queue.redis.delete(tags)
    queue.redis.set(tags, "what is this")

    found = []
    for _ in range(3):
        while (job := queue.claim(0)) is not None:
            found.append(job.payload)
            queue.complete(job)
        clock.pass_time(1)
        queue.promote_due()

    assert found == ["a", "b", "a"]
    queue.redis.delete(tags)
