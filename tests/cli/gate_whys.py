"""Situations in which a gate keeps a job from running, each set up for real, and the expected explanation."""

from __future__ import annotations

from typing import Any, Final

from schedq import Fixed, NewJob, Queue, Rate
from tests.cli.scenes import beat, claimed
from tests.cli.whys import SOME, THREE_DAYS_S, Situation, Stage

DAY_S: Final = 86_400


def _waiting(*claims: str, then: Stage | None = None, **limits: Any) -> Stage:
    """Jobs of these keys run, and one of key 42 waits."""

    def stage(queue: Queue, client: Any) -> str:
        queue.gate("api", **limits)
        queue.enqueue_many([NewJob(1, gate="api", key=key) for key in claims])
        for _ in claims:
            claimed(queue)
        job_id = queue.enqueue(2, gate="api", key="42")
        if then is not None:
            then(queue, client)
        return job_id

    return stage


def _acted(verb: str, *arguments: Any) -> Stage:
    def act(queue: Queue, _: Any) -> str:
        getattr(queue.gates, verb)("api", *arguments)
        return ""

    return act


def _damaged(queue: Queue, client: Any) -> str:
    client.delete(f"{queue.settings.keys.gate_keys}api:ready")
    client.set(f"{queue.settings.keys.gate_keys}api:ready", "x")
    return ""


def _in_order(queue: Queue, _: Any) -> str:
    queue.gate("api", serial=True)
    queue.enqueue(1, gate="api", key="42", job_id="first", backoff=Fixed(THREE_DAYS_S, jitter=0))
    queue.fail(claimed(queue), "no reply")
    return queue.enqueue(2, gate="api", key="42")


def _turn(queue: Queue, _: Any) -> str:
    beat(queue, "w-1", running=0, has_handler=1)
    queue.gate("api")
    queue.enqueue_many([NewJob(1, gate="api", key=key) for key in ("a", "b", "42", "42")])
    return queue.enqueue(2, gate="api", key="42")


def _queue_is_full(queue: Queue, _: Any) -> str:
    queue.gates.set(None, concurrency=1)
    queue.enqueue_many([1, 2])
    claimed(queue)
    return queue.list_pending()[0].id


SITUATIONS: Final = (
    Situation(
        "its gate is damaged",
        _waiting(then=_damaged),
        "gate_damaged",
        "^gate api starts nothing: a key of it has another type, which schedq doctor names$",
        {"gate": "api"},
    ),
    Situation(
        "its gate is paused", _waiting(then=_acted("pause")), "gate_paused", rf"^gate api is paused, for {SOME} now$"
    ),
    Situation(
        "its gate is held",
        _waiting(then=_acted("hold", 1.5 * DAY_S)),
        "gate_paused",
        r"^gate api is held for another (36 h|35 h 59 min)[ \w]*$",
    ),
    Situation(
        "its key is paused",
        _waiting(then=_acted("pause", "42")),
        "key_paused",
        rf"^key 42 of gate api is paused, for {SOME} now$",
        {"gate": "api", "key": "42"},
    ),
    Situation(
        "its key runs in order",
        _in_order,
        "key_order",
        r"^job first of key 42 of gate api comes first, and its next attempt is due in (3 d|71 h|2 d 23 h)[ \w]*$",
        {"first": "first"},
    ),
    Situation(
        "enough of its key run",
        _waiting("42", "42", key_concurrency=2),
        "key_full",
        rf"^key 42 of gate api: 2 of 2 running, the longest for {SOME}$",
        {"running": 2, "concurrency": 2},
    ),
    Situation(
        "enough of its gate run",
        _waiting("a", "b", concurrency=2),
        "gate_full",
        rf"^gate api: 2 of 2 running, the longest for {SOME}$",
        {"running": 2, "concurrency": 2, "keys_ready": 1},
    ),
    Situation(
        "the rate of its key allows no more",
        _waiting("42", key_rate=Rate(1, per=DAY_S)),
        "key_rate",
        r"^key 42 of gate api rests (24 h|23 h 59 min)[ \w]* more: 1 a day$",
    ),
    Situation(
        "the rate of its gate allows no more",
        _waiting("a", rate=Rate(1, per=DAY_S)),
        "gate_rate",
        r"^gate api rests (24 h|23 h 59 min)[ \w]* more: 1 a day$",
    ),
    Situation(
        "enough of the queue run",
        _queue_is_full,
        "queue_limit",
        "^the queue's own limit is reached: 1 of 1 running$",
        {"running": 1, "concurrency": 1},
    ),
    Situation(
        "other jobs of its gate come first",
        _turn,
        "turn",
        "^its turn in gate api comes later: 2 jobs of its key before it, 2 keys before that$",
        {"ahead": 2, "keys_ahead": 2, "keys_ready": 3},
    ),
)
