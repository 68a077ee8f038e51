"""Valid expressions, their descriptions, and error messages that name the field."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from schedq import UsageError
from schedq.schedules.crontab.crontab import Crontab, parse

START_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
YEAR_MS = 366 * 86_400_000


def first_slots(expression: str, number: int = 500, **options: Any) -> list[int]:
    return list(islice(parse(expression, **options).between(START_MS, START_MS + 30 * YEAR_MS), number))


REFUSED = {
    "0 25 * * *": "hour '25': 25 is not within 0-23",
    "60 * * * *": "minute '60': 60 is not within 0-59",
    "61 * * * * *": "second '61': 61 is not within 0-59",
    "0 0 0 * *": "day of month '0': 0 is not within 1-31 or L (the last)",
    "0 0 32 * *": "day of month '32': 32 is not within 1-31 or L (the last)",
    "0 0 * 0 *": "month '0': 0 is not within 1-12 or JAN-DEC",
    "0 0 * 13 *": "month '13': 13 is not within 1-12 or JAN-DEC",
    "0 0 * * 8": "day of week '8': 8 is not within 0-7 (0 and 7 are Sunday) or SUN-SAT",
    "0 0 30 2 *": "day of month '30': there is no such day in the given months: the longest has 29 days",
    "0 0 31 4 *": "day of month '31': there is no such day in the given months: the longest has 30 days",
    "0 0 31 4,6,SEP,11 *": "day of month '31': there is no such day",
    "0 0 30-31 feb mon": "day of month '30-31': there is no such day",
    "1-0 * * * *": "minute '1-0': '1-0' goes backwards: write 1-59,0",
    "0 22-6 * * *": "hour '22-6': '22-6' goes backwards: write 22-23,0-6",
    "0 0 * * 5-1": "day of week '5-1': '5-1' goes backwards: write 5-6,0-1 or FRI-MON",
    "0 0 * * 7-2": "day of week '7-2': '7-2' goes backwards: write 0-2 or SUN-TUE",
    "0 0 * * 7-0": "day of week '7-0': '7-0' is a range of one: write 7",
    "0 0 * 11-2 *": "month '11-2': '11-2' goes backwards: write 11-12,1-2 or NOV-FEB",
    "5-5 * * * *": "minute '5-5': '5-5' is a range of one: write 5",
    "0 0 * * SUN-SUN": "day of week 'SUN-SUN': 'SUN-SUN' is a range of one: write SUN",
    "*/99999 * * * *": "minute '*/99999': a step of 99999 leaves only 0 of 0-59: write 0",
    "*/90 * * * *": "minute '*/90': a step of 90 leaves only 0 of 0-59: write 0",
    "*/60 * * * *": "minute '*/60': a step of 60 leaves only 0 of 0-59: write 0",
    "0 */24 * * *": "hour '*/24': a step of 24 leaves only 0 of 0-23: write 0",
    "0 0 * */12 *": "month '*/12': a step of 12 leaves only 1 of 1-12: write 1",
    "50/15 * * * *": "minute '50/15': a step of 15 leaves only 50 of 50-59: write 50",
    "59/2 * * * *": "minute '59/2': a step of 2 leaves only 59",
    "*/0 * * * *": "minute '*/0': the step '0' must be a whole number of at least 1",
    "*/-5 * * * *": "minute '*/-5': the step '-5' must be a whole number",
    "*/ * * * *": "minute '*/': the step '' must be",
    "*/1/2 * * * *": "minute '*/1/2': the step '1/2' must be",
    "*/٣ * * * *": "minute '*/٣': the step '٣' must be",
    "² * * * *": "minute '²': '²' is not understood",
    "-1 * * * *": "minute '-1': '' is not understood",
    "1- * * * *": "minute '1-': '' is not understood",
    "1.5 * * * *": "minute '1.5': '1.5' is not understood: 0-59 is allowed",
    "1-2-3 * * * *": "minute '1-2-3': '2-3' is not understood",
    "1,,2 * * * *": "minute '1,,2': '' can't be part of a list",
    "1, * * * *": "minute '1,': '' can't be part of a list",
    "*,5 * * * *": "minute '*,5': '*' can't be part of a list",
    "? * * * *": "minute '?': '?' is not understood",
    "** * * * *": "minute '**': '**' is not understood",
    "MON * * * *": "minute 'MON': 'MON' is not understood",
    "0 0 * * MOON": "day of week 'MOON': 'MOON' is not understood: 0-7 (0 and 7 are Sunday) or SUN-SAT is allowed; "
    "did you mean MON?",
    "0 0 * * monday": "day of week 'monday': 'MONDAY' is not understood: 0-7 (0 and 7 are Sunday) or SUN-SAT is "
    "allowed; did you mean MON?",
    "0 0 * JNU *": "month 'JNU': 'JNU' is not understood: 1-12 or JAN-DEC is allowed; did you mean JUN?",
    "0 0 * * L": "day of week 'L': L needs a weekday here: L5 is the last Friday of the month",
    "0 0 * * L8": "day of week 'L8': 8 is not within",
    "0 0 * L *": "month 'L': 'L' is not understood",
    "0 0 L-3 * *": "day of month 'L-3': 'L' is not understood: 1-31 or L (the last) is allowed",
    "0 0 15W * *": "day of month '15W': '15W' is not understood",
    "0 0 * * MON#6": "day of week 'MON#6': '6' is not a week of a month: 1-5 may follow '#'",
    "0 0 * * MON#0": "day of week 'MON#0': '0' is not a week of a month",
    "0 0 * * #2": "day of week '#2': '#2' is not understood",
    "0 0 * * MON#1/2": "day of week 'MON#1/2': 'MON#1' is not understood",
    "0 0 * * MON,FRI#2": "day of week 'MON,FRI#2': '#' and 'L' can't be mixed with other days",
    "0 0 * * L5,1-3": "day of week 'L5,1-3': '#' and 'L' can't be mixed with other days",
    "H * * * *": "minute 'H': H is derived from the schedule's id, and there is none here",
    "R * * * *": "minute 'R': 'R' is not understood",
    "0 H(5-2) * * *": "hour 'H(5-2)': H(5-2) needs an ascending range within 0-23",
    "0 H(0-30) * * *": "hour 'H(0-30)': 30 is not within 0-23",
    "H/90 * * * *": "minute 'H/90': a step of 90 leaves only 0 of 0-59",
    "H(0-29)/40 * * * *": "minute 'H(0-29)/40': a step of 40 leaves only 0 of 0-29",
    "H( * * * *": "minute 'H(': 'H(' is not understood",
    "* * * *": "has 4 fields; write 5 (minute, hour, day of month, month, day of week), or 6 with seconds first",
    "* * * * * * *": "has 7 fields",
    "": "has 0 fields",
    "@dayly": "cron expression '@dayly' is not understood; did you mean @daily?",
    "@reboot": "cron expression '@reboot' is not understood; there are @yearly, @annually, @monthly",
    "@daily @daily": "cron expression '@daily @daily' is not understood",
    "0," * 600 + "0 * * * *": "at most 1,000 characters, this one has 1,209",
}


@pytest.mark.parametrize("expression", REFUSED, ids=lambda text: text[:30])
def test_an_invalid_expression_is_refused_with_the_field_named(expression: str):
    with pytest.raises(UsageError) as refused:
        parse(expression)

    assert REFUSED[expression] in str(refused.value)
    assert "\n" not in str(refused.value)


SAME = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@Monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    ("0 0 5 * * *", "0 5 * * *"),
    ("  0\t5 *  * * ", "0 5 * * *"),
    ("0 5 * * 7", "0 5 * * 0"),
    ("0 5 * * 7", "0 5 * * SUN"),
    ("0 5 * * 5-7", "0 5 * * FRI,SAT,SUN"),
    ("0 5 * * 0-7", "0 5 * * 0-6"),
    ("0 5 * * MON-SUN", "0 5 * * *"),
    ("0 5 * * fri-mon", "0 5 * * 0,1,5,6"),
    ("0 5 * * FRI-MON/2", "0 5 * * FRI,SUN"),
    ("0 5 * NOV-FEB *", "0 5 * 1,2,11,12 *"),
    ("0 5 * NOV-FEB/3 *", "0 5 * 11,2 *"),
    ("0 5 * jan,Jul-9 *", "0 5 * 1,7,8,9 *"),
    ("5/15 * * * *", "5,20,35,50 * * * *"),
    ("0 5 25-L * *", "0 5 25-31 * *"),
    ("0 5 ? * 3", "0 5 * * 3"),
    ("0 5 1 * ?", "0 5 1 * *"),
    ("0 5 */1 * 3", "0 5 * * 3"),
    ("0 5 * * FRIL", "0 5 * * L5"),
    ("0 5 * * 5L", "0 5 * * L5"),
    ("0 5 * * LFRI", "0 5 * * l5"),
    ("0 5 * * 7L", "0 5 * * L0"),
    ("0 5 * * tue#2,TUE#4", "0 5 * * 2#2,2#4"),
    ("00 05 * * *", "0 5 * * *"),
    ("0000000000012/00000000010 5 * * *", "12,22,32,42,52 5 * * *"),
    ("0 0 28-31 2 *", "0 0 28,29 2 *"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_spellings_are_one_expression(one: str, other: str):
    assert first_slots(one) == first_slots(other)


def test_equal_expressions_compare_equal():
    assert parse("@daily", tz="Europe/Berlin") == parse("@daily", tz="Europe/Berlin")
    assert len({parse("@daily"), parse("@daily"), parse("@daily", tz="Europe/Berlin"), parse("0 0 * * *")}) == 3


# -- H


def numbers(expression: str, schedule_id: str) -> tuple[tuple[int, ...], ...]:
    """The values of the fields of an expression with `H`, found from 40 slots."""
    found = [datetime.fromtimestamp(slot / 1000, UTC) for slot in first_slots(expression, 40, schedule_id=schedule_id)]
    columns = zip(*((at.minute, at.hour, at.day, at.month, at.isoweekday() % 7) for at in found), strict=True)
    return tuple(tuple(sorted(set(column))) for column in columns)


def test_the_hash_of_an_id_never_changes():
    """Otherwise each upgrade of Python, croniter or schedq would move all scheduled jobs."""
    assert numbers("H H * * *", "nightly-report")[:2] == ((33,), (5,))
    assert numbers("H(0-29)/10 * * * *", "nightly-report")[0] == (3, 13, 23)
    assert numbers("0 0 H H *", "nightly-report")[2:4] == ((26,), (11,))
    assert numbers("0 0 * * H", "nightly-report")[4] == (5,)


def test_the_hash_is_the_same_in_another_process():
    program = (
        "from schedq.schedules.crontab.crontab import parse; print(parse('H H H H *', schedule_id='a').next_after(0))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }

    assert said == {f"{parse('H H H H *', schedule_id='a').next_after(0)}\n"}


def test_hashed_schedules_are_spread():
    minutes = [numbers("H H * * *", f"job-{number}")[0][0] for number in range(300)]
    hours = [numbers("H H * * *", f"job-{number}")[1][0] for number in range(300)]

    assert len(set(minutes)) > 50
    assert set(hours) == set(range(24))
    assert len(set(zip(minutes, hours, strict=True))) > 250  # each field has a value of its own


def test_a_hashed_field_stays_in_its_range():
    for number in range(100):
        schedule_id = f"job-{number}"
        (minutes, *_) = numbers("H(10-19) * * * *", schedule_id)
        assert len(minutes) == 1
        assert 10 <= minutes[0] <= 19
        (minutes, *_) = numbers("H(0-29)/10 * * * *", schedule_id)
        assert minutes == tuple(range(minutes[0], 30, 10))
        assert len(minutes) == 3
        (minutes, *_) = numbers("H/15,59 * * * *", schedule_id)
        assert set(minutes) == {*range(minutes[0], 60, 15), 59}
        assert numbers("0 0 H * *", schedule_id)[2][0] <= 28  # every month has it


# -- words

WORDS = {
    "* * * * *": "every minute, UTC",
    "*/5 * * * *": "every 5 minutes, UTC",
    "*/7 * * * *": "every 7 minutes from 0 to 56, UTC",
    "0 * * * *": "at minute 0 of each hour, UTC",
    "7-59/15 * * * *": "at minutes 7, 22, 37 and 52 of each hour, UTC",
    "0 */2 * * *": "at minute 0 of every 2nd hour, UTC",
    "* 3 * * *": "every minute of hour 3, UTC",
    "30 2 * * *": "at 02:30 every day, UTC",
    "0 0,12 * * *": "at 00:00 and 12:00 every day, UTC",
    "*/15 9-17 * * 1-5": "every 15 minutes of hours 9-17 on Monday to Friday, UTC",
    "0 0 * * FRI-MON": "at 00:00 on Monday and Friday to Sunday, UTC",
    "0 0 1,15 * MON": "at 00:00 on the 1st and 15th of the month, or on Monday, UTC",
    "0 0 L * *": "at 00:00 on the last day of the month, UTC",
    "0 0 1-7,L 3 *": "at 00:00 on the 1st to 7th and the last day of March, UTC",
    "0 0 * * L5": "at 00:00 on the last Friday of the month, UTC",
    "0 12 * 2 TUE#2,THU#4": "at 12:00 on the second Tuesday and fourth Thursday of February, UTC",
    "30 2 29 2 *": "at 02:30 on the 29th of February, UTC",
    "5 0 * 6-8 *": "at 00:05 every day in June to August, UTC",
    "1 1 * JAN SUN": "at 01:01 on Sunday in January, UTC",
    "* * * * * *": "every second, UTC",
    "*/10 * * * * *": "every 10 seconds, UTC",
    "30 * * * * *": "at second 30 of each minute, UTC",
    "15 30 2 * * *": "at 02:30:15 every day, UTC",
    "5 */5 * * * *": "at second 5 of every 5th minute, UTC",
}


@pytest.mark.parametrize("expression", WORDS)
def test_an_expression_is_explained_in_words(expression: str):
    assert parse(expression).describe() == WORDS[expression]


def test_the_effect_of_a_clock_change_is_explained_too():
    def said(expression: str, **policies: Any) -> str:
        crontab: Crontab = parse(expression, tz="Europe/Berlin", **policies)
        return crontab.describe_clock_changes()

    assert said("0 * * * *").startswith("It follows real time when clocks change")
    assert said("0 2 * * *").startswith(
        "Times that a clock change skips: one slot at the first minute after them. Times"
    )
    assert said("0 2 * * *").endswith("Times that it repeats: the first time only.")
    assert said("0 2 * * *", gap="skip", fold="both").endswith("skips: no slot. Times that it repeats: both times.")
