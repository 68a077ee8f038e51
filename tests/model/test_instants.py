"""Durations and instants as people write them: rounded up, never early, and refused if invalid."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedq import UsageError
from schedq.model.times import LAST_INSTANT_MS, LONGEST_MS, duration_ms, instant_ms

BERLIN = ZoneInfo("Europe/Berlin")


@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_a_timedelta_is_rounded_up_to_the_millisecond(value: timedelta):
    exact = Fraction(value // timedelta(microseconds=1), 1000)

    assert duration_ms(value, "delay") == math.ceil(exact)


@given(st.integers(0, LONGEST_MS // 1000))
def test_whole_seconds_are_exact(value: int):
    assert duration_ms(value, "delay") == duration_ms(float(value), "delay") == value * 1000


@given(st.floats(0, 1e9))
def test_a_float_is_never_cut_short_by_more_than_a_microsecond(value: float):
    found = duration_ms(value, "delay")

    assert found >= value * 1000 - 0.001
    assert found < value * 1000 + 1.001


@pytest.mark.parametrize(
    ("value", "ms"), [(0.1, 100), (0.3, 300), (1.1, 1100), (0.001, 1), (0.0011, 2), (29.99, 29_990)]
)
def test_a_float_is_read_as_the_decimal_that_people_write(value: float, ms: int):
    assert duration_ms(value, "delay") == ms


@given(st.datetimes(datetime(1970, 1, 1), timezones=st.timezones()))
def test_an_aware_datetime_is_an_instant_whatever_its_zone(value: datetime):
    exact = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    assert instant_ms(value, "run_at") == min(max(0, -(-exact // 1000)), LAST_INSTANT_MS)


def test_an_hour_that_happens_twice_is_distinguished_by_its_fold():
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=0)
    second = first.replace(fold=1)

    assert instant_ms(second, "run_at") - instant_ms(first, "run_at") == 3_600_000


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (datetime.max.replace(tzinfo=UTC), LAST_INSTANT_MS),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), LAST_INSTANT_MS),
        (datetime.min.replace(tzinfo=UTC), 0),
        (-1e308, 0),
        (-(10**400), 0),
        (LAST_INSTANT_MS / 1000, LAST_INSTANT_MS),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_instants_at_the_ends_of_time_end_there(value: Any, ms: int):
    assert instant_ms(value, "run_at") == ms


@given(
    st.none()
    | st.booleans()
    | st.text()
    | st.binary()
    | st.complex_numbers()
    | st.decimals()
    | st.dates()
    | st.times()
    | st.lists(st.integers())
)
def test_an_invalid_time_is_refused_by_name(value: object):
    with pytest.raises(UsageError, match="delay"):
        duration_ms(value, "delay")
    if not isinstance(value, datetime):
        with pytest.raises(UsageError, match="run_at"):
            instant_ms(value, "run_at")


@given(st.floats(allow_nan=True, allow_infinity=True) | st.integers() | st.timedeltas())
def test_any_number_is_taken_within_bounds_or_refused(value: Any):
    for read, most in ((duration_ms, LONGEST_MS), (instant_ms, LAST_INSTANT_MS)):
        try:
            assert 0 <= read(value, "time") <= most
        except UsageError as error:
            assert "time" in str(error)  # either result is right


@given(st.datetimes())
def test_a_naive_datetime_is_refused(value: datetime):
    with pytest.raises(UsageError, match="timezone-aware"):
        instant_ms(value, "run_at")
    with pytest.raises(UsageError):
        duration_ms(value, "delay")


@pytest.mark.parametrize("value", [-0.001, -1, timedelta(microseconds=-1), float("-inf"), 10**400, timedelta.max])
def test_an_invalid_duration_is_refused(value: Any):
    with pytest.raises(UsageError):
        duration_ms(value, "delay")


def test_milliseconds_given_for_seconds_are_guessed_at():
    with pytest.raises(UsageError, match="milliseconds"):
        instant_ms(1_893_456_000_000, "run_at")
