"""A cron expression in words: `at 02:30 on Monday to Friday, Europe/Berlin`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import Final

from schedq.schedules.crontab.expression import MONTHS, WEEKDAYS
from schedq.schedules.crontab.local_calendar import LAST_WEEK, Pattern

_MOST_TIMES: Final = 6
"""If there are more times of day than this, they are described by hours and minutes."""
_WHICH: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", LAST_WEEK: "last"}


def describe(pattern: Pattern, tz: str) -> str:
    """An expression in words, with the numbers derived for `H`."""
    times = _times(pattern)
    days = _days(pattern)
    if not days and not re.match("every|.* of (each|every) ", times):
        days = " every day"
    return f"{times}{days}, {tz}"


def _times(pattern: Pattern) -> str:
    """Up to six times are listed; more are described by their parts: `every 5 minutes of hours 9-17`."""
    seconds, minutes, hours = pattern.seconds, pattern.minutes, pattern.hours
    if len(seconds) * len(minutes) * len(hours) <= _MOST_TIMES:
        shown = [f"{hour:02}:{minute:02}:{second:02}" for hour, minute, second in product(hours, minutes, seconds)]
        return "at " + _listed([time[:5] for time in shown] if seconds == (0,) else shown)
    parts = [_part(minutes, 60, "minute"), _part(hours, 24, "hour")]
    if seconds != (0,):
        parts.insert(0, _part(seconds, 60, "second"))
    # The end of "every 5 minutes of every hour" adds nothing.
    while len(parts) > 1 and parts[-1] in ("every minute", "every hour") and parts[-2].startswith("every "):
        parts.pop()
    text = " of ".join([parts[0], *map(_as_part, parts[1:])])
    return text if text.startswith("every ") else f"at {text}"


def _part(numbers: tuple[int, ...], size: int, unit: str) -> str:
    """`every minute`, `every 5 minutes`, `every 2 hours from 1 to 23`, `minute 0`, `minutes 5, 20 and 40`."""
    if len(numbers) == size:
        return f"every {unit}"
    if len(numbers) > 1:
        step = numbers[1] - numbers[0]
        if numbers == tuple(range(0, size, step)) and size % step == 0:
            return f"every {step} {unit}s"
        if len(numbers) > _MOST_TIMES and step > 1 and numbers == tuple(range(numbers[0], numbers[-1] + 1, step)):
            return f"every {step} {unit}s from {numbers[0]} to {numbers[-1]}"
    return f"{unit}{'s' if len(numbers) > 1 else ''} {_ranges([str(number) for number in numbers], numbers, '-')}"


def _as_part(part: str) -> str:
    """The form after "of": `every 2nd hour` for `every 2 hours`, `each hour` for `every hour`."""
    counted = re.sub(r"every (\d+) (\w+)s", lambda found: f"every {_ordinal(int(found[1]))} {found[2]}", part)
    return re.sub(r"every (hour|minute)$", r"each \1", counted)


def _days(pattern: Pattern) -> str:
    months = ""
    if len(pattern.months) < 12:
        months = _ranges([MONTHS[month - 1] for month in pattern.months], pattern.months, " to ")
    chosen = [*_of_month(pattern, months or "the month"), *_of_week(pattern, months)]
    if chosen:
        return f" {', or '.join(chosen)}"
    return f" every day in {months}" if months else ""


def _of_month(pattern: Pattern, months: str) -> list[str]:
    days = pattern.days or ()
    days_named = [_ranges([_ordinal(day) for day in days], days, " to ")] if days else []
    if pattern.has_last_day:
        days_named.append("last day")
    return [f"on the {' and the '.join(days_named)} of {months}"] if days_named else []


def _of_week(pattern: Pattern, months: str) -> list[str]:
    if pattern.nth_weekdays:
        named = [f"{_WHICH[which]} {WEEKDAYS[weekday]}" for weekday, which in pattern.nth_weekdays]
        return [f"on the {_listed(named)} of {months or 'the month'}"]
    # Weeks are shown from Monday to Sunday.
    days = sorted(pattern.weekdays or (), key=lambda day: (day - 1) % 7)
    if not days:
        return []
    days_named = _ranges([WEEKDAYS[day] for day in days], [(day - 1) % 7 for day in days], " to ")
    return [f"on {days_named}{f' in {months}' if months else ''}"]


def _ranges(names: Sequence[str], numbers: Sequence[int], dash: str) -> str:
    """The names as a list, with three or more consecutive ones as a range."""
    parts: list[str] = []
    start = 0
    for at in range(1, len(numbers) + 1):
        if at < len(numbers) and numbers[at] == numbers[at - 1] + 1:
            continue
        run = names[start:at]
        parts += [f"{run[0]}{dash}{run[-1]}"] if len(run) > 2 else run
        start = at
    return _listed(parts)


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _ordinal(day: int) -> str:
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"
