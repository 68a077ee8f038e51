"""The six fields of an expression: what each is called, which numbers it takes, and by which names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


@dataclass(frozen=True, slots=True)
class Field:
    """One column of an expression.

    Attributes:
        name: as errors call it.
        low, high: the least and the greatest number; 7 is taken for Sunday, too.
        names: numbers by their names, in capitals.
        hash_high: the greatest number that `H` draws; a day that not every month has would be left out at times.
    """

    name: str
    low: int
    high: int
    names: dict[str, int]
    hash_high: int

    @property
    def allowed(self) -> str:
        """What may be written here, in words."""
        if self.is_weekday:
            return "0-7 (0 and 7 are Sunday) or SUN-SAT"
        names = {"month": " or JAN-DEC", "day of month": " or L (the last)"}
        return f"{self.low}-{self.high}{names.get(self.name, '')}"

    @property
    def is_weekday(self) -> bool:
        """Whether this is the day of week."""
        return self.name == "day of week"

    @property
    def is_day(self) -> bool:
        """Whether this is the day of month."""
        return self.name == "day of month"


SECOND: Final = Field("second", 0, 59, {}, 59)
MINUTE: Final = Field("minute", 0, 59, {}, 59)
HOUR: Final = Field("hour", 0, 23, {}, 23)
DAY: Final = Field("day of month", 1, 31, {}, 28)
MONTH: Final = Field("month", 1, 12, {name[:3].upper(): number for number, name in enumerate(MONTHS, 1)}, 12)
WEEKDAY: Final = Field("day of week", 0, 6, {name[:3].upper(): number for number, name in enumerate(WEEKDAYS)}, 6)

FIELDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
"""In the order in which an expression of six has them; one of five leaves out the first."""
