"""Expressions, and what each means as a Python condition on a wall clock, written by hand."""

from __future__ import annotations

from calendar import monthrange
from datetime import datetime, timedelta

from tests.schedules.crontab.walk import Matches


def at(*times: tuple[int, int]) -> Matches:
    """At these hours and minutes, every day."""
    return lambda t: (t.hour, t.minute) in times


def is_last_day(t: datetime) -> bool:
    return t.day == monthrange(t.year, t.month)[1]


def is_last_of_its_weekday(t: datetime) -> bool:
    return (t + timedelta(days=7)).month != t.month


# 0 is Monday, as datetime has it.
MON, TUE, WED, THU, FRI, SAT, SUN = range(7)

FIXED: dict[str, Matches] = {
    "0 0 * * *": at((0, 0)),
    "@daily": at((0, 0)),
    "@midnight": at((0, 0)),
    "30 0 * * *": at((0, 30)),
    "0 1 * * *": at((1, 0)),
    "30 1 * * *": at((1, 30)),
    "59 1 * * *": at((1, 59)),
    "0 2 * * *": at((2, 0)),
    "1 2 * * *": at((2, 1)),
    "15 2 * * *": at((2, 15)),
    "30 2 * * *": at((2, 30)),
    "59 2 * * *": at((2, 59)),
    "0 3 * * *": at((3, 0)),
    "30 3 * * *": at((3, 30)),
    "45 23 * * *": at((23, 45)),
    "0,30 1,2 * * *": at((1, 0), (1, 30), (2, 0), (2, 30)),
    "0 2,3 * * *": at((2, 0), (3, 0)),
    "10-50/20 0-3 * * *": lambda t: t.hour <= 3 and t.minute in (10, 30, 50),
    "* 2 * * *": lambda t: t.hour == 2,
    "*/15 1-2 * * *": lambda t: t.hour in (1, 2) and t.minute % 15 == 0,
    "*/20 0,23 * * *": lambda t: t.hour in (0, 23) and t.minute % 20 == 0,
    "0 0-23 * * *": lambda t: t.minute == 0,
    "5/25 0-23/2 * * *": lambda t: t.hour % 2 == 0 and t.minute in (5, 30, 55),
    "30 2 * * SUN": lambda t: t.weekday() == SUN and (t.hour, t.minute) == (2, 30),
    "30 2 * * 7": lambda t: t.weekday() == SUN and (t.hour, t.minute) == (2, 30),
    "@weekly": lambda t: t.weekday() == SUN and (t.hour, t.minute) == (0, 0),
    "0 2 * * FRI-MON": lambda t: t.weekday() in (FRI, SAT, SUN, MON) and (t.hour, t.minute) == (2, 0),
    "30 1 * * sat,sun": lambda t: t.weekday() in (SAT, SUN) and (t.hour, t.minute) == (1, 30),
    "30 2 * 3,10 L0": lambda t: (
        t.month in (3, 10) and t.weekday() == SUN and is_last_of_its_weekday(t) and (t.hour, t.minute) == (2, 30)
    ),
    "30 2 * MAR,OCT-NOV sunL": lambda t: (
        t.month in (3, 10, 11) and t.weekday() == SUN and is_last_of_its_weekday(t) and (t.hour, t.minute) == (2, 30)
    ),
    "15 2 * * SUN#2": lambda t: t.weekday() == SUN and 8 <= t.day <= 14 and (t.hour, t.minute) == (2, 15),
    "15 1 * * 0#1,0#5": lambda t: t.weekday() == SUN and (t.day <= 7 or t.day >= 29) and (t.hour, t.minute) == (1, 15),
    "30 2 29 3 *": lambda t: (t.month, t.day, t.hour, t.minute) == (3, 29, 2, 30),
    "30 2 L * *": lambda t: is_last_day(t) and (t.hour, t.minute) == (2, 30),
    "0 1 25-L * *": lambda t: t.day >= 25 and (t.hour, t.minute) == (1, 0),
    "30 1 1,25 * MON": lambda t: (t.day in (1, 25) or t.weekday() == MON) and (t.hour, t.minute) == (1, 30),
    "0 0 */2 * SAT": lambda t: (t.day % 2 == 1 or t.weekday() == SAT) and (t.hour, t.minute) == (0, 0),
    "0 2 1-31 * WED": at((2, 0)),
    "0 2 ? * WED": lambda t: t.weekday() == WED and (t.hour, t.minute) == (2, 0),
    "0 3 * NOV-APR *": lambda t: t.month not in range(5, 11) and (t.hour, t.minute) == (3, 0),
    "@monthly": lambda t: (t.day, t.hour, t.minute) == (1, 0, 0),
    "@yearly": lambda t: (t.month, t.day, t.hour, t.minute) == (1, 1, 0, 0),
    "0 30 2 * * *": at((2, 30)),
}
"""Fixed times: `gap` and `fold` decide about those that a clock change skips or repeats."""

REAL_TIME: dict[str, Matches] = {
    "* * * * *": lambda t: True,
    "*/5 * * * *": lambda t: t.minute % 5 == 0,
    "@hourly": lambda t: t.minute == 0,
    "0 * * * *": lambda t: t.minute == 0,
    "30 * * * *": lambda t: t.minute == 30,
    "7-59/15 * * * *": lambda t: t.minute in (7, 22, 37, 52),
    "0 */2 * * *": lambda t: t.minute == 0 and t.hour % 2 == 0,
    "30 */3 * * *": lambda t: t.minute == 30 and t.hour % 3 == 0,
    "0 * * * SUN": lambda t: t.minute == 0 and t.weekday() == SUN,
    "15 * 29 3 *": lambda t: t.minute == 15 and (t.month, t.day) == (3, 29),
}
"""Real time: each instant whose local time matches is a slot."""

SECONDS: dict[str, Matches] = {
    "15 30 2 * * *": lambda t: (t.hour, t.minute, t.second) == (2, 30, 15),
    "*/20 30 1-2 * * *": lambda t: t.hour in (1, 2) and t.minute == 30 and t.second % 20 == 0,
    "59 59 1 * * SUN": lambda t: (t.weekday(), t.hour, t.minute, t.second) == (SUN, 1, 59, 59),
    "* 0 2 * * *": lambda t: (t.hour, t.minute) == (2, 0),
}
"""Fixed times, to the second."""

SECONDS_IN_REAL_TIME: dict[str, Matches] = {
    "*/10 * * * * *": lambda t: t.second % 10 == 0,
    "30 */15 * * * *": lambda t: t.minute % 15 == 0 and t.second == 30,
}
