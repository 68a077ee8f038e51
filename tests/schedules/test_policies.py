"""Missed slots, windows, jitter, start and end: the outcome of each slot is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from schedq.schedules.definition import Definition
from schedq.schedules.fire import MOST_CAUGHT_UP, DefinitionCache, plan
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.schedules.scenes import BEGIN_MS, HOUR, MINUTE, account, ids, jobs, slots_ms, tick


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


MISSED: list[tuple[dict[str, Any], float, list[float], list[tuple[float, str, int]]]] = [
    # options, minutes without a scheduler, minutes fired, outcomes
    ({}, 1, [1], [(1, "fired", 1)]),
    ({}, 5.5, [5], [(1, "coalesced", 4), (5, "fired", 1)]),
    ({"window": 20}, 5.5, [], [(1, "skipped", 5)]),
    ({"window": 40}, 5.5, [5], [(1, "coalesced", 4), (5, "fired", 1)]),
    ({"window": 20}, 1.5, [], [(1, "skipped", 1)]),
    ({"window": 30}, 1.5, [1], [(1, "fired", 1)]),
    ({"catch_up": "all"}, 3.5, [1, 2, 3], [(1, "fired", 1), (2, "fired", 1), (3, "fired", 1)]),
    ({"catch_up": "all", "window": 100}, 4.5, [3, 4], [(1, "skipped", 2), (3, "fired", 1), (4, "fired", 1)]),
    ({"catch_up": "all", "window": 20}, 4.5, [], [(1, "skipped", 4)]),
    ({"catch_up": "none"}, 5.5, [5], [(1, "skipped", 4), (5, "fired", 1)]),
    ({"catch_up": "none", "window": 20}, 5.5, [], [(1, "skipped", 5)]),
    ({"end": BEGIN_MS / 1000 + 180}, 9, [3], [(1, "coalesced", 2), (3, "fired", 1)]),
    ({"end": BEGIN_MS / 1000 + 180, "catch_up": "all"}, 9, [1, 2, 3], [(n, "fired", 1) for n in (1, 2, 3)]),
    ({"start": BEGIN_MS / 1000 + 120}, 2, [2], [(2, "fired", 1)]),
    ({"start": BEGIN_MS / 1000 + 30, "catch_up": "all"}, 2, [0.5, 1.5], [(0.5, "fired", 1), (1.5, "fired", 1)]),
    ({"max_runs": 2, "catch_up": "all"}, 3, [1, 2], [(1, "fired", 1), (2, "fired", 1), (3, "skipped", 1)]),
]


@pytest.mark.parametrize(("options", "minutes", "fired", "told"), MISSED)
def test_missed_slots_are_handled_as_the_policy_says(
    queue: Handle, clock: Clock, options: dict[str, Any], minutes: float, fired: list[float], told: list[Any]
):
    queue.schedules.upsert("report", every=MINUTE, payload=1, **options)
    clock.pass_time(minutes * MINUTE)

    tick(queue)

    assert jobs(queue) == sorted(ids("report", *fired))
    assert account(queue, "report") == told


def test_a_slot_is_recorded_with_its_lateness(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    clock.pass_time(2 * MINUTE + 7)
    tick(queue)

    fired, coalesced = queue.schedules.get("report").slots
    assert (fired.late_ms, fired.job_id, fired.at_ms) == (7000, ids("report", 2)[0], clock.now_ms)
    assert coalesced.into_ms == fired.slot_ms


def test_the_next_slot_is_reckoned_from_the_last_one_not_from_now(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    for late in (0.4, 17.3, 59.9):
        clock.now = BEGIN_MS / 1000 + MINUTE * (1 + (0.4, 17.3, 59.9).index(late)) + late
        tick(queue)

    assert jobs(queue) == ids("report", 1, 2, 3)


def test_catching_up_is_capped_in_each_tick_and_complete_in_the_end(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1, catch_up="all")
    queue.schedules.upsert("other", every=MINUTE, payload=1)
    clock.pass_time(2.5 * MOST_CAUGHT_UP * MINUTE)

    found = [tick(queue) for _ in range(4)]

    assert [fired.jobs for fired in found] == [MOST_CAUGHT_UP + 1, MOST_CAUGHT_UP, MOST_CAUGHT_UP // 2, 0]
    assert found[0].deferred == ("report",)
    assert [name for name in jobs(queue) if name.startswith("report")] == sorted(ids("report", *range(1, 251)))


def test_the_slots_of_a_long_outage_are_counted_without_iterating_over_them(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", cron="* * * * * *", payload=1)
    clock.pass_time(365 * 24 * HOUR)

    assert tick(queue).jobs == 1
    assert account(queue, "report")[0][1:] == ("coalesced", 365 * 24 * HOUR - 1)


def test_jitter_puts_the_job_off_and_not_the_slot(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1, jitter=30)
    for _ in range(3):
        clock.pass_time(MINUTE)
        tick(queue)

    assert jobs(queue) == ids("report", 1, 2, 3)
    late = [queue.get_job(name).run_at_ms - slot for name, slot in zip(jobs(queue), slots_ms(1, 2, 3), strict=True)]
    assert all(0 <= ms <= 30_000 for ms in late)
    assert len(set(late)) > 1


def test_jitter_is_the_same_for_the_same_slot_in_every_process():
    one, other = (Definition("report", "1", every_ms=60_000, jitter_ms=30_000) for _ in range(2))
    drawn = [one.due_ms(slot) for slot in range(0, 60_000_000, 60_000)]

    assert drawn == [other.due_ms(slot) for slot in range(0, 60_000_000, 60_000)]
    late = [due % 60_000 for due in drawn]
    assert min(late) < 1000
    assert 29_000 < max(late) <= 30_000


def test_a_schedule_ends_after_its_runs_and_reports_it(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1, max_runs=2)
    for _ in range(4):
        clock.pass_time(MINUTE)
        tick(queue)

    assert jobs(queue) == ids("report", 1, 2)
    record = queue.schedules.get("report")
    assert (record.state, record.runs, record.next_slot_ms) == ("ended", 2, None)
    assert queue.schedules.next_slots("report") == []


def test_a_year_of_slots_costs_a_few_requests(queue: Handle, clock: Clock):
    """Four ticks of a hundred slots each."""
    queue.schedules.upsert("nightly", cron="0 3 * * *", tz="Europe/Berlin", payload=1, catch_up="all")
    clock.pass_time(365 * 24 * HOUR)

    memory = DefinitionCache()
    assert sum(tick(queue, memory).jobs for _ in range(4)) == 365


def test_a_night_without_its_hour_has_one_slot_and_one_with_it_twice_too(queue: Handle, clock: Clock):
    queue.schedules.upsert("nightly", cron="30 2 * * *", tz="Europe/Berlin", payload=1, catch_up="all")
    queue.schedules.upsert("both", cron="30 2 * * *", tz="Europe/Berlin", payload=1, catch_up="all", fold="both")
    clock.pass_time(365 * 24 * HOUR)
    memory = DefinitionCache()
    for _ in range(4):
        tick(queue, memory)

    names = [name.partition("-")[0] for name in jobs(queue)]
    assert names.count("nightly") == 365
    assert names.count("both") == 366


@pytest.mark.parametrize("catch_up", ["latest", "all", "none"])
@pytest.mark.parametrize("window_ms", [-1, 0, 90_000, 10**9])
@pytest.mark.parametrize("end_ms", [0, 7 * 60_000])
def test_a_plan_accounts_for_every_slot_in_order_and_for_none_twice(catch_up: Any, window_ms: int, end_ms: int):
    definition = Definition("a", "1", every_ms=60_000, catch_up=catch_up, window_ms=window_ms, end_ms=end_ms)
    for now_ms in range(60_000, 1_000_000, 7_000):
        made = plan(definition, 60_000, now_ms)

        slot: int | None = 60_000
        for entry in made.entries:
            assert entry.slot_ms == slot
            for number in range(entry.count):
                assert slot is not None
                assert slot <= now_ms
                assert slot == entry.slot_ms + 60_000 * number
                last, slot = slot, definition.next_after(slot)
            assert entry.to_ms == last
            if entry.outcome == "fire":
                assert definition.latest_ms < 0 or now_ms - entry.slot_ms <= definition.latest_ms
        assert made.next_ms == slot
        assert slot is None or slot > now_ms
