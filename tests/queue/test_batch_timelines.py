"""The history of a batch: its beginning, the children that failed, its end, and the call that follows."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import BatchResults, BatchTimeline, Discard, JobGone, UsageError
from schedq.transitions import groups
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=1)


@pytest.fixture
def load(queue: Handle) -> Any:
    @queue.task
    def load(number: int) -> int:
        return number

    return load


@pytest.fixture
def report(queue: Handle) -> Any:
    @queue.task
    def report(results: BatchResults[int]) -> None: ...

    return report


def events(queue: Handle, found: BatchTimeline) -> list[tuple[int, str, int | None, str]]:
    """What happened, in seconds from the beginning."""
    began = found.events[0].at_ms
    return [((it.at_ms - began) // 1000, it.what, it.number, it.note) for it in found.events]


def end_next(queue: Handle, clock: Clock, error: str = "") -> None:
    """Claim the next job, and end it after 10 s."""
    job = queue.claim(0)
    clock.pass_time(10)
    if error:
        queue.fail(job, Discard(error))
    else:
        queue.complete(job, 1)


def test_a_batch_from_its_beginning_to_the_call_that_follows(queue: Handle, load: Any, report: Any, clock: Clock):
    with queue.batch("b", load, concurrency=1, tolerate=1, then=report) as batch:
        batch.add([1])
        clock.pass_time(5)
        batch.add([2, 3])
    clock.pass_time(5)
    assert events(queue, batch.timeline()) == [(0, "began", None, ""), (5, "last children added", None, "")]

    end_next(queue, clock)
    end_next(queue, clock, "no such file")
    queue.drive(groups.advance_all(queue.settings))
    assert events(queue, batch.timeline())[-3:] == [
        (10, "first child started", None, ""),
        (30, "child failed", 1, "no such file"),
        (30, "last progress", None, ""),
    ]

    end_next(queue, clock)
    end_next(queue, clock)
    found = batch.timeline()
    call = batch.then_job().id
    assert events(queue, found) == [
        (0, "began", None, ""),
        (5, "last children added", None, ""),
        (10, "first child started", None, ""),
        (30, "child failed", 1, "no such file"),
        (40, "completed", None, ""),
        (40, "call enqueued", None, call),
        (50, "call completed", None, call),
    ]
    assert (found.status, found.failures, found.now_ms) == ("completed", 1, clock.now_ms)
    assert found.to_dict()["events"][3]["number"] == 1


def test_failures_are_shown_up_to_a_number(queue: Handle, load: Any, clock: Clock):
    with queue.batch("b", load) as batch:
        batch.add(range(30))
    for number in range(30):
        end_next(queue, clock, f"error {number}")

    shown = [it.number for it in batch.timeline(failures=5).events if it.what == "child failed"]

    assert shown == [0, 1, 2, 3, 4]
    assert len([it for it in batch.timeline().events if it.what == "child failed"]) == 20
    assert not [it for it in batch.timeline(failures=0).events if it.what == "child failed"]
    assert batch.timeline(failures=0).failures == 30
    with pytest.raises(UsageError, match="failures"):
        batch.timeline(failures=201)


def test_failures_before_a_retry_have_no_instant_any_more(queue: Handle, load: Any, clock: Clock):
    with queue.batch("b", load) as batch:
        batch.add([1, 2])
    end_next(queue, clock, "no")
    end_next(queue, clock)
    batch.retry()
    queue.drive(groups.advance_all(queue.settings))

    assert "child failed" not in [it.what for it in batch.timeline().events]
    end_next(queue, clock, "no again")
    assert [it.note for it in batch.timeline().events if it.what == "child failed"] == ["no again"]


def test_a_batch_that_was_cancelled(queue: Handle, load: Any, clock: Clock):
    with queue.batch("b", load) as batch:
        batch.add([1, 2])
    clock.pass_time(60)
    batch.cancel()
    clock.pass_time(1)
    queue.drive(groups.advance_all(queue.settings))

    found = events(queue, batch.timeline())

    assert (60, "called off", None, "") in found
    assert found[-1][:2] == (61, "cancelled")
    assert [it[1] for it in found].count("child failed") == 2


def test_a_chain(queue: Handle, clock: Clock):
    task = queue.task(lambda *_: 1, name="link")
    chain = queue.chain(task, task)
    for _ in range(2):
        end_next(queue, clock)

    assert [it[1] for it in events(queue, chain.timeline())] == [
        "began",
        "last children added",
        "first child started",
        "completed",
    ]


def test_a_batch_that_is_not_stored(queue: Handle):
    with pytest.raises(JobGone, match="has no batch b"):
        queue.batch("b").timeline()


def test_a_damaged_line_of_a_failure_hides_nothing_else(queue: Handle, load: Any, clock: Clock):
    with queue.batch("b", load) as batch:
        batch.add([1])
    queue.redis.rpush(queue.keys.group("b") + ":failed", "damaged")

    assert [it.what for it in batch.timeline().events] == ["began", "last children added"]
    queue.redis.delete(queue.keys.group("b") + ":failed")
