"""What may be written in a field, and the plain numbers that it stands for; what can't be meant is refused here.

croniter reads the numbers in the end, but takes much that nobody means (`*/99999`, `50-10`, `5-5` for every minute),
draws `H` differently from one of its versions to the next, and names no field in its errors. So each item of a field
is first checked and respelled as numbers alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from typing import Final

from schedq.crontab.fields import Field
from schedq.errors import UsageError

_EACH: Final = re.compile(r"\*(/0*1)?")
_HASHED: Final = re.compile(r"H(?:\((?P<low>[^()-]*)-(?P<high>[^()-]*)\))?")
_NTH: Final = re.compile(r"(?P<day>[^#]+)#(?P<which>[^#]+)")
_LAST_WEEKDAY: Final = re.compile(r"L(?P<after>[0-9A-Z]+)|(?P<before>[0-9]+|[A-Z]{3})L")


@dataclass(frozen=True, slots=True)
class Place:
    """One field of one expression, as it is written."""

    expression: str
    field: Field
    text: str
    schedule_id: str

    def refuse(self, why: str) -> UsageError:
        """The error that points here."""
        return UsageError(f"cron expression {self.expression!r:.200}, {self.field.name} {self.text!r:.60}: {why}")

    def draw(self, low: int, high: int) -> int:
        """A number within [low, high] that is the same for this schedule and field for ever.

        Raises:
            UsageError: the schedule has no id.
        """
        if not self.schedule_id:
            raise self.refuse("H is drawn from the schedule's id, and there is none here")
        digest = sha256(f"{self.schedule_id}:{self.field.name}".encode()).digest()
        return low + int.from_bytes(digest[:8], "big") % (high - low + 1)


def respelled(place: Place) -> str:
    """The field in numbers that croniter takes for what they are.

    Raises:
        UsageError: something in it is unknown, out of range, or can't be meant.
    """
    items = place.text.upper().split(",")
    if len(items) == 1:
        return "*" if _EACH.fullmatch(items[0]) else _item(place, items[0])
    for item in items:
        if item in ("", "*", "?"):
            raise place.refuse(f"{item!r} can't be one of a list")
    plain = [_item(place, item) for item in items]
    special = [text for text in plain if place.field.is_weekday and ("#" in text or text.startswith("L"))]
    if 0 < len(special) < len(plain):
        raise place.refuse("'#' and 'L' can't be mixed with other days")
    return ",".join(plain)


def _item(place: Place, item: str) -> str:
    field = place.field
    body, slash, step = item.partition("/")
    if item == "?" and (field.is_day or field.is_weekday):
        return "*"
    if body == "*":
        return _stepped(place, range(field.low, field.high + 1), step if slash else "1")
    if hashed := _HASHED.fullmatch(body):
        return _hashed(place, hashed["low"], hashed["high"], step if slash else "")
    if not slash and (special := _special(place, body)):
        return special
    first, dash, last = body.partition("-")
    if dash:
        return _stepped(place, _range(place, first, last), step if slash else "1")
    low = _value(place, first)
    if slash:
        return _stepped(place, range(low % 7 if field.is_weekday else low, field.high + 1), step)
    return str(low % 7 if field.is_weekday else low)


def _special(place: Place, body: str) -> str | None:
    """`L`, `L5` and `MON#2` in croniter's spelling; None for anything else."""
    if place.field.is_day and body == "L":
        return body
    if not place.field.is_weekday:
        return None
    if body == "L":
        raise place.refuse("L needs a weekday here: L5 is the last Friday of the month")
    if last := _LAST_WEEKDAY.fullmatch(body):
        return f"L{_value(place, last['after'] or last['before']) % 7}"
    if nth := _NTH.fullmatch(body):
        if nth["which"] not in ("1", "2", "3", "4", "5"):
            raise place.refuse(f"{nth['which']!r} is no week of a month: 1-5 may follow '#'")
        return f"{_value(place, nth['day']) % 7}#{nth['which']}"
    return None


def _value(place: Place, token: str) -> int:
    """The number that a number or name stands for."""
    field = place.field
    if token in field.names:
        return field.names[token]
    if token.isascii() and token.isdigit():
        value = int(token)
        if field.low <= value <= (7 if field.is_weekday else field.high):
            return value
        raise place.refuse(f"{token:.20} is not within {field.allowed}")
    near = get_close_matches(token[:3], field.names, n=1, cutoff=0.5) or get_close_matches(token, field.names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise place.refuse(f"{token!r:.40} is not understood: {field.allowed} is allowed{hint}")


def _range(place: Place, first: str, last: str) -> range | tuple[int, ...]:
    """The numbers of `first-last`; named days and months may go on past the end of the week or year."""
    field = place.field
    low = _value(place, first)
    high = 31 if field.is_day and last == "L" else _value(place, last)
    if low == high or (low, high) == (7, 0):
        raise place.refuse(f"'{first}-{last}' is a range of one: write {first}")
    if low < high:
        return range(low, high + 1)
    if first in field.names and last in field.names:
        return (*range(low, field.high + 1), *range(field.low, high + 1))
    raise place.refuse(f"'{first}-{last}' goes backwards: write {_forwards(field, low, high)}")


def _forwards(field: Field, low: int, high: int) -> str:
    """A range that goes past the end of the field, as it may be written."""
    parts = [(0, high)] if low > field.high else [(low, field.high), (field.low, high)]
    text = ",".join(f"{start}-{end}" if start != end else str(end) for start, end in parts)
    named = {number: name for name, number in field.names.items()}
    return f"{text} or {named[low % 7 if field.is_weekday else low]}-{named[high]}" if named else text


def _stepped(place: Place, values: range | tuple[int, ...], step: str) -> str:
    """Each `step`-th of the values."""
    every = int(step) if step.isascii() and step.isdigit() else 0
    if every < 1:
        raise place.refuse(f"the step {step!r:.20} must be a whole number of at least 1")
    if every > 1 and every >= len(values):
        raise place.refuse(
            f"a step of {step:.20} leaves only {values[0]} of {values[0]}-{values[-1]}: write {values[0]}"
        )
    if isinstance(values, range) and values[-1] <= place.field.high:
        return f"{values[0]}-{values[-1]}/{every}" if len(values) > 1 else str(values[0])
    return ",".join(str(value % 7 if place.field.is_weekday else value) for value in values[::every])


def _hashed(place: Place, low: str | None, high: str | None, step: str) -> str:
    """`H`, `H(low-high)` and either with a step: drawn once, then as if the number had been written."""
    field = place.field
    least, most = field.low, field.hash_high
    if low is not None and high is not None:
        least, most = _value(place, low), _value(place, high)
        if least >= most or most > field.high:
            raise place.refuse(f"H({low}-{high}) needs a range that goes up, within {field.low}-{field.high}")
    if not step:
        return str(place.draw(least, most))
    stepped = range(least, most + 1)
    _stepped(place, stepped, step)
    start = place.draw(least, least + int(step) - 1)
    return _stepped(place, range(start, most + 1), step) if start + int(step) <= most else str(start)
