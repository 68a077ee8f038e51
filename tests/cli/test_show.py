"""How times, durations, payloads and tables are shown, and what is escaped."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click
import pytest

from schedq.cli import output
from schedq.cli.params import DURATION, INSTANT
from schedq.inspect import display
from schedq.model import escaping
from schedq.model.times import span

NOW = 1_893_456_000_000  # 2030-01-01T00:00:00Z; in Berlin one o'clock
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (9949, "9.9 s"),
        (10_000, "10 s"),
        (59_999, "1 min"),
        (MINUTE, "1 min"),
        (61_000, "1 min 1 s"),
        (HOUR - 1, "1 h"),
        (HOUR - 31_000, "59 min 29 s"),
        (DAY - 500, "24 h"),
        (3 * HOUR + 12 * MINUTE, "3 h 12 min"),
        (47 * HOUR, "47 h"),
        (5 * DAY + 3 * HOUR, "5 d 3 h"),
        (400 * DAY, "400 d"),
    ],
)
def test_a_duration_reads_as_people_say_it(ms: int, text: str):
    assert span(ms) == text


@pytest.mark.parametrize(
    ("ms", "clock", "apart", "roughly"),
    [
        (NOW + 4 * MINUTE + 5000, "01:04:05", "in 4 min 5 s", "in 4 min"),
        (NOW - 30 * MINUTE, "00:30:00", "30 min ago", "30 min ago"),
        (NOW - 2 * HOUR, "2029-12-31 23:00", "2 h ago", "2 h ago"),
        (NOW, "01:00:00", "0 ms ago", "0 ms ago"),
        (NOW + 200 * DAY, "2030-07-20 02:00", "in 200 d", "in 200 d"),
        (0, "–", "–", "–"),
        (253_402_300_799_999, "never", "never", "never"),
    ],
)
def test_a_time_is_shown_as_local_time_and_distance(ms: int, clock: str, apart: str, roughly: str):
    assert (display.clock(ms, NOW), display.apart(ms, NOW), display.roughly(ms, NOW)) == (clock, apart, roughly)


def test_an_instant_in_full_has_day_milliseconds_and_offset():
    assert display.moment(NOW + 1234, NOW) == "2030-01-01 01:00:01.234 +0100 (in 1.2 s)"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("1.5", 1.5),
        ("5m", 300),
        ("5min", 300),
        ("1d12h", 129_600),
        ("1w2d3h4m5s6ms", 788_645.006),
        ("500ms", 0.5),
        ("1.5h", 5400),
    ],
)
def test_a_duration_is_typed_as_people_write_it(text: str, seconds: float):
    assert DURATION.convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2030-01-01T09:00", "2030-01-01T08:00:00+00:00"),
        ("2030-07-01T09:00:30", "2030-07-01T07:00:30+00:00"),
        ("2030-01-01 09:00", "2030-01-01T08:00:00+00:00"),
        ("2030-01-01", "2029-12-31T23:00:00+00:00"),
        ("2030-01-01T09:00+05:30", "2030-01-01T03:30:00+00:00"),
        ("2030-01-01T09:00:00Z", "2030-01-01T09:00:00+00:00"),
    ],
)
def test_an_instant_without_an_offset_is_local_time(text: str, utc: str):
    assert INSTANT.convert(text, None, None) == datetime.fromisoformat(utc)


@pytest.mark.parametrize("text", ["", "9:00", "now", "1893456000000", "0000-01-01T00:00", "9999-12-31T23:59:59-12:00"])
def test_an_invalid_time_is_refused(text: str):
    with pytest.raises(click.BadParameter, match="is not a valid time"):
        INSTANT.convert(text, None, None)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"task": "send", "args": ["ada", 1], "kwargs": {"cc": None}}, 'send("ada", 1, cc=null)'),
        ({"task": "send"}, "send()"),
        ({"task": "send", "more": 1}, '{"task": "send", "more": 1}'),
        (["ü", 1.5], '["ü", 1.5]'),
        (None, "null"),
    ],
)
def test_a_payload_reads_as_a_call_or_as_json(payload: Any, text: str):
    assert display.brief(payload) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("two\nlines\r", r"two\nlines\r"),
        ("[bold]ü[/bold] :smile:", "[bold]ü[/bold] :smile:"),
        ("\udcff\u202e", r"\udcff\u202e"),
    ],
)
def test_text_can_steer_no_terminal(text: str, shown: str, capsys: pytest.CaptureFixture[str]):
    assert escaping.harmless(text) == shown

    output.show(output.table(["id", "text"], [("1", text)]), output.facts([("text", text)]), output.heading(text))

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count(shown.partition("\\")[0]) >= 3


def test_an_id_is_never_cut_and_the_rest_fits_the_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")

    output.show(output.table(["id", "at", "payload"], [("x" * 64, "12:00:00", "y" * 300), ("short", "12:00:00", "z")]))

    out = capsys.readouterr().out
    assert "x" * 64 in out
    assert max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) == 3
