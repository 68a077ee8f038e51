"""Intervals, and what all rhythms have in common."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedq import UsageError
from schedq.crontab import Interval, Rhythm, every, last, parse, slots

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
    interval = every(timedelta(milliseconds=step), anchor_ms=anchor)
    wanted = [instant for instant in range(start + 1, start + length + 1) if (instant - anchor) % step == 0]

    assert list(slots(interval, start, start + length)) == wanted
    assert interval.count(start, start + length) == len(wanted)
    assert last(interval, start, start + length) == (wanted[-1] if wanted else None)
    if wanted:
        assert interval.next_after(start) == wanted[0]


def test_an_interval_is_seconds_or_a_timedelta():
    assert every(90) == every(90.0) == every(timedelta(minutes=1, seconds=30)) == Interval(90_000)
    assert every(5, anchor_ms=1234).next_after(1234) == 6234


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (0, "at least 10 ms"),
        (0.009, "at least 10 ms, got 0.009"),
        (-1, "must not be negative"),
        ("5m", "must be seconds"),
        (float("nan"), "must be a number"),
        (timedelta(days=40_000), "at most 100 years"),
        (True, "must be seconds"),
    ],
)
def test_what_is_no_interval_is_refused(wrong: Any, said: str):
    with pytest.raises(UsageError, match=f"every .*{said}"):
        every(wrong)


@pytest.mark.parametrize("wrong", [1.5, None, "0", True])
def test_an_anchor_is_whole_milliseconds(wrong: Any):
    with pytest.raises(UsageError, match="anchor_ms must be"):
        every(5, anchor_ms=wrong)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5, "every 5 s"),
        (90, "every 1 min 30 s"),
        (86_400, "every 1 d"),
        (3600.25, "every 1 h 250 ms"),
        (0.5, "every 500 ms"),
    ],
)
def test_an_interval_in_words(seconds: float, words: str):
    assert every(seconds).words() == words


RHYTHMS: list[Rhythm] = [
    parse("* * * * * *", tz="Europe/Berlin"),
    parse("* * * * *", tz="America/New_York"),
    parse("*/7 9-17 * * MON-FRI", tz="Europe/Berlin", fold="both"),
    parse("30 2 * * *", tz="Europe/Berlin", gap="skip"),
    parse("0 0 29 2 *", tz="Asia/Tokyo"),
    every(0.01),
    every(7 * 3600 + 1, anchor_ms=77),
]


@pytest.mark.parametrize("rhythm", RHYTHMS, ids=lambda rhythm: rhythm.words())
def test_the_last_slot_and_the_count_are_found_without_going_through_the_others(rhythm: Rhythm):
    """A schedule that slept for ten years wants to know both, and goes on at once; by steps it would take minutes."""
    end = START_MS + 10 * YEAR_MS
    tail_from = end - (3_600_000 if rhythm.count(end - 3_600_000, end) else 400 * 86_400_000)
    tail = list(slots(rhythm, tail_from, end))

    newest = last(rhythm, START_MS, end)

    assert newest is not None
    assert START_MS < newest <= end
    following = rhythm.next_after(newest)
    assert following is not None
    assert following > end
    assert newest == tail[-1] if tail else newest < tail_from
    assert rhythm.count(START_MS, newest) - rhythm.count(START_MS, newest - 1) == 1
    assert rhythm.count(START_MS, tail_from) + len(tail) == rhythm.count(START_MS, end)


def test_a_year_of_minutes_is_all_of_them():
    crontab = parse("* * * * *", tz="Europe/Berlin")

    year = list(slots(crontab, START_MS, START_MS + YEAR_MS))

    assert year == list(range(START_MS + 60_000, START_MS + YEAR_MS + 1, 60_000))
