"""Two schedulers, requests that are sent twice or too late, errors inside the script, and memory that is full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from schedq import QueueFull
from schedq.schedules import control, fire, records, register
from schedq.schedules.definition import Definition
from schedq.schedules.fire import DefinitionCache, fire_due, plan
from schedq.schedules.records import scan_schedules
from schedq.transitions import Operation
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.schedules.scenes import MINUTE, account, acts, complete_all, ids, jobs, tick
from tests.servers import Server


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    queue = make_queue(clock=clock)
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    clock.pass_time(MINUTE)
    return queue


def planned(queue: Handle, clock: Clock) -> Any:
    """The request that fires what is due, ready to be sent, or sent again."""
    (seen,) = queue.execute([scan_schedules(queue.settings, "due", 0, 10)])[0].found
    (fields,) = queue.execute([records.read(queue.settings, seen.id)])
    definition = Definition.from_fields(seen.id, fields)
    return fire.fire(queue.settings, [(seen, plan(definition, int(seen.slot), clock.now_ms))])


def send(queue: Handle, operation: Any) -> Any:
    return queue.execute([operation])[0]


def test_of_two_schedulers_one_fires(queue: Handle, clock: Clock):
    one, other = planned(queue, clock), planned(queue, clock)

    assert send(queue, one) == (1, ("FIRED",))
    before = queue.dump()
    assert send(queue, other) == (0, ("MOVED",))
    assert queue.dump() == before


def test_a_scheduler_that_continues_after_a_freeze_changes_nothing(queue: Handle, clock: Clock):
    late = planned(queue, clock)
    for _ in range(3):
        tick(queue)
        complete_all(queue)
        clock.pass_time(MINUTE)
    before = queue.dump()

    assert send(queue, late) == (0, ("MOVED",))
    assert queue.dump() == before


@pytest.mark.parametrize("act", ["change", "pause", "delete"])
def test_a_plan_from_a_replaced_definition_is_not_fired(queue: Handle, clock: Clock, act: str):
    late = planned(queue, clock)
    if act == "change":
        queue.schedules.upsert("report", every=MINUTE, payload=2)
    if act == "pause":
        queue.schedules.pause("report")
    if act == "delete":
        queue.schedules.delete("report")
    before = queue.dump()

    assert send(queue, late) == (0, ("MOVED",))
    assert queue.dump() == before


def test_a_clock_that_is_behind_fires_nothing(queue: Handle, clock: Clock):
    ahead = planned(queue, clock)
    clock.pass_time(-1)
    behind = fire.fire(queue.settings, [])
    args = (*ahead.args[:1], behind.args[1], *ahead.args[2:])

    answer = send(queue, Operation("fire", ahead.script, ahead.keys, args, ahead.read))

    assert answer == (0, ("MOVED",))
    assert jobs(queue) == []


def test_a_job_that_an_error_left_uncounted_is_not_enqueued_twice(queue: Handle, clock: Clock):
    """As if the script had ended after enqueueing the job: the schedule has no record of it."""
    entry = queue.redis.zscore(queue.keys.schedules, "report")
    tick(queue)
    queue.redis.zadd(queue.keys.schedules, {"report": entry})

    tick(queue)

    assert queue.places() == {"pending": ids("report", 1)}
    assert account(queue, "report") == [(1, "fired", 1)]
    assert queue.schedules.get("report").runs == 1


def test_a_repeated_action_is_done_and_logged_once(queue: Handle):
    settings = queue.settings
    trigger, pause = control.trigger(settings, "report"), control.pause(settings, "report")
    definition = Definition("other", "1", every_ms=60_000)
    (seen,) = queue.execute([scan_schedules(settings, "these", 0, 0, ["other"])])[0].found
    write = register._written(settings, definition, seen, 0, "request")

    for operation, answer in ((write, "created"), (trigger, None), (pause, True)):
        answers = [send(queue, operation) for _ in range(2)]
        assert answers[0] == answers[1]
        assert answer is None or answers[0] == answer
    queue.schedules.resume("report")

    assert len(jobs(queue)) == 1
    assert acts(queue)[1:] == [
        "schedule create other",
        "schedule trigger report",
        "schedule pause report",
        "schedule resume report",
    ]


def test_two_concurrent_writers_both_end_with_the_stored_definition(queue: Handle):
    """The second one read before the first one wrote."""
    settings = queue.settings
    trips = register.upsert(settings, Definition("report", "2", every_ms=60_000))
    step = next(trips)
    answers = queue.execute(step)
    queue.schedules.upsert("report", every=MINUTE, payload=3)
    try:
        while True:
            answers = queue.execute(trips.send(answers))
    except StopIteration as stop:
        assert stop.value == "changed"

    assert queue.schedules.get("report").payload == 2


# -- memory


@pytest.fixture
def small_server() -> Iterator[Server]:
    with Server() as server:
        yield server


def fill_up(queue: Handle) -> None:
    queue.redis.set("ballast", "x" * 1_000_000)
    queue.redis.config_set("maxmemory", queue.redis.info("memory")["used_memory"] - 500_000)


def drain(queue: Handle) -> None:
    queue.redis.config_set("maxmemory", 0)
    queue.redis.delete("ballast")


def test_with_memory_full_no_slot_is_fired_and_none_is_lost(make_queue: MakeQueue, small_server: Server, clock: Clock):
    queue = make_queue(at=small_server, clock=clock)
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    queue.schedules.upsert("late", every=MINUTE, payload=1, window=10)
    clock.pass_time(MINUTE + 30)
    before = queue.dump()
    fill_up(queue)
    try:
        with pytest.raises(QueueFull):
            tick(queue)
        with pytest.raises(QueueFull):
            queue.schedules.upsert("another", every=MINUTE, payload=1)
        with pytest.raises(QueueFull):
            queue.schedules.trigger("report")
        assert queue.dump() == before
    finally:
        drain(queue)

    assert tick(queue).jobs == 1
    assert account(queue, "late") == [(1, "skipped", 1)]


def test_with_memory_full_schedules_can_be_paused_resumed_and_deleted(
    make_queue: MakeQueue, small_server: Server, clock: Clock
):
    queue = make_queue(at=small_server, clock=clock)
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    fill_up(queue)
    try:
        assert queue.schedules.pause("report")
        assert queue.schedules.resume("report")
        assert queue.schedules.delete("report")
    finally:
        drain(queue)


def test_a_tick_that_ends_half_way_is_continued(queue: Handle, clock: Clock):
    """A scheduler that dies after any of its round trips."""
    queue.schedules.upsert("other", every=MINUTE, payload=1, catch_up="all")
    clock.pass_time(MINUTE)
    count = 0
    while True:
        trips, answers = fire_due(queue.settings, DefinitionCache()), None
        try:
            step = next(trips)
            for _ in range(count):
                answers = queue.execute(step)
                step = trips.send(answers)
        except StopIteration:
            break
        count += 1

    assert jobs(queue) == sorted(ids("report", 2) + ids("other", 2))
    assert count >= 3
