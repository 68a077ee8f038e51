"""Zones and calendars: facts from almanacs, all zones, long periods, and invalid names."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import pytest

from schedq import UsageError
from schedq.schedules.crontab.crontab import parse
from schedq.schedules.crontab.zones import Offsets, offsets_of
from schedq.schedules.fire import last_slot

DAY_S = 86_400
YEAR_MS = 365 * DAY_S * 1000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def local(slot: int, zone: str) -> str:
    return datetime.fromtimestamp(slot / 1000, ZoneInfo(zone)).isoformat().removesuffix(":00")


# expression, zone, policies, after → the slots that follow, from tables of clock changes
FACTS = [
    ("30 2 * * *", "Europe/Berlin", {}, "2026-03-28T03:00+01:00", ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]),
    ("30 2 * * *", "Europe/Berlin", {"gap": "skip"}, "2026-03-28T03:00+01:00", ["2026-03-30T00:30Z"]),
    ("30 2 * * *", "Europe/Berlin", {}, "2026-10-24T03:00+02:00", ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]),
    (
        *("30 2 * * *", "Europe/Berlin", {"fold": "second"}, "2026-10-24T03:00+02:00"),
        ["2026-10-25T01:30Z", "2026-10-26T01:30Z"],
    ),
    (
        *("30 2 * * *", "Europe/Berlin", {"fold": "both"}, "2026-10-24T03:00+02:00"),
        ["2026-10-25T00:30Z", "2026-10-25T01:30Z", "2026-10-26T01:30Z"],
    ),
    ("0 2,3 * * *", "Europe/Berlin", {}, "2026-03-29T00:00+01:00", ["2026-03-29T01:00Z", "2026-03-30T00:00Z"]),
    ("30 2 * * *", "America/New_York", {}, "2026-03-07T12:00Z", ["2026-03-08T07:00Z", "2026-03-09T06:30Z"]),
    ("30 1 * * *", "America/New_York", {}, "2026-10-31T12:00Z", ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]),
    # Lord Howe changes by half an hour: 02:00 to 02:30, 02:00 to 01:30
    ("15 2 * * *", "Australia/Lord_Howe", {}, "2026-10-03T00:00Z", ["2026-10-03T15:30Z", "2026-10-04T15:15Z"]),
    (
        "45 1 * * *",
        "Australia/Lord_Howe",
        {"fold": "both"},
        "2026-04-04T00:00Z",
        ["2026-04-04T14:45Z", "2026-04-04T15:15Z"],
    ),
    # Samoa had no 30 December 2011
    ("0 9 * * *", "Pacific/Apia", {}, "2011-12-29T20:00Z", ["2011-12-30T10:00Z", "2011-12-30T19:00Z"]),
    ("0 9 * * *", "Pacific/Apia", {"gap": "skip"}, "2011-12-29T20:00Z", ["2011-12-30T19:00Z", "2011-12-31T19:00Z"]),
    ("0 0 30 12 *", "Pacific/Apia", {}, "2011-01-01T00:00Z", ["2011-12-30T10:00Z", "2012-12-29T10:00Z"]),
    ("*/30 * * * *", "Pacific/Apia", {}, "2011-12-30T09:30Z", ["2011-12-30T10:00Z", "2011-12-30T10:30Z"]),
    # Turkey kept its summer time in 2016
    ("30 3 15 12 *", "Europe/Istanbul", {}, "2015-01-01T00:00Z", ["2015-12-15T01:30Z", "2016-12-15T00:30Z"]),
    # Liberia moved forward by 44.5 minutes in 1972; the first minute after the gap is not the first second
    ("10 0 * * *", "Africa/Monrovia", {}, "1972-01-06T12:00Z", ["1972-01-07T00:45Z", "1972-01-08T00:10Z"]),
    ("0 0 29 2 *", "UTC", {}, "2026-01-01T00:00Z", ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]),
    ("0 0 29 2 *", "UTC", {}, "2096-03-01T00:00Z", ["2104-02-29T00:00Z"]),
    ("0 12 * 2 MON#5", "UTC", {}, "2072-03-01T00:00Z", ["2112-02-29T12:00Z"]),
    ("0 0 L * *", "UTC", {}, "2027-12-15T00:00Z", ["2027-12-31T00:00Z", "2028-01-31T00:00Z", "2028-02-29T00:00Z"]),
    ("0 0 1 1 *", "Pacific/Kiritimati", {}, "2026-06-01T00:00Z", ["2026-12-31T10:00Z", "2027-12-31T10:00Z"]),
    ("59 23 31 12 *", "America/New_York", {}, "2026-06-01T00:00Z", ["2027-01-01T04:59Z", "2028-01-01T04:59Z"]),
    ("59 59 23 31 12 *", "UTC", {}, "2026-12-31T23:59:58Z", ["2026-12-31T23:59:59Z", "2027-12-31T23:59:59Z"]),
    ("0 0 * * *", "UTC", {}, "1969-01-01T00:00Z", ["1970-01-01T00:00Z", "1970-01-02T00:00Z"]),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact[0]} {fact[1]} {fact[2]}")
def test_slots_match_the_almanac(fact: tuple[str, str, dict[str, Any], str, list[str]]):
    expression, zone, policies, after, wanted = fact
    crontab = parse(expression, tz=zone, **policies)

    found = list(islice(crontab.between(ms(after), ms("2120-01-01T00:00Z")), len(wanted)))

    assert found == [ms(slot) for slot in wanted]


def test_the_long_day_has_25_hours_and_the_short_one_23():
    hourly = parse("0 * * * *", tz="Europe/Berlin")
    by_name = parse("0 0-23 * * *", tz="Europe/Berlin")

    autumn = ms("2026-10-24T23:59+02:00"), ms("2026-10-25T23:59+01:00")
    spring = ms("2026-03-28T23:59+01:00"), ms("2026-03-29T23:59+02:00")
    assert (hourly.count(*autumn), hourly.count(*spring)) == (25, 23)
    # 02:00 and 03:00 are one slot where the former is skipped
    assert (by_name.count(*autumn), by_name.count(*spring)) == (24, 23)


def test_the_instant_itself_is_past_and_the_millisecond_before_is_not():
    crontab = parse("0 12 * * *")
    noon = ms("2026-05-05T12:00Z")

    assert crontab.next_after(noon - 1) == noon
    assert crontab.next_after(noon) == noon + DAY_S * 1000
    assert list(crontab.between(noon - 1, noon)) == [noon]
    assert list(crontab.between(noon, noon + DAY_S * 1000 - 1)) == []
    assert list(crontab.between(noon + 1, noon)) == []
    assert crontab.count(noon + 1, noon) == 0


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Europe/Berlin", "America/Sao_Paulo"])
@pytest.mark.parametrize("expression", ["0 12 * * *", "30 2 * * SUN", "15 */6 1 * *", "0 0 1 1 *"])
def test_a_long_time_is_the_sum_of_its_parts(expression: str, zone: str):
    offsets_of.cache_clear()
    crontab = parse(expression, tz=zone)
    years = [ms("1990-06-01T00:00Z") + number * YEAR_MS for number in range(30)]

    whole = list(crontab.between(years[0], years[-1]))
    steps = list(islice(iter_from(crontab, years[0]), len(whole)))

    assert whole == sorted(set(whole)) == steps
    assert whole == [slot for early, late in pairwise(years) for slot in crontab.between(early, late)]
    assert crontab.count(years[0], years[-1]) == len(whole)
    assert sum(crontab.count(early, late) for early, late in pairwise(years)) == len(whole)
    if expression == "0 12 * * *":
        days = (years[-1] - years[0]) // (DAY_S * 1000)
        assert abs(len(whole) - days) <= 1
        assert {local(slot, zone)[11:16] for slot in whole} == {"12:00"}


def iter_from(crontab, instant: int) -> Iterator[int]:
    while (instant := crontab.next_after(instant)) is not None:
        yield instant


def test_an_expression_without_slots_is_none():
    never = parse("30 2 * 3 L0", tz="Europe/Berlin", gap="skip")  # the hour that each spring skips

    assert never.next_after(ms("2026-01-01T00:00Z")) is None
    assert never.count(ms("2026-01-01T00:00Z"), ms("2036-01-01T00:00Z")) == 0
    assert last_slot(never, ms("2026-01-01T00:00Z"), ms("2036-01-01T00:00Z")) is None


def test_time_ends_with_the_year_9999():
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"):
        crontab = parse("0 0 * * *", tz=zone)
        found = crontab.next_after(ms("9999-12-25T00:00Z"))
        assert found is not None
        assert crontab.next_after(ms("9999-12-31T23:59Z")) is None
        assert len(list(crontab.between(ms("9999-12-20T00:00Z"), ms("9999-12-31T23:59Z")))) in (7, 8)


# -- every zone there is


def file_of(zone: str) -> bytes:
    for folder in TZPATH:
        path = Path(folder, zone)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(zone).read_bytes()


def changes_in(data: bytes) -> list[tuple[int, int]]:
    """(instant, offset from then on) of each change of offset in a TZif file: RFC 8536, section 3, the second body."""

    def header(at: int) -> tuple[int, ...]:
        return struct.unpack(">6l", data[at + 20 : at + 44])

    utc, standard, leaps, times, types, letters = header(0)
    at = 44 + times * 5 + types * 6 + letters + leaps * 8 + standard + utc
    _, _, _, times, types, _ = header(at)
    at += 44
    instants = struct.unpack(f">{times}q", data[at : at + 8 * times])
    kinds = data[at + 8 * times : at + 9 * times]
    offsets = [struct.unpack(">l2B", data[at + 9 * times + 6 * n :][:6])[0] for n in range(types)]
    changes = [(instant, offsets[kind]) for instant, kind in zip(instants, kinds, strict=True)]
    before = [offsets[0], *(offset for _, offset in changes)]
    return [change for change, earlier in zip(changes, before, strict=False) if change[1] != earlier]


START_S, END_S = DAY_S, int(datetime(2037, 1, 1, tzinfo=UTC).timestamp())


@cache
def changes_of_all_zones() -> dict[str, list[tuple[int, int]]]:
    """By name; of several names of one zone, the first."""
    files = {file_of(zone): zone for zone in sorted(available_timezones() - {"localtime", "Factory"}, reverse=True)}
    return {
        zone: [change for change in changes_in(data) if START_S <= change[0] < END_S] for data, zone in files.items()
    }


def shortest(changes: list[tuple[int, int]]) -> int:
    return min([END_S, *(late - early for (early, _), (late, _) in pairwise(changes))])


def test_no_zone_changes_twice_within_six_days():
    """The fact that lookups every third day rely on."""
    zones = changes_of_all_zones()

    assert len(zones) > 100
    assert min(map(shortest, zones.values())) > 6 * DAY_S


def test_no_change_of_a_zone_is_overlooked():
    """Compared with the files: zones with changes close to each other and some others; SCHEDQ_ALL_ZONES=1: all."""
    step = 1 if "SCHEDQ_ALL_ZONES" in os.environ else 8
    for number, (zone, wanted) in enumerate(changes_of_all_zones().items()):
        if number % step and shortest(wanted) > 21 * DAY_S:
            continue
        offsets = Offsets(ZoneInfo(zone))
        found, position = [], START_S
        while position < END_S and (period := offsets.period(position)) is not None:
            if period.before != period.offset and START_S <= period.start < END_S and period.start == position:
                found.append((period.start, period.offset))
            position = period.end
        assert found == wanted, zone


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "did you mean Europe/Berlin"),
        ("europe/berlin", "did you mean Europe/Berlin"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("", "write a name such as UTC or Europe/Berlin"),
        ("../../etc/passwd", "write a name such as"),
        ("/etc/localtime", "no time zone"),
        ("a\0b", "no time zone"),
        ("x" * 5000, "write a name such as"),
        ("Europe", "no time zone"),
        ("localtime", "no time zone"),  # depends on the machine
        ("right/Europe/Berlin", "did you mean Europe/Berlin"),  # counts leap seconds
        ("+02:00", "no time zone"),
    ],
)
def test_an_unknown_zone_is_refused_with_similar_names(name: str, hint: str):
    with pytest.raises(UsageError, match="there is no time zone") as refused:
        parse("@daily", tz=name)

    assert hint in str(refused.value)
    assert "mean localtime" not in str(refused.value)
    assert len(str(refused.value)) < 250
