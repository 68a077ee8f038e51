"""A cron expression read into the numbers it stands for; every refusal points at the field."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from croniter import CroniterError, croniter

from schedq.crontab.fields import DAY, FIELDS, HOUR, Field
from schedq.crontab.spelling import Place, respelled
from schedq.crontab.wall import LAST_WEEK, Pattern
from schedq.errors import UsageError

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST: Final = 1000
_MONTH_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class Expression:
    """What an expression says.

    Attributes:
        pattern: the numbers of each field.
        texts: the six fields as they were written; the seconds of an expression of five are "0".
        keeps_rhythm: its hour is `*` or `*/n` (or `H/n`, the same from a drawn hour on), so it goes by real time when
            clocks change.
    """

    pattern: Pattern
    texts: tuple[str, ...]
    keeps_rhythm: bool


def read(expression: str, schedule_id: str) -> Expression:
    """Read an expression; `H` is drawn from the id.

    Raises:
        UsageError: it is not understood, or can't be meant; the message points at the field.
    """
    texts = _columns(expression)
    places = [Place(expression, field, text, schedule_id) for field, text in zip(FIELDS, texts, strict=True)]
    second, *others = (respelled(place) for place in places)
    try:
        columns, nth = croniter.expand(" ".join([*others, second]))
    except (CroniterError, ValueError) as error:
        raise UsageError(f"cron expression {expression!r:.200} is refused: {error}") from error
    pattern = _pattern(columns, nth)
    _check_dates(pattern, places[FIELDS.index(DAY)])
    hour = texts[FIELDS.index(HOUR)].upper()
    return Expression(pattern, texts, hour == "*" or (hour.startswith(("*/", "H/")) and "," not in hour))


def _columns(expression: str) -> tuple[str, ...]:
    text = expression.strip()
    if len(text) > _LONGEST:
        raise UsageError(f"a cron expression must have at most {_LONGEST:,} characters, this one has {len(text):,}")
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            near = get_close_matches(text.lower(), ALIASES, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(ALIASES)}"
            raise UsageError(f"cron expression {text!r:.60} is not understood{hint}")
        text = ALIASES[text.lower()]
    found = text.split()
    if len(found) not in (5, 6):
        wanted = "5 (minute, hour, day of month, month, day of week), or 6 with seconds first"
        raise UsageError(f"cron expression {text!r:.200} has {len(found)} fields; write {wanted}")
    return tuple(found) if len(found) == 6 else ("0", *found)


def _pattern(columns: list[Any], nth: dict[Any, set[Any]]) -> Pattern:
    """What croniter answered, columns minute to weekday and then second, as a pattern."""
    minute, hour, day, month, weekday, second = columns
    _, minutes, hours, _, months, _ = FIELDS
    which = {(int(day), LAST_WEEK if number == "l" else int(number)) for day in nth for number in nth[day]}
    return Pattern(
        seconds=_numbers(second, FIELDS[0]),
        minutes=_numbers(minute, minutes),
        hours=_numbers(hour, hours),
        days=None if day in (["*"], ["l"]) else tuple(number for number in day if number != "l"),
        has_last_day="l" in day,
        months=_numbers(month, months),
        weekdays=None if weekday == ["*"] or which else tuple(weekday),
        nth_weekdays=tuple(sorted(which)),
    )


def _numbers(column: list[Any], field: Field) -> tuple[int, ...]:
    return tuple(range(field.low, field.high + 1)) if column == ["*"] else tuple(sorted(column))


def _check_dates(pattern: Pattern, place: Place) -> None:
    """Refuse days that none of the months has, such as 30 February."""
    if pattern.days is None or pattern.has_last_day:
        return
    longest = max(_MONTH_LENGTHS[month - 1] for month in pattern.months)
    if pattern.days[0] > longest:
        raise place.refuse(f"there is no such day in the months given: the longest has {longest} days")
