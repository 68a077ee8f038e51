"""`schedq forecast`: a bar chart of what is due."""

from __future__ import annotations

import re
import time

import pytest

from schedq import Queue
from tests.cli.conftest import Run
from tests.servers import Server

HOUR_S = 3600


def test_due_jobs_are_drawn_to_scale_and_the_busiest_minutes_are_named(run: Run, queue: Queue):
    base = int(time.time()) // HOUR_S * HOUR_S  # the hour that this test runs in, or the one before
    queue.enqueue_many(range(100), run_at=base + 5 * HOUR_S + 120)
    queue.enqueue_many(range(50), run_at=base + 9 * HOUR_S + 180)
    queue.enqueue_many(range(3), run_at=base + 200 * HOUR_S)
    queue.schedules.upsert("once", every=HOUR_S * 24 * 365, payload=1, start=base + 9 * HOUR_S + 240, max_runs=1)

    lines = run("forecast", "24h").lines

    assert lines[0] == "queue mail, the next 24 h: 150 delayed jobs, 1 slot of 1 schedule"
    assert lines[1].split()[:3] == ["from", "delayed", "slots"]
    bars = {line.split("  ")[0]: line for line in lines if "█" in line[20:] and re.match(r"\d{4}-", line)}
    assert [(line.count("█"), line.count("░")) for line in bars.values()] == [(50, 0), (25, 1)]
    at = lines.index("busiest minutes")
    rows = [line.split() for line in lines[at + 2 : at + 5]]
    assert [row[-3:] for row in rows] == [["100", "100", "0"], ["50", "50", "0"], ["1", "0", "1"]]
    assert rows[0][1] == time.strftime("%H:%M", time.localtime(base + 5 * HOUR_S + 120))
    assert lines[-1] == "3 delayed jobs due later"


def test_a_forecast_for_programs_has_raw_values(run: Run, queue: Queue):
    job_id = queue.enqueue(1, delay=HOUR_S)

    found = run("forecast", "2h", "--json").json

    assert (found["queue"], found["delayed"], found["slots"]) == ("mail", 1, 0)
    assert found["until_ms"] - found["now_ms"] == 2 * HOUR_S * 1000
    (bucket,) = [bucket for bucket in found["buckets"] if bucket["delayed"]]
    assert bucket["start_ms"] <= queue.get_job(job_id).run_at_ms < bucket["end_ms"]
    assert found["busiest"][0]["end_ms"] - found["busiest"][0]["start_ms"] == 60_000


def test_slots_that_the_bars_leave_out_are_reported(run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("schedq.inspect.forecast._MOST_COUNTED", 30)
    queue.schedules.upsert("rare", every=HOUR_S, payload=1)
    queue.schedules.upsert("often", every=60, payload=1)

    lines = run("forecast", "24h").lines

    assert lines[0] == "queue mail, the next 24 h: 0 delayed jobs, 1,464 slots of 2 schedules"
    assert lines[-1] == "the bars leave out 1,440 slots of 1 frequent schedule"


def test_an_empty_forecast_says_so(run: Run, queue: Queue):
    queue.enqueue(1)

    assert (
        run("forecast").lines
        == run("forecast", "24h").lines
        == ["queue mail, the next 24 h: 0 delayed jobs, 0 slots of 0 schedules"]
    )


def test_overdue_and_damaged_entries_are_noted(run: Run, queue: Queue, desk: Server):
    queue.schedules.upsert("torn", every=60, payload=1)
    queue.enqueue(1)
    with desk.client() as client:
        client.hset("queue:mail:schedule:torn", "every_ms", "soon")
        client.zadd("queue:mail:delayed", {"theirs": 1000})

    lines = run("forecast", "1h").lines

    assert "1 delayed job already due" in lines
    assert "unreadable: torn; see schedq schedules ls" in lines


@pytest.mark.parametrize(
    ("within", "says"),
    [
        ("59s", "within must be a minute to 31 days, got 59 s"),
        ("32d", "within must be a minute to 31 days, got 2,764,800 s"),
        ("1x", "'1x' is not a duration"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(run: Run, queue: Queue, within: str, says: str):
    queue.enqueue(1)

    said = run("forecast", within)

    assert (said.code, says in said.complaint) == (2, True), said.complaint
