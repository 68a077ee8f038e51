"""Dates and datetimes as arguments while freezegun holds the time, which replaces their classes."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pytest
from freezegun import freeze_time

from schedq.queue.conversion import conversion_of

UTC = dt.UTC


@dataclass
class Loan:
    due: dt.date
    at: dt.datetime | None = None


@pytest.mark.parametrize("is_read_before", [True, False])
def test_dates_made_while_freezegun_holds_the_time_are_dates(is_read_before: bool):
    def take(loan: Loan, day: dt.date, at: dt.datetime): ...

    conversion = conversion_of("take", take) if is_read_before else None
    with freeze_time("2026-03-01 12:00"):
        now = dt.datetime.now(UTC)
        conversion = conversion or conversion_of("take", take)
        assert conversion is not None

        stored = conversion.encode_arguments([Loan(dt.date(2026, 3, 2), now), dt.date(2026, 3, 2), now], {})
        (loan, day, at), _ = conversion.decode_arguments(*stored)

    form = {"due": "2026-03-02", "at": "2026-03-01T12:00:00Z"}
    assert stored == ([form, "2026-03-02", "2026-03-01T12:00:00Z"], {})
    assert (loan.due, loan.at, day, at) == (dt.date(2026, 3, 2), now, dt.date(2026, 3, 2), now)


def test_the_first_use_of_a_task_may_be_while_freezegun_holds_the_time():
    """The classes in its annotations are the real ones then, unlike those that the datetime module has."""

    def take(day, *more): ...

    take.__annotations__ = {"day": dt.date, "more": list[dt.datetime | None], "return": dt.datetime}
    real = dt.datetime(2026, 3, 2, tzinfo=UTC)
    with freeze_time("2026-03-01 12:00"):
        conversion = conversion_of("take", take)
        assert conversion is not None
        inside = conversion.encode_arguments([dt.date.today(), [real, dt.datetime.now(UTC)]], {})

    assert inside == (["2026-03-01", ["2026-03-02T00:00:00Z", "2026-03-01T12:00:00Z"]], {})
    assert conversion.encode_arguments([real.date(), [real]], {}) == (["2026-03-02", ["2026-03-02T00:00:00Z"]], {})
    assert conversion.encode_result(real) == "2026-03-02T00:00:00Z"


class Birthday(dt.date):
    """A class of the application: JSON would become a plain date instead."""


def test_a_class_that_derives_from_date_is_not_converted():
    def take(day: Birthday): ...

    assert conversion_of("take", take) is None
