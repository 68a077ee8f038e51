"""Where croniter is wrong or differs, each difference is listed. Everywhere else both have the same slots.

If a release of croniter fixes one, its row fails, and the workaround can be removed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterError, croniter

from schedq import UsageError
from schedq.schedules.crontab.crontab import parse
from tests.schedules.crontab.table import FIXED, REAL_TIME

START = "2026-01-01 00:00"


class Difference(NamedTuple):
    """An expression that the two read differently: local times of the next slots, or what an error says."""

    expression: str
    croniter: str
    schedq: str
    why: str
    tz: str = "UTC"
    start: str = START


CLOCKS = [
    Difference(
        "30 2 * * *",
        "10-25 02:30+0200, 10-25 02:30+0100",
        "10-25 02:30+0200, 10-26 02:30+0100",
        "a time of day that comes twice is one slot by default: a nightly job must not run twice",
        "Europe/Berlin",
        "2026-10-24 12:00",
    ),
    Difference(
        "45 1 * * *",
        "04-05 01:45+1100, 04-05 01:45+1030",
        "04-05 01:45+1100, 04-06 01:45+1030",
        "the same where clocks change by half an hour",
        "Australia/Lord_Howe",
        "2026-04-04 12:00",
    ),
    Difference(
        "30 23 * * *",
        "04-04 23:30-0300, 04-04 23:30-0400",
        "04-04 23:30-0300, 04-05 23:30-0400",
        "the same where clocks change at midnight",
        "America/Santiago",
        "2026-04-04 12:00",
    ),
    Difference(
        "0 */2 * * *",
        "03-29 03:00+0200, 03-29 04:00+0200",
        "03-29 04:00+0200, 03-29 06:00+0200",
        "an hour of */n follows real time, so the clocks add no slot at an odd hour",
        "Europe/Berlin",
        "2026-03-29 00:00",
    ),
]
READING = [
    Difference("30 0 12 * * *", "01-12 00:30+0000", "01-01 12:00+0000", "the second is the first of six fields"),
    Difference("H 3 * * *", "must include hash_id", "there is none here", "H needs the schedule's id"),
    Difference("0 0 * * 5L", "not acceptable", "01-30 00:00+0000", "the last Friday, as in other crons"),
    Difference("0 0 1 OCT-JUL/4 *", "03-01 00:00+0000", "02-01 00:00+0000", "a step starts at the first of the range"),
    Difference("0 0 * * SAT-FRI/3", "01-03 00:00+0000, 01-07", "01-02 00:00+0000, 01-03", "the same for weekdays"),
    Difference("0 0 */3 * SUN-TUE,*/1,4", "01-04", "01-02", "*/1 in a list gives the field: either day field matches"),
    Difference("0 0 11,21 * L5", "failed to find", "01-11 00:00+0000, 01-21", "either day field matches, with L5 too"),
    Difference("0 0 21 * 3#5", "failed to find", "01-21 00:00+0000, 02-21", "either day field matches, with # too"),
]
REFUSED = [
    Difference("50-10 * * * *", "01-01 00:01+0000, 01-01 00:02", "goes backwards", "it would be nearly every minute"),
    Difference("5-5 * * * *", "01-01 00:01+0000, 01-01 00:02", "a range of one", "it would be every minute"),
    Difference("0 22-6 * * *", "01-01 01:00+0000, 01-01 02:00", "goes backwards", "it would be nearly every hour"),
    Difference("0 0 * * 5-1", "01-02 00:00+0000, 01-03", "goes backwards", "only names continue past the week's end"),
    Difference("*/99999 * * * *", "01-01 01:00+0000", "leaves only 0", "a step that does nothing is a mistake"),
    Difference("50/15 * * * *", "01-01 00:50+0000", "leaves only 50", "a step that does nothing is a mistake"),
    Difference("*,5 * * * *", "01-01 00:01+0000", "can't be part of a list", "the 5 does nothing"),
    Difference("R 3 * * *", "01-01 03:", "not understood", "every process would draw another time"),
    Difference("0 0 1W * *", "02-02 00:00+0000", "not understood", "not of any standard"),
    Difference("0 12 1 1 * 0 2030", "failed to find", "has 7 fields", "years are no field"),
    Difference("0 0 30 2 *", "failed to find", "no such day", "croniter says so only when it is asked for a slot"),
]


def by_croniter(expression: str, tz: str, start: str, number: int = 2) -> str:
    try:
        slots = croniter(expression, datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(tz)), ret_type=datetime)
        return ", ".join(f"{slots.get_next():%m-%d %H:%M%z}" for _ in range(number))
    except CroniterError as error:
        return str(error)


def by_schedq(expression: str, tz: str, start: str, number: int = 2) -> str:
    zone = ZoneInfo(tz)
    at_ms, found = int(datetime.fromisoformat(start).replace(tzinfo=zone).timestamp() * 1000), []
    try:
        crontab = parse(expression, tz=tz)
    except UsageError as error:
        return str(error)
    for _ in range(number):
        slot = crontab.next_after(at_ms)
        assert slot is not None
        at_ms = slot
        found.append(datetime.fromtimestamp(slot / 1000, zone))
    return ", ".join(f"{slot:%m-%d %H:%M%z}" for slot in found)


@pytest.mark.parametrize("row", [*CLOCKS, *READING, *REFUSED], ids=lambda row: f"{row.expression} in {row.tz}")
def test_croniter_differs_as_the_table_says(row: Difference):
    assert row.croniter in by_croniter(row.expression, row.tz, row.start), row.why
    assert row.schedq in by_schedq(row.expression, row.tz, row.start), row.why


def test_h_is_drawn_the_same_by_every_release_of_croniter():
    drawn = parse("H 3 * * *", schedule_id="report").next_after(0)
    theirs = croniter("H 3 * * *", datetime.fromtimestamp(0, UTC), hash_id="report").get_next(float)

    assert drawn == (3 * 60 + 46) * 60_000, "its minute is always drawn from SHA-256 of id and field"
    assert theirs * 1000 != drawn, "croniter's differs, and has changed between its releases"


AGREED = sorted({*FIXED, *REAL_TIME} - {row.expression for row in (*READING, *REFUSED)})


@pytest.mark.parametrize("expression", [text for text in AGREED if len(text.split()) == 5 and text[-1] != "L"])
def test_croniter_agrees_elsewhere(expression: str):
    assert by_schedq(expression, "UTC", START, 50) == by_croniter(expression, "UTC", START, 50)
    if expression in FIXED:  # the gap of spring: one slot at the first minute after it
        gap = ("Europe/Berlin", "2026-03-28 12:00", 10)
        assert by_schedq(expression, *gap) == by_croniter(expression, *gap)
