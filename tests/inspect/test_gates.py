"""What operators see of gates, and what they can do to them."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import NewJob, Rate, UsageError
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def filled(queue: Handle, **jobs_by_key: int) -> None:
    for key, count in jobs_by_key.items():
        for n in range(count):
            queue.enqueue(n, gate="api", key=key)


def claimed(queue: Handle) -> list[Any]:
    found = []
    while (job := queue.claim(0)) is not None:
        found.append(job)
    return found


def brief(queue: Handle, **options: Any) -> dict[str, tuple[Any, ...]]:
    keys = queue.gates.keys("api", **options)
    return {key.key: (key.waiting, key.running, key.state, key.because) for key in keys}


def test_a_gate_shows_its_limits_and_what_waits_and_runs(queue: Handle, clock: Clock) -> None:
    queue.gate("api", concurrency=2, key_rate=Rate(10, per=60))
    filled(queue, a=3, b=1, c=1)
    queue.gates.set("api", concurrency=3)
    first = queue.claim(0)
    clock.pass_time(2)
    queue.claim(0)

    (gate,) = queue.gates.list()

    assert (gate.name, gate.state, gate.limits.concurrency, gate.set_by_operator) == (
        "api",
        "open",
        3,
        ("concurrency",),
    )
    assert (gate.waiting, gate.keys, gate.ready, gate.resting, gate.running) == (3, 2, 1, 1, 2)
    assert gate.now_ms - (gate.longest_since_ms or 0) == 2000
    assert first is not None
    assert queue.gates.get("api") == gate
    assert queue.gates.get("other") is None
    assert brief(queue) == {"a": (2, 1, "resting", "rate"), "b": (0, 1, "resting", "rate"), "c": (1, 0, "ready", "")}
    assert brief(queue, state="ready") == {"c": (1, 0, "ready", "")}
    assert [key.until_ms for key in queue.gates.keys("api", limit=1)] == [gate.now_ms - 2000 + 6000]


def test_what_an_operator_sets_holds_until_it_is_reset(queue: Handle) -> None:
    queue.gate("api", concurrency=1, key_concurrency=1)
    filled(queue, a=2, b=2)
    assert len(claimed(queue)) == 1

    queue.gates.set("api", concurrency=None, key_rate=Rate(5, per=1), weight=3)
    queue.promote_due()
    gate = queue.gates.get("api")
    assert gate is not None
    assert gate.set_by_operator == ("concurrency", "key_rate", "weight")
    assert (gate.limits.concurrency, gate.limits.key_concurrency, gate.limits.weight) == (None, 1, 3)
    assert gate.damaged == ()
    assert len(claimed(queue)) == 1
    assert {key.state for key in queue.gates.keys("api")} == {"full"}

    assert queue.gates.reset("api")
    assert not queue.gates.reset("api")
    gate = queue.gates.get("api")
    assert gate is not None
    assert (gate.state, gate.limits.concurrency, gate.set_by_operator) == ("full", 1, ())


def test_limits_of_the_queue_itself_are_seen_and_set(queue: Handle) -> None:
    queue.gates.set(None, concurrency=2, rate=Rate(40, per=1))
    queue.enqueue_many([1, 2, 3])
    assert len(claimed(queue)) == 1

    (whole,) = queue.gates.list()
    assert (whole.name, whole.state, whole.because, whole.running) == ("", "resting", "rate", 1)
    queue.gates.set("", rate=None)
    claimed(queue)
    assert [(gate.state, gate.running) for gate in queue.gates.list()] == [("full", 2)]
    queue.gates.remove("")
    assert queue.gates.list() == []


def test_a_gate_or_a_key_is_paused_held_and_resumed(queue: Handle, clock: Clock) -> None:
    queue.gate("api")
    filled(queue, a=1, b=1, c=1)

    assert queue.gates.pause("api", "a")
    assert not queue.gates.pause("api", "a")
    queue.gates.hold("api", 30, key="b")
    queue.gates.hold("api", 20, key="b")
    queue.promote_due()
    assert brief(queue) == {"a": (1, 0, "paused", ""), "b": (1, 0, "resting", "hold"), "c": (1, 0, "ready", "")}
    assert [job.key for job in claimed(queue)] == ["c"]
    assert brief(queue, state="paused") == {"a": (1, 0, "paused", "")}

    queue.gates.pause("api")
    assert queue.gates.resume("api", "a")
    gate = queue.gates.get("api")
    assert gate is not None
    assert gate.state == "paused"
    assert claimed(queue) == []
    clock.pass_time(30)
    assert queue.gates.resume("api")
    assert [job.key for job in claimed(queue)] == ["a", "b"]
    assert [entry.note for entry in queue.inspector.log() if entry.move == "gate"] == [
        "pause api a",
        "hold api b",
        "pause api",
        "resume api a",
        "resume api",
    ]


def test_more_keys_than_are_looked_at_give_the_least_number(queue: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedq.inspect.gates._MOST_LOOKED", 700)
    queue.enqueue_many([NewJob(n, gate="api", key=str(n)) for n in range(2000)])

    found = queue.gates.get("api")

    assert found is not None
    assert not found.is_exact
    assert 700 <= found.waiting == found.keys < 2000
    assert len(queue.gates.keys("api", limit=1000)) >= 700


@pytest.mark.parametrize(
    ("verb", "arguments", "options", "words"),
    [
        ("get", ["a b"], {}, "gate name 'a b' must be 1 to 48 characters"),
        ("keys", ["api"], {"state": "open"}, "state must be one of ready, resting, full, paused, got 'open'"),
        ("set", ["api"], {}, "give a limit to set: concurrency=, rate=, key_concurrency="),
        ("set", ["api"], {"concurrency": -1}, "concurrency must be"),
        ("set", [None], {"weight": 2}, "the queue itself has no weight: give the name of a gate"),
        ("set", ["api"], {"rate": 5}, "rate must be a Rate or a list of them"),
        ("pause", [""], {}, "queue.pause.. pauses the whole queue"),
        ("hold", ["api", 1], {"key": "a b"}, "a key must be 1 to 128 printable characters"),
    ],
)
def test_what_is_wrong_is_named(
    queue: Handle, verb: str, arguments: list[Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        getattr(queue.gates, verb)(*arguments, **options)
    assert not queue.state().keys
