"""On 80 columns texts are cut, and times and figures are not."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from schedq import Discard, Queue
from schedq.cli.top.render import Curve
from tests.cli.conftest import Run
from tests.cli.scenes import beat
from tests.inspect.scenes import report

WHEN = r"(?:\d\d:\d\d:\d\d|20\d\d-\d\d-\d\d \d\d:\d\d)"
"""An instant of today, or of another day: the suite may run at midnight."""
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"


@pytest.fixture
def crowded(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue with long texts everywhere."""
    monkeypatch.setenv("COLUMNS", "80")
    long = "a text that goes on and on " * 10
    report(queue, "send_email_to_everybody", failed=1, retried=1, run_ms=[90_000, 5], late_ms=[123_456])
    for n in range(4):
        queue.enqueue({"task": "send_email_to_everybody", "args": [long, n]}, job_id=f"job-{n:04}", max_attempts=2)
    job = queue.claim(0)
    assert job is not None
    queue.fail(job, long)
    other = queue.claim(0)
    assert other is not None
    queue.fail(other, Discard(long))
    queue.claim(0)
    queue.enqueue({"task": "later", "args": [long]}, delay=1000)
    queue.schedules.upsert("nightly-report-of-everything", cron="0 3 * * *", task="x", tz="Europe/Berlin", args=[long])
    return queue


def test_no_line_is_longer_and_no_time_is_cut(run: Run, crowded: Queue):
    timeline = run("job", "job-0000").out.partition("timeline")[2].splitlines()[2:]

    assert timeline
    for line in timeline:
        assert re.match(rf"{TIME}  \w", line), line
        assert len(line) <= 80


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("jobs mail --state pending", rf"job-0003  {WHEN}  [\d.]+ m?s ago"),
        ("jobs mail --state delayed", rf"  {WHEN}  in 16 min  "),
        ("jobs mail --state failed", rf"job-0001  {WHEN}  [\d.]+ m?s ago"),
        ("jobs mail --state processing", r"job-0002  [\d.]+ m?s ago"),
        ("schedules ls mail", r"nightly-report-of-everything  0 3 \* \* \*  20\d\d-\d\d-\d\d 03:00 \+0\d:00  –"),
        ("schedules next nightly-report-of-everything", r"03:00:00  \+0\d:00  20\d\d-\d\d-\d\d 0\d:00:00"),
        ("forecast 24h", r"20\d\d-\d\d-\d\d \d\d:\d\d +\d+ +\d+"),
        ("top mail --once", r"next due +in [\d.]+ \w+"),
        ("top mail --once", r"start late by +\d.*  of\b|start late by +\d"),
        ("top mail --once", r"completed +0 +0  "),
        ("tasks mail", r"^send_.* 90\.0 s +2 min$"),
        ("forecast 20m", r" █{30,}$"),
    ],
)
def test_times_and_figures_are_whole(command: str, expected: str, run: Run, crowded: Queue):
    lines = run(*command.split()).lines

    assert any(re.search(expected, line) for line in lines), lines
    assert all(len(line) <= 80 for line in lines if not line.startswith(("next page", "{"))), lines


@pytest.mark.parametrize("command", ["schedules ls mail", "jobs mail --state delayed"])
def test_a_pipe_gets_whole_texts(command: str, run: Run, crowded: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COLUMNS")

    text = run(*command.split()).out

    assert re.search(r"(?:x|later +0 +)\(\"(a text that goes on and on ){5}", text), text
    assert "…" not in text


@pytest.mark.parametrize("columns", ["", "80"])
def test_a_table_in_a_pipe_is_not_endless(columns: str, run: Run, crowded: Queue, monkeypatch: pytest.MonkeyPatch):
    job = crowded.claim(0)
    assert job is not None
    crowded.fail(job, Discard("a text without end " * 1000))
    monkeypatch.delenv("COLUMNS")
    if columns:
        monkeypatch.setenv("COLUMNS", columns)

    lines = run("jobs", "mail", "--state", "failed").lines

    assert max(map(len, lines)) == int(columns or 400)


def test_top_cuts_neither_alarms_nor_the_times_of_workers(run: Run, crowded: Queue):
    crowded.pause()
    beat(crowded, "reports-7d4b9c6f5", running=1)

    lines = run("top", "mail", "--once").lines

    assert re.fullmatch(r"PAUSED [\d.]+ m?s ago   NO PROMOTER: due jobs stay delayed", lines[1])
    assert any(re.match(rf"reports-7d4b9c6f5  1 of 10 +{WHEN} +[\d.]+ m?s ago", line) for line in lines), lines


@pytest.mark.parametrize(("width", "bars"), [(120, "▄" * 59 + "█"), (80, "▄" * 29 + "█")])
def test_a_narrow_curve_has_fewer_bars_and_ends_with_the_latest(width: int, bars: str):
    paper = Console(width=width, file=io.StringIO())

    paper.print(Curve([50.0] * 59 + [100.0]))

    assert paper.file.getvalue() == f"completed/s, 10 min: {bars}  at most 100\n"  # type: ignore[attr-defined]


def test_top_shows_all_time_totals_next_to_the_number_of_kept_records(run: Run, queue: Queue):
    queue.enqueue(1)
    job = queue.claim(0)
    assert job is not None
    queue.complete(job)
    queue.purge()

    assert any(re.match(r"completed +0 +1\b", line) for line in run("top", "mail", "--once").lines)
