"""What is due when, counted by the minute."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from schedq import Forecast, UsageError
from schedq.inspect import forecast
from schedq.inspect.forecast import MINUTE_MS, UpcomingSchedule, slots_by_minute
from schedq.schedules.definition import define
from tests.conftest import MakeQueue
from tests.doors import Clock

START = 1_800_000_000.0
"""10 minutes before an hour begins, in UTC."""
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock(START + 600 - 90.5)  # 1 min 30.5 s before 08:10 UTC


def counted(found: Forecast) -> dict[int, tuple[int, int]]:
    """The non-empty buckets, by their start in minutes from the first one."""
    first = found.buckets[0].start_ms
    busy = [bucket for bucket in found.buckets if bucket.jobs]
    return {(bucket.start_ms - first) // MINUTE_MS: (bucket.delayed, bucket.slots) for bucket in busy}


def test_delayed_jobs_are_counted_at_their_due_time(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    for delay, count in ((1, 3), (29, 1), (30.5, 2), (60 * 9, 5), (60 * 10, 7), (60 * 60, 11)):
        queue.enqueue_many(range(count), delay=delay)
    queue.enqueue_many(range(4), delay=0.2)
    clock.pass_time(0.5)

    found = queue.inspector.forecast(600)

    assert (found.now_ms, found.until_ms) == (clock.now_ms, clock.now_ms + 600_000)
    assert (found.overdue, found.delayed, found.later) == (4, 18, 11)
    # The first minute began 30 s ago; what is due as it ends is in the next one.
    assert counted(found) == {0: (4, 0), 1: (2, 0), 9: (5, 0), 10: (7, 0)}
    assert [(minute.jobs, minute.end_ms - minute.start_ms) for minute in found.busiest] == [
        (7, MINUTE_MS),
        (5, MINUTE_MS),
        (4, MINUTE_MS),
        (2, MINUTE_MS),
    ]


def test_slots_are_counted_when_schedules_have_them(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    upsert = queue.schedules.upsert
    upsert("hourly", cron="30 * * * *", payload=1)
    upsert("nightly", cron="0 3 * * *", payload=1, tz="Europe/Berlin")
    upsert("often", every=20, payload=1)
    upsert("paused", every=20, payload=1)
    queue.schedules.pause("paused")
    upsert("next-year", cron="0 0 1 1 *", payload=1)
    upsert("thrice", every=60, payload=1, max_runs=3)
    upsert("until-nine", cron="*/10 * * * *", payload=1, end=(clock.now_ms // HOUR_MS + 1) * 3600)

    found = queue.inspector.forecast(timedelta(hours=24))

    assert (found.schedules, found.overdue_slots, found.damaged, found.spread, found.unread) == (5, 0, (), 0, 0)
    assert found.slots == 24 + 1 + 3 * 60 * 24 + 3 + slots_of_ten(clock)
    assert sum(bucket.slots for bucket in found.buckets) == found.slots
    assert {bucket.end_ms - bucket.start_ms for bucket in found.buckets} == {HOUR_MS}


def slots_of_ten(clock: Clock) -> int:
    """Multiples of ten minutes up to the next full hour."""
    last = (clock.now_ms // HOUR_MS + 1) * HOUR_MS
    return len([at for at in range(0, last + 1, 600_000) if at > clock.now_ms])


def test_due_slots_and_damaged_schedules_are_distinguished(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.schedules.upsert("poll", every=60, payload=1)
    queue.schedules.upsert("torn", every=60, payload=1)
    queue.redis.hset(queue.keys.schedule("torn"), "every_ms", "soon")
    clock.pass_time(300)

    found = queue.inspector.forecast(60)

    assert (found.overdue_slots, found.slots, found.damaged) == (1, 1, ("torn",))


def test_jitter_moves_the_jobs_of_slots(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.schedules.upsert("spread", every=3600, payload=1, jitter=1800)
    definition = define("spread", "1", every=3600, options={"jitter": 1800})
    slot = definition.next_after(clock.now_ms)
    assert slot is not None

    found = queue.inspector.forecast(3 * 3600)

    due = definition.due_ms(slot)
    assert any(minute.start_ms <= due < minute.end_ms and minute.slots == 1 for minute in found.busiest)


@pytest.mark.parametrize(("within", "minutes"), [(60, 1), (1800, 1), (5400, 5), (86_400, 60), (7 * 86_400, 360)])
def test_buckets_have_a_round_length(make_queue: MakeQueue, clock: Clock, within: int, minutes: int):
    found = make_queue(clock=clock).inspector.forecast(within)

    lengths = {bucket.end_ms - bucket.start_ms for bucket in found.buckets}
    assert lengths == {minutes * MINUTE_MS}
    assert all(bucket.start_ms % (minutes * MINUTE_MS) == 0 for bucket in found.buckets)
    assert found.buckets[0].start_ms <= found.now_ms < found.buckets[0].end_ms
    assert found.buckets[-1].start_ms <= found.until_ms < found.buckets[-1].end_ms


def test_a_month_is_counted_by_the_minute(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.enqueue_many(range(7), delay=30 * 86_400 + 90)
    queue.enqueue(1, delay=32 * 86_400)

    found = queue.inspector.forecast(timedelta(days=31))

    assert (found.delayed, found.later, len(found.busiest)) == (7, 1, 1)
    assert found.busiest[0].start_ms == (clock.now_ms + 30 * 86_400_000 + 90_000) // MINUTE_MS * MINUTE_MS


@pytest.mark.parametrize("within", [0, 59.9, 32 * 86_400, -1, "24h"])
def test_a_time_that_makes_no_sense_is_refused(make_queue: MakeQueue, within: Any):
    with pytest.raises(UsageError, match="within"):
        make_queue().inspector.forecast(within)


# -- many schedules


def some(count: int) -> list[UpcomingSchedule]:
    """Schedules of every kind, from a fixed seed."""
    draw = random.Random(7)
    found = []
    for number in range(count):
        cron = draw.choice(
            [
                "* * * * *",
                f"{draw.randrange(60)} * * * *",
                f"{draw.randrange(60)} {draw.randrange(24)} * * *",
                "*/5 9-17 * * MON-FRI",
                "H H * * *",
                "H/15 * * * *",
                "*/30 * * * * *",
            ]
        )
        made: dict[str, Any] = {"cron": cron} if draw.random() < 0.8 else {"every": draw.randrange(30, 9000)}
        definition = define(f"s-{number}", "1", options={"tz": draw.choice(["UTC", "Europe/Berlin"])}, **made)
        slot = definition.next_after(NOW)
        assert slot is not None
        found.append(UpcomingSchedule(definition, slot, draw.choice([None, None, None, 5])))
    return found


NOW = int(START * 1000) + 12_345
BEGIN = NOW // MINUTE_MS * MINUTE_MS
UNTIL = NOW + 24 * HOUR_MS
MINUTES = (UNTIL - BEGIN) // MINUTE_MS + 1


def one_by_one(standings: list[UpcomingSchedule]) -> list[int]:
    """The same, computed in the simplest way."""
    found = [0] * MINUTES
    for standing in standings:
        slot: int | None = standing.slot_ms
        left = standing.left
        while slot is not None and slot <= UNTIL and left != 0:
            found[(slot - BEGIN) // MINUTE_MS] += 1
            left = None if left is None else left - 1
            slot = standing.definition.next_after(slot)
    return found


def test_slots_are_those_that_schedules_have_one_by_one():
    standings = some(20)

    found, left_out, more = slots_by_minute(standings, BEGIN, MINUTES, NOW, UNTIL)

    assert (found, left_out, more) == (one_by_one(standings), 0, 0)


def test_frequent_schedules_are_left_out_and_that_is_reported(monkeypatch: pytest.MonkeyPatch):
    standings = some(20)
    monkeypatch.setattr(forecast, "_MOST_COUNTED", 1000)

    found, left_out, more = slots_by_minute(standings, BEGIN, MINUTES, NOW, UNTIL)

    rare = sorted(standings, key=lambda standing: sum(one_by_one([standing])))[: len(standings) - left_out]
    assert 0 < left_out < 20
    assert sum(found) + more == sum(one_by_one(standings))
    assert found == one_by_one(rare)


def test_thousands_of_schedules_are_counted_without_going_through_their_slots(monkeypatch: pytest.MonkeyPatch):
    """Equal ones are iterated once: hundreds of rows stand for hundreds of thousands of slots."""
    standings = some(2000)
    walked: list[int] = []
    count = forecast._count

    def watched(row: Any, *rest: Any) -> None:
        walked.append(row.count)
        count(row, *rest)

    monkeypatch.setattr(forecast, "_count", watched)

    found, *_ = slots_by_minute(standings, BEGIN, MINUTES, NOW, UNTIL)

    assert sum(found) > 400_000
    assert sum(walked) < sum(found) / 4
