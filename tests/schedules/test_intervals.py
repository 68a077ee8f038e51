"""Intervals, and what all recurrences share."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedq.schedules.crontab.crontab import parse
from schedq.schedules.definition import Interval, Recurrence
from schedq.schedules.fire import last_slot

START_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
YEAR_MS = 365 * 86_400_000


@settings(derandomize=True, deadline=None, database=None)
@given(
    step=st.integers(10, 5000),
    anchor=st.integers(-10_000, 10_000),
    start=st.integers(-10_000, 10_000),
    length=st.integers(0, 20_000),
)
def test_the_slots_of_an_interval_are_whole_steps_from_its_anchor(step: int, anchor: int, start: int, length: int):
    interval = Interval(step, anchor)
    wanted = [instant for instant in range(start + 1, start + length + 1) if (instant - anchor) % step == 0]

    assert list(interval.between(start, start + length)) == wanted
    assert interval.count(start, start + length) == len(wanted)
    assert last_slot(interval, start, start + length) == (wanted[-1] if wanted else None)
    if wanted:
        assert interval.next_after(start) == wanted[0]


@pytest.mark.parametrize(
    ("every_ms", "words"),
    [
        (5000, "every 5 s"),
        (90_000, "every 1 min 30 s"),
        (86_400_000, "every 1 d"),
        (3_600_250, "every 1 h 250 ms"),
        (500, "every 500 ms"),
    ],
)
def test_an_interval_in_words(every_ms: int, words: str):
    assert Interval(every_ms).describe() == words


RECURRENCES: list[Recurrence] = [
    parse("* * * * * *", tz="Europe/Berlin"),
    parse("* * * * *", tz="America/New_York"),
    parse("*/7 9-17 * * MON-FRI", tz="Europe/Berlin", fold="both"),
    parse("30 2 * * *", tz="Europe/Berlin", gap="skip"),
    parse("0 0 29 2 *", tz="Asia/Tokyo"),
    Interval(10),
    Interval(7 * 3_600_000 + 1000, 77),
]


@pytest.mark.parametrize("recurrence", RECURRENCES, ids=lambda recurrence: recurrence.describe())
def test_the_last_slot_and_the_count_are_found_without_going_through_the_others(recurrence: Recurrence):
    """After ten years without a worker a schedule needs both at once; step by step they would take minutes."""
    end = START_MS + 10 * YEAR_MS
    tail_from = end - (3_600_000 if recurrence.count(end - 3_600_000, end) else 400 * 86_400_000)
    tail = list(recurrence.between(tail_from, end))

    newest = last_slot(recurrence, START_MS, end)

    assert newest is not None
    assert START_MS < newest <= end
    following = recurrence.next_after(newest)
    assert following is not None
    assert following > end
    assert newest == tail[-1] if tail else newest < tail_from
    assert recurrence.count(START_MS, newest) - recurrence.count(START_MS, newest - 1) == 1
    assert recurrence.count(START_MS, tail_from) + len(tail) == recurrence.count(START_MS, end)


def test_a_year_of_minutes_is_all_of_them():
    crontab = parse("* * * * *", tz="Europe/Berlin")

    year = list(crontab.between(START_MS, START_MS + YEAR_MS))

    assert year == list(range(START_MS + 60_000, START_MS + YEAR_MS + 1, 60_000))
