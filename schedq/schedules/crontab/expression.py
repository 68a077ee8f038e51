"""Parse a cron expression into the numbers it stands for; every error names the field.

croniter expands names, ranges, steps, `L` and `#`. But it accepts likely mistakes (`*/99999`, `50-10`, `5-5` for every
minute), its errors do not name the field, and it misreads some valid items. So every item is checked first, and
rewritten where croniter is wrong; tests/schedules/crontab/test_croniter.py lists each difference.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from typing import Any, Final

from schedq.errors import UsageError
from schedq.schedules.crontab.local_calendar import LAST_WEEK, Pattern

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_LONGEST: Final = 1000
_EACH: Final = re.compile(r"\*(/0*1)?")
_HASHED: Final = re.compile(r"H(?:\((?P<low>[^()-]*)-(?P<high>[^()-]*)\))?")
_NTH: Final = re.compile(r"(?P<day>[^#]+)#(?P<which>[^#]+)")
_LAST_WEEKDAY: Final = re.compile(r"L(?P<after>[0-9A-Z]+)|(?P<before>[0-9]+|[A-Z]{3})L")


@dataclass(frozen=True, slots=True)
class Field:
    """One column of an expression.

    Attributes:
        name: its name in errors.
        low, high: the least and the greatest number; 7 also stands for Sunday.
        hash_high: the greatest number for `H`; every month has a day 28.
        allowed: the allowed values, in words.
        names: names in capitals → numbers.
    """

    name: str
    low: int
    high: int
    hash_high: int
    allowed: str
    names: dict[str, int]


_MONTHS: Final = {name[:3].upper(): number for number, name in enumerate(MONTHS, 1)}
_WEEKDAYS: Final = {name[:3].upper(): number for number, name in enumerate(WEEKDAYS)}
FIELDS: Final = (
    Field("second", 0, 59, 59, "0-59", {}),
    Field("minute", 0, 59, 59, "0-59", {}),
    Field("hour", 0, 23, 23, "0-23", {}),
    Field("day of month", 1, 31, 28, "1-31 or L (the last)", {}),
    Field("month", 1, 12, 12, "1-12 or JAN-DEC", _MONTHS),
    Field("day of week", 0, 6, 6, "0-7 (0 and 7 are Sunday) or SUN-SAT", _WEEKDAYS),
)
"""In the order of an expression with six fields; one with five leaves out the first."""
_, _, HOUR, DAY, _, WEEKDAY = FIELDS


@dataclass(frozen=True, slots=True)
class FieldText:
    """One field of an expression, as written."""

    expression: str
    field: Field
    text: str
    schedule_id: str

    def error(self, why: str) -> UsageError:
        """An error that names this field."""
        return UsageError(f"cron expression {self.expression!r:.200}, {self.field.name} {self.text!r:.60}: {why}")

    def draw(self, low: int, high: int) -> int:
        """A number within [low, high] that is always the same for this schedule and field.

        Raises:
            UsageError: the schedule has no id.
        """
        if not self.schedule_id:
            raise self.error("H is derived from the schedule's id, and there is none here")
        digest = sha256(f"{self.schedule_id}:{self.field.name}".encode()).digest()
        return low + int.from_bytes(digest[:8], "big") % (high - low + 1)


def read(expression: str, schedule_id: str) -> Pattern:
    """Parse an expression; `H` is derived from the id.

    Raises:
        UsageError: it is invalid; the message names the field.
    """
    from croniter import (  # slow to import, and few programs need it
        CroniterError,
        croniter,
    )

    texts = _columns(expression)
    sources = [FieldText(expression, field, text, schedule_id) for field, text in zip(FIELDS, texts, strict=True)]
    second, *others = (normalize(source) for source in sources)
    try:
        columns, nth = croniter.expand(" ".join([*others, second]))
    except (CroniterError, ValueError) as error:
        raise UsageError(f"cron expression {expression!r:.200} is refused: {error}") from error
    pattern = _pattern(columns, nth, texts[FIELDS.index(HOUR)].upper())
    longest = max(monthrange(2024, month)[1] for month in pattern.months)  # in a leap year
    if pattern.days and pattern.days[0] > longest and not pattern.has_last_day:
        why = f"there is no such day in the given months: the longest has {longest} days"
        raise sources[FIELDS.index(DAY)].error(why)
    return pattern


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


def _pattern(columns: list[Any], nth: dict[Any, set[Any]], hour_text: str) -> Pattern:
    """The pattern from croniter's result: columns minute to weekday, then second."""
    minute, hour, day, month, weekday, second = columns
    which = {(int(day), LAST_WEEK if number == "l" else int(number)) for day in nth for number in nth[day]}
    return Pattern(
        seconds=_numbers(second, range(60)),
        minutes=_numbers(minute, range(60)),
        hours=_numbers(hour, range(24)),
        days=None if day == ["*"] else tuple(number for number in day if number != "l"),
        has_last_day="l" in day,
        months=_numbers(month, range(1, 13)),
        weekdays=None if weekday == ["*"] else tuple(number for number in weekday if not which),
        nth_weekdays=tuple(sorted(which)),
        follows_real_time=hour_text == "*" or (hour_text.startswith(("*/", "H/")) and "," not in hour_text),
    )


def _numbers(column: list[Any], every: range) -> tuple[int, ...]:
    return tuple(every if column == ["*"] else sorted(column))


