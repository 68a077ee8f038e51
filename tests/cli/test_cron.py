"""`schedq cron`: an expression in words and its slots, without Redis."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from freezegun import freeze_time

from schedq.schedules.crontab.crontab import parse
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDQ_REDIS_URL", "redis://127.0.0.1:1")


def test_it_says_what_an_expression_means_and_shows_its_slots(run: Run):
    said = run("cron", "30 2 * * MON-FRI", "--tz", "Europe/Berlin", "--from", "2026-01-01T00:00", "-n", "2")

    assert said.lines == [
        "at 02:30 on Monday to Friday, Europe/Berlin",
        "Times that a clock change skips: one slot at the first minute after them. Times that it repeats: the first "
        "time only.",
        "",
        "LOCAL                    OFFSET  UTC",
        "Thu 2026-01-01 02:30:00  +01:00  2026-01-01 01:30:00",
        "Fri 2026-01-02 02:30:00  +01:00  2026-01-02 01:30:00",
    ]


def test_gaps_and_folds_are_marked(run: Run):
    berlin = ("cron", "30 2 * * *", "--tz", "Europe/Berlin")

    spring = run(*berlin, "--from", "2026-03-28T12:00", "-n", "2").lines[-2:]
    autumn = run(*berlin, "--from", "2026-10-24T12:00", "-n", "2", "--fold", "both").lines[-2:]
    hourly = run("cron", "@hourly", "--tz", "Europe/Berlin", "--from", "2026-10-25T01:30", "-n", "3").lines[-3:]

    assert spring == [
        "Sun 2026-03-29 03:00:00  +02:00  2026-03-29 01:00:00  gap: replaces a local time that clocks skip",
        "Mon 2026-03-30 02:30:00  +02:00  2026-03-30 00:30:00",
    ]
    assert autumn == [
        "Sun 2026-10-25 02:30:00  +02:00  2026-10-25 00:30:00  fold: the first of two",
        "Sun 2026-10-25 02:30:00  +01:00  2026-10-25 01:30:00  fold: the second of two",
    ]
    assert hourly == [
        "Sun 2026-10-25 02:00:00  +02:00  2026-10-25 00:00:00  fold: the first of two",
        "Sun 2026-10-25 02:00:00  +01:00  2026-10-25 01:00:00  fold: the second of two",
        "Sun 2026-10-25 03:00:00  +01:00  2026-10-25 02:00:00",
    ]


def test_programs_get_a_list(run: Run):
    said = run(
        *("cron", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28T12:00Z", "-n", "2", "--gap", "skip"),
        "--json",
    )

    assert said.json == [
        {"utc": "2026-03-30T00:30:00+00:00", "local": "2026-03-30T02:30:00+02:00"},
        {"utc": "2026-03-31T00:30:00+00:00", "local": "2026-03-31T02:30:00+02:00"},
    ]


def test_ten_slots_from_now_on_are_shown_by_default(run: Run):
    with freeze_time("2026-05-05T11:59:30+00:00"):
        said = run("cron", "* * * * *", "--json")

    assert [slot["utc"] for slot in said.json] == [f"2026-05-05T12:{minute:02}:00+00:00" for minute in range(10)]


def test_a_time_without_offset_is_one_of_the_zone(run: Run):
    def first(start: str) -> str:
        words = ("cron", "0 * * * *", "--tz", "Asia/Kathmandu", "-n", "1", "--json", "--from", start)
        return str(run(*words).json[0]["local"])

    assert first("2026-01-01T08:59") == first("2026-01-01T03:14Z") == "2026-01-01T09:00:00+05:45"
    assert first("2026-01-01T09:00") == "2026-01-01T10:00:00+05:45"  # those after it
    assert first("2026-01-01") == "2026-01-01T01:00:00+05:45"


def test_seconds_and_hashes(run: Run):
    now = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    wanted = parse("H H H * *", schedule_id="report").next_after(now)
    assert wanted is not None

    hashed = run("cron", "H H H * *", "--id", "report", "--from", "2026-01-01", "-n", "1", "--json").json
    seconds = run("cron", "*/20 * * * * *", "--from", "2026-01-01", "-n", "3", "--json").json

    assert hashed[0]["utc"] == datetime.fromtimestamp(wanted / 1000, UTC).isoformat()
    assert [slot["utc"][17:19] for slot in seconds] == ["20", "40", "00"]


def test_an_expression_without_slots_is_reported(run: Run):
    words = ("cron", "30 2 * 3 L0", "--tz", "Europe/Berlin", "--gap", "skip", "--from", "2026-01-01")

    assert run(*words).lines[-1] == "No more slots within a hundred years."
    assert run(*words, "--json").json == []


MISTAKES = {
    ("0 25 * * *",): "cron expression '0 25 * * *', hour '25': 25 is not within 0-23",
    ("0 0 30 2 *",): "day of month '30': there is no such day",
    ("1-0 * * * *",): "minute '1-0': '1-0' goes backwards: write 1-59,0",
    ("*/99999 * * * *",): "minute '*/99999'",
    ("* * * *",): "has 4 fields; write 5",
    ("0", "3", "*", "*", "*"): "unexpected extra arguments",
    ("H * * * *",): "minute 'H': H is derived from the schedule's id",
    ("\x1b[31m * * * *",): "minute",
    ("@daily", "--tz", "Europe/Berln"): "there is no time zone 'Europe/Berln'; did you mean Europe/Berlin",
    ("@daily", "--from", "tomorrow"): "'tomorrow' is not a valid time; write 2027-03-28T01:30 (in UTC) or",
    ("@daily", "-n", "0"): "-n",
    ("@daily", "--gap", "first"): "--gap",
    ("@daily", "--fold", "next"): "--fold",
}


@pytest.mark.parametrize("words", MISTAKES, ids=lambda words: " ".join(words)[:40])
def test_a_mistake_is_one_line_that_points_at_it_and_exit_code_2(words: tuple[str, ...], run: Run):
    said = run("cron", *words)

    assert (said.code, said.out) == (2, "")
    assert said.complaint.startswith("schedq cron: ")
    assert MISTAKES[words] in said.complaint
    assert "\x1b" not in said.complaint
