"""Which job holds a unique key, and what the next call with it does."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Debounce, Unique, UsageError
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.inspect.scenes import every


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def said(queue: Handle, job_id: str) -> str:
    """What `why` adds about the key."""
    return str(queue.inspector.why(job_id).text.partition("; ")[2])


RULES: dict[str, tuple[Any, str]] = {
    "keep": ("k", "it holds the unique key 'k': another call with it returns this job"),
    "raise": (Unique(key="k", on_conflict="raise"), "it holds the unique key 'k': another call with it is refused"),
    "replace": (
        Unique(key="k", until="start", on_conflict="replace"),
        "it holds the unique key 'k': another call with it replaces the job's arguments",
    ),
    "debounce": (
        Debounce(key="k", wait=5),
        "it holds the unique key 'k': each call with it makes the job due 5.0 s after the call",
    ),
    "limited debounce": (
        Debounce(key="k", wait=5, max_wait=60),
        "it holds the unique key 'k': each call with it makes the job due 5.0 s after the call, at the latest in 1 min",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_waiting_job_says_what_the_next_call_with_its_key_does(queue: Handle, rule: str) -> None:
    unique, words = RULES[rule]
    job_id = queue.enqueue(1, unique=unique, delay=None if "debounce" in rule else 60)

    found = queue.inspector.why(job_id)

    assert found.text.partition("; ")[2] == words
    assert found.facts["unique"] == "k"
    assert (found.facts.get("latest_at_ms") == queue.get_job(job_id).enqueued_at_ms + 60_000) == ("limited" in rule)
    assert queue.inspector.holder("k") == found


def test_each_state_says_whether_it_still_holds_the_key(queue: Handle, clock: Clock) -> None:
    held = "it holds the unique key 'k': another call with it returns this job"
    job_id = queue.enqueue(1, unique=Unique(key="k", per=60), max_attempts=2)

    job = queue.claim(0)
    assert said(queue, job_id) == held
    queue.fail(job)
    assert said(queue, job_id) == held
    clock.pass_time(50)
    queue.promote_due()
    queue.complete(queue.claim(0))
    assert said(queue, job_id) == "its unique key 'k' is held for another 10 s"
    assert queue.enqueue(2, unique=Unique(key="k", per=60)) == job_id
    clock.pass_time(10)
    assert said(queue, job_id) == ""
    assert queue.inspector.holder("k") is None


def test_a_key_that_is_held_until_the_start_is_that_of_the_job_that_waits(queue: Handle) -> None:
    unique = Unique(key="k", until="start", on_conflict="replace")
    running = queue.enqueue(1, unique=unique)
    queue.claim(0)
    assert queue.inspector.holder("k") is None

    waiting = queue.enqueue(2, unique=unique)

    assert "unique key" not in queue.inspector.why(running).text
    assert queue.inspector.holder("k").id == waiting


def test_a_key_of_a_deleted_job_is_held_as_long_as_it_was_to_be(queue: Handle, clock: Clock) -> None:
    job_id = queue.enqueue(1, unique=Unique(key="k", per=60))
    queue.inspector.act("delete", [job_id])

    assert queue.enqueue(2, unique=Unique(key="k", per=60)) == job_id
    found = queue.inspector.holder("k")
    assert (found.id, found.is_known) == (job_id, False)
    assert found.text.endswith("; its unique key 'k' is held for another 1 min")


def test_a_job_that_has_expired_holds_no_key(queue: Handle, clock: Clock) -> None:
    job_id = queue.enqueue(1, unique="k", expires=60)
    assert queue.inspector.holder("k").id == job_id
    clock.pass_time(60)
    assert queue.inspector.holder("k") is None


def test_jobs_are_found_by_their_key(queue: Handle) -> None:
    first = queue.enqueue(1, unique="k")
    queue.complete(queue.claim(0))
    second, _ = queue.enqueue(2, unique="k"), queue.enqueue(3, unique="kk")
    queue.enqueue({"unique": "k"})

    assert every(queue, "completed", unique="k") == [first]
    assert every(queue, "pending", unique="k") == [second]
    assert queue.inspector.act_on("cancel", "pending", unique="k").done == 1
    assert queue.get_job(second).status == "cancelled"
    with pytest.raises(UsageError, match="unique must be a text"):
        queue.inspector.find("pending", unique="")


@pytest.mark.breaks("unique", because="the index is damaged by hand")
def test_a_damaged_index_leaves_the_reason(queue: Handle) -> None:
    job_id = queue.enqueue(1, unique="k", delay=60)
    queue.redis.hset(queue.keys.unique_keys, "k", "x y z")
    assert said(queue, job_id) == ""
    assert queue.inspector.holder("k") is None