def normalize(source: FieldText) -> str:
    """The field in a form that croniter reads correctly.

    Raises:
        UsageError: an item is unknown, out of range or invalid.
    """
    items = source.text.upper().split(",")
    if len(items) == 1:
        return "*" if _EACH.fullmatch(items[0]) else _item(source, items[0])
    for item in items:
        if item in ("", "*", "?"):
            raise source.error(f"{item!r} can't be part of a list")
    checked = [_item(source, item) for item in items]
    special = [text for text in checked if source.field is WEEKDAY and ("#" in text or text.startswith("L"))]
    if 0 < len(special) < len(checked):
        raise source.error("'#' and 'L' can't be mixed with other days")
    return ",".join(checked)


def _item(source: FieldText, item: str) -> str:
    body, slash, step = item.partition("/")
    if item == "?" and source.field in (DAY, WEEKDAY):
        return "*"
    if hashed := _HASHED.fullmatch(body):
        return _hashed(source, hashed["low"], hashed["high"], step if slash else "")
    if not slash and (special := _special(source, body)):
        return special
    values = _values(source, body, is_stepped=bool(slash))
    every = _checked_step(source, step, values) if slash else 1
    if every > 1 and values[-1] < values[0]:  # croniter would count the step from the start of the week or year
        return ",".join(map(str, values[::every]))
    if body == "*":  # with "*" croniter ignores the other day field if it matches every day
        return f"{values[0]}-{values[-1]}/{every}"
    return item


def _values(source: FieldText, body: str, *, is_stepped: bool) -> range | tuple[int, ...]:
    """The numbers that an item stands for, without its step."""
    field = source.field
    if body == "*":
        return range(field.low, field.high + 1)
    first, dash, last = body.partition("-")
    if dash:
        return _range(source, first, last)
    low = _value(source, first)
    return range(low % 7 if field is WEEKDAY else low, field.high + 1) if is_stepped else (low,)


def _special(source: FieldText, body: str) -> str | None:
    """`L`, `L5`, `5L` and `MON#2` in croniter's form; None for anything else."""
    if source.field is DAY and body == "L":
        return body
    if source.field is not WEEKDAY:
        return None
    if body == "L":
        raise source.error("L needs a weekday here: L5 is the last Friday of the month")
    if last := _LAST_WEEKDAY.fullmatch(body):
        return f"L{_value(source, last['after'] or last['before']) % 7}"
    if nth := _NTH.fullmatch(body):
        if nth["which"] not in ("1", "2", "3", "4", "5"):
            raise source.error(f"{nth['which']!r} is not a week of a month: 1-5 may follow '#'")
        return f"{_value(source, nth['day']) % 7}#{nth['which']}"
    return None


def _value(source: FieldText, token: str) -> int:
    """The number for a number or name."""
    field = source.field
    if token in field.names:
        return field.names[token]
    if token.isascii() and token.isdigit():
        value = int(token)
        if field.low <= value <= (7 if field is WEEKDAY else field.high):
            return value
        raise source.error(f"{token:.20} is not within {field.allowed}")
    near = get_close_matches(token[:3], field.names, n=1, cutoff=0.5) or get_close_matches(token, field.names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise source.error(f"{token!r:.40} is not understood: {field.allowed} is allowed{hint}")


def _range(source: FieldText, first: str, last: str) -> range | tuple[int, ...]:
    """The numbers of `first-last`; named days and months may continue past the end of the week or year."""
    field = source.field
    low = _value(source, first)
    high = 31 if field is DAY and last == "L" else _value(source, last)
    if low == high or (low, high) == (7, 0):
        raise source.error(f"'{first}-{last}' is a range of one: write {first}")
    if low < high:
        return range(low, high + 1)
    if first in field.names and last in field.names:
        return (*range(low, field.high + 1), *range(field.low, high + 1))
    raise source.error(f"'{first}-{last}' goes backwards: write {_forwards(field, low, high)}")


def _forwards(field: Field, low: int, high: int) -> str:
    """The correct form of a range that continues past the end of the field."""
    parts = [(0, high)] if low > field.high else [(low, field.high), (field.low, high)]
    text = ",".join(f"{start}-{end}" if start != end else str(end) for start, end in parts)
    named = {number: name for name, number in field.names.items()}
    return f"{text} or {named[low % 7 if field is WEEKDAY else low]}-{named[high]}" if named else text


def _checked_step(source: FieldText, step: str, values: range | tuple[int, ...]) -> int:
    every = int(step) if step.isascii() and step.isdigit() else 0
    if every < 1:
        raise source.error(f"the step {step!r:.20} must be a whole number of at least 1")
    if every > 1 and every >= len(values):
        raise source.error(
            f"a step of {step:.20} leaves only {values[0]} of {values[0]}-{values[-1]}: write {values[0]}"
        )
    return every


def _hashed(source: FieldText, low: str | None, high: str | None, step: str) -> str:
    """`H` or `H(low-high)`, with or without a step: a number derived from the schedule's id."""
    field = source.field
    least, most = field.low, field.hash_high
    if low is not None and high is not None:
        least, most = _value(source, low), _value(source, high)
        if least >= most or most > field.high:
            raise source.error(f"H({low}-{high}) needs an ascending range within {field.low}-{field.high}")
    if not step:
        return str(source.draw(least, most))
    every = _checked_step(source, step, range(least, most + 1))
    start = source.draw(least, least + every - 1)
    return f"{start}-{most}/{every}" if start + every <= most else str(start)
