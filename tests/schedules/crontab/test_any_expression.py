"""Random expressions in random zones and years, compared with a walk through every minute."""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, get_args

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from schedq.schedules.crontab.crontab import Fold, Gap, parse
from schedq.schedules.crontab.zones import offsets_of
from tests.schedules.crontab import test_changes_of_clocks as slots
from tests.schedules.crontab.walk import DAY_S, HOUR_S, Meant, walk

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
# Where and when something happens to clocks; the day after, UTC.
SCENES = [
    ("Europe/Berlin", "1996-10-28"),
    ("Europe/Lisbon", "1992-09-28"),  # switches to the time of Berlin: puts its clocks back, and not
    ("Europe/Istanbul", "2016-09-08"),  # summer time for good
    ("Europe/Moscow", "2011-03-28"),
    ("Europe/Moscow", "2014-10-27"),
    ("Asia/Pyongyang", "2015-08-15"),  # half an hour back
    ("Asia/Pyongyang", "2018-05-05"),
    ("Asia/Kathmandu", "1986-01-01"),  # a quarter on
    ("Asia/Gaza", "2011-08-31"),  # four changes a year
    ("Africa/Casablanca", "2012-07-21"),
    ("Africa/Casablanca", "2026-03-23"),
    ("Africa/Cairo", "2014-09-26"),
    ("America/Caracas", "2007-12-10"),
    ("America/Recife", "2000-10-16"),  # a summer time of a week
    ("America/Sao_Paulo", "2018-11-05"),  # midnight comes never or twice
    ("America/Sao_Paulo", "2019-02-18"),
    ("America/New_York", "2007-11-05"),
    ("America/Argentina/San_Luis", "2009-03-16"),
    ("America/Nuuk", "2023-03-27"),
    ("Antarctica/Casey", "2018-03-12"),  # three hours
    ("Antarctica/Vostok", "1994-02-02"),  # seven
    ("Antarctica/Troll", "2027-03-29"),
    ("Australia/Lord_Howe", "1985-03-04"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Apia", "2011-12-31"),  # a day left out
    ("Pacific/Kwajalein", "1993-08-22"),
    ("Pacific/Norfolk", "2019-10-07"),
    ("UTC", "2000-02-29"),
    ("Asia/Kolkata", "2026-12-31"),
    ("Europe/London", "2099-10-26"),
]
# The same examples each time; shrinking would walk through the same minutes for minutes.
QUIETLY: dict[str, Any] = {
    "derandomize": True,
    "deadline": None,
    "database": None,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}


@dataclass(frozen=True)
class Column:
    """A field as text, and the numbers that the one who wrote it meant."""

    text: str
    numbers: frozenset[int]


@st.composite
def items(draw: st.DrawFn, low: int, high: int, names: list[str] | None = None) -> Column:
    def shown(number: int) -> str:
        return names[number - low] if names and draw(st.booleans()) else str(number)

    kind = draw(st.sampled_from(["number", "number", "range", "range/step", "number/step", "*/step"]))
    first = draw(st.integers(low, high - 1))
    if kind == "number":
        return Column(shown(first), frozenset({first}))
    last = draw(st.integers(first + 1, high)) if kind.startswith("range") else high
    if kind == "range":
        return Column(f"{shown(first)}-{shown(last)}", frozenset(range(first, last + 1)))
    if kind == "*/step":
        first = low
    step = draw(st.integers(1, last - first))
    begin = {"range/step": f"{shown(first)}-{shown(last)}", "number/step": str(first), "*/step": "*"}[kind]
    return Column(f"{begin}/{step}", frozenset(range(first, last + 1, step)))


def lists(low: int, high: int, names: list[str] | None = None) -> st.SearchStrategy[Column]:
    several = st.lists(items(low, high, names), min_size=1, max_size=3)
    return several.map(
        lambda found: Column(
            ",".join(item.text for item in found), frozenset().union(*(item.numbers for item in found))
        )
    )


def columns(low: int, high: int, names: list[str] | None = None, star: int = 1) -> st.SearchStrategy[Column]:
    """A field; the greater `star`, the more often it is `*`."""
    whole = st.just(Column("*", frozenset(range(low, high + 1))))
    return st.one_of(*[whole] * star, lists(low, high, names))


@dataclass(frozen=True)
class Written:
    """An expression, and what it means."""

    text: str
    matches: Callable[[datetime], bool]
    follows_real_time: bool


@st.composite
def expressions(draw: st.DrawFn) -> Written:
    minute = draw(columns(0, 59))
    hour = draw(columns(0, 23))
    day = draw(st.one_of(columns(1, 31, star=4), st.just(Column("L", frozenset({99})))))
    month = draw(columns(1, 12, MONTHS, star=4))
    weekday = draw(columns(0, 6, WEEKDAYS, star=4))
    if day.text != "L" and min(day.numbers) > max(monthrange(2024, number)[1] for number in month.numbers):
        month = Column("*", frozenset(range(1, 13)))  # otherwise it is refused

    def is_day(t: datetime) -> bool:
        by_month = t.day in day.numbers or (day.text == "L" and (t + timedelta(days=1)).day == 1)
        by_week = t.isoweekday() % 7 in weekday.numbers
        if "*" in (day.text, weekday.text):
            return by_month and by_week
        return by_month or by_week

    def matches(t: datetime) -> bool:
        if t.minute not in minute.numbers or t.hour not in hour.numbers or t.month not in month.numbers:
            return False
        return is_day(t)

    # A step of one day is every day, so it restricts nothing.
    if day.text == "*/1":
        day = Column("*", day.numbers)
    if weekday.text == "*/1":
        weekday = Column("*", weekday.numbers)
    text = " ".join([minute.text, hour.text, day.text, month.text, weekday.text])
    return Written(text, matches, hour.text == "*" or (hour.text.startswith("*/") and "," not in hour.text))


def test_no_slot_is_missed_or_repeated_and_none_is_in_the_past():
    tally: Counter[str] = Counter()

    @settings(max_examples=100, **QUIETLY)
    @given(
        written=expressions(),
        scene=st.sampled_from(SCENES),
        gap=st.sampled_from(get_args(Gap)),
        fold=st.sampled_from(get_args(Fold)),
        earlier=st.integers(490 * DAY_S, 510 * DAY_S),
        asked=st.lists(st.integers(-5 * DAY_S * 1000, 2 * DAY_S * 1000), min_size=5, max_size=5),
    )
    def holds(written: Written, scene: tuple[str, str], gap: Any, fold: Any, earlier: int, asked: list[int]) -> None:
        zone, day = scene
        change = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())
        start, end = change - 5 * DAY_S, change + 2 * DAY_S
        meant = Meant.by(written.matches, walk(zone, start - DAY_S, end + DAY_S))
        wanted = meant.real_time() if written.follows_real_time else meant.slots(gap, fold)
        offsets_of.cache_clear()
        crontab = parse(written.text, tz=zone, gap=gap, fold=fold)
        # The known offsets of a zone grow on demand; where they end must not matter.
        crontab.next_after((change - earlier) * 1000)

        assert slots.found(crontab, start, end) == slots.wanted(wanted, start, end)
        inside = [slot * 1000 for slot in wanted if start <= slot < end]
        for instant in (*(change * 1000 + at for at in asked), *inside[:20]):
            found = crontab.next_after(instant)
            assert found is None or found > instant
            later = bisect_right(inside, instant)
            assert found == inside[later] if later < len(inside) else found is None or found >= end * 1000
        assert all(early < late for early, late in pairwise(inside))
        tally["slots"] += len(inside)
        marks = meant.marks(fills_gaps=gap == "next" and not written.follows_real_time)
        for slot in inside[::5]:
            assert crontab.clock_change(slot) == marks.get(slot // 1000, "")
            tally["marked"] += slot // 1000 in marks
        tally["at a change"] += len(walk(zone, start, end).jumps) > 0

    holds()

    assert tally["slots"] >= 50_000
    assert tally["marked"] >= 50
    assert tally["at a change"] >= 50


def test_to_the_second_no_slot_is_missed_either():
    """Hours around a change, every second of them."""
    tally: Counter[str] = Counter()

    @settings(max_examples=60, **QUIETLY)
    @given(
        seconds=columns(0, 59),
        written=expressions(),
        zone=st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe"]),
        gap=st.sampled_from(get_args(Gap)),
        fold=st.sampled_from(get_args(Fold)),
        is_spring=st.booleans(),
    )
    def holds(seconds: Column, written: Written, zone: str, gap: Any, fold: Any, is_spring: bool) -> None:
        change = {
            ("Europe/Berlin", True): "2027-03-28T01:00+00:00",
            ("Europe/Berlin", False): "2027-10-31T01:00+00:00",
            ("Australia/Lord_Howe", True): "2027-10-02T15:30+00:00",
            ("Australia/Lord_Howe", False): "2027-04-03T15:00+00:00",
        }[zone, is_spring]
        at = int(datetime.fromisoformat(change).timestamp())
        walked = walk(zone, at - 2 * HOUR_S, at + 2 * HOUR_S, 1)
        assert len(walked.jumps) == 1
        meant = Meant.by(lambda t: t.second in seconds.numbers and written.matches(t), walked)
        wanted = meant.real_time() if written.follows_real_time else meant.slots(gap, fold)

        crontab, around = (
            parse(f"{seconds.text} {written.text}", tz=zone, gap=gap, fold=fold),
            (at - HOUR_S, at + HOUR_S),
        )
        assert slots.found(crontab, *around) == slots.wanted(wanted, *around)
        tally["slots"] += sum(at - HOUR_S <= slot < at + HOUR_S for slot in wanted)

    holds()

    assert tally["slots"] >= 5_000
