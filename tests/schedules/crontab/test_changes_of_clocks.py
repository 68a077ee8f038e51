"""Each expression at each change of the clocks, compared with a walk through every minute."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import get_args

import pytest

from schedq.schedules.crontab.crontab import Crontab, Fold, Gap, parse
from schedq.schedules.fire import last_slot
from tests.schedules.crontab.table import FIXED, REAL_TIME, SECONDS, SECONDS_IN_REAL_TIME
from tests.schedules.crontab.walk import DAY_S, HOUR_S, Meant, changes, walk

ZONES = [
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",  # summer time is its standard time
    "America/New_York",
    "America/St_Johns",  # half an hour off the hour
    "America/Santiago",  # changes at midnight, so a day begins at 01:00
    "America/Havana",
    "Asia/Beirut",
    "Australia/Sydney",
    "Australia/Lord_Howe",  # half an hour
    "Pacific/Chatham",  # three quarters
    "Antarctica/Troll",  # two hours
]
POLICIES = list(product(get_args(Gap), get_args(Fold)))
AROUND_S = 3 * DAY_S // 2
MARGIN_S = 6 * HOUR_S


@cache
def changes_of(zone: str) -> list[int]:
    return list(changes(zone, datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)))


def in_seconds(crontab: Crontab, start_s: int, end_s: int) -> list[int]:
    """The slots in [start_s, end_s)."""
    found = list(crontab.between(start_s * 1000 - 1, end_s * 1000 - 1))
    assert all(slot % 1000 == 0 for slot in found)
    return [slot // 1000 for slot in found]


def by_steps(crontab: Crontab, start_s: int, end_s: int) -> list[int]:
    """The same, each slot computed from the one before, as schedules do."""
    found = []
    slot = crontab.next_after(start_s * 1000 - 1)
    while slot is not None and slot < end_s * 1000:
        found.append(slot // 1000)
        slot = crontab.next_after(slot)
    return found


def found(crontab: Crontab, start_s: int, end_s: int) -> tuple[list[int], int, int | None]:
    """The slots in [start_s, end_s), their number, and the last in milliseconds, each requested in its own way."""
    after_ms, until_ms = start_s * 1000 - 1, end_s * 1000 - 1
    slots = in_seconds(crontab, start_s, end_s)
    return slots, crontab.count(after_ms, until_ms), last_slot(crontab, after_ms, until_ms)


def wanted(slots: list[int], start_s: int, end_s: int) -> tuple[list[int], int, int | None]:
    """The same of slots that a walk has found."""
    inside = [slot for slot in slots if start_s <= slot < end_s]
    return inside, len(inside), inside[-1] * 1000 if inside else None


def test_nearly_all_of_the_zones_change_twice_a_year():
    """Governments may abolish summer time; this table must not become empty unnoticed."""
    assert sum(len(changes_of(zone)) == 2 for zone in ZONES) >= 8


@pytest.mark.parametrize("zone", ZONES)
def test_the_slots_around_a_change_are_those_of_a_walk_through_every_minute(zone: str):
    for change in changes_of(zone):
        walked = walk(zone, change - AROUND_S - MARGIN_S, change + AROUND_S + MARGIN_S)
        for expression, matches in {**FIXED, **REAL_TIME}.items():
            meant = Meant.by(matches, walked)
            for gap, fold in POLICIES:
                crontab = parse(expression, tz=zone, gap=gap, fold=fold)
                slots = meant.real_time() if expression in REAL_TIME else meant.slots(gap, fold)
                around = change - AROUND_S, change + AROUND_S
                assert found(crontab, *around) == wanted(slots, *around), crontab


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll"])
def test_to_the_second_too(zone: str):
    for change in changes_of(zone):
        walked = walk(zone, change - 5 * HOUR_S, change + 5 * HOUR_S, 1)
        for expression, matches in {**SECONDS, **SECONDS_IN_REAL_TIME}.items():
            meant = Meant.by(matches, walked)
            for gap, fold in POLICIES:
                crontab = parse(expression, tz=zone, gap=gap, fold=fold)
                slots = meant.real_time() if expression in SECONDS_IN_REAL_TIME else meant.slots(gap, fold)
                around = change - 3 * HOUR_S, change + 3 * HOUR_S
                assert found(crontab, *around) == wanted(slots, *around), crontab


@pytest.mark.parametrize("zone", ZONES)
def test_each_slot_follows_from_the_one_before(zone: str):
    for change in changes_of(zone):
        for expression in ("* 2 * * *", "*/15 1-2 * * *", "0,30 1,2 * * *", "*/5 * * * *", "0 0 * * *"):
            for gap, fold in POLICIES:
                crontab = parse(expression, tz=zone, gap=gap, fold=fold)
                start, end = change - AROUND_S, change + AROUND_S
                assert by_steps(crontab, start, end) == in_seconds(crontab, start, end)
