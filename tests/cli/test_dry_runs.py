"""`schedules ... --dry-run` says what would change, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schedq import Queue
from tests.cli.conftest import Run
from tests.doors import contents
from tests.servers import Server

CODE = """
from schedq import Queue

queue = Queue("mail", redis={url!r})


@queue.cron("0 4 * * *", id="nightly")
def nightly(): ...


@queue.cron("0 5 * * *", id="new")
def new(): ...
"""


@pytest.fixture
def unchanged(desk: Server, queue: Queue) -> Iterator[Queue]:
    """A queue with two schedules, one of them paused, whose data a test may not change."""
    queue.schedules.upsert("nightly", cron="0 3 * * *", task="send", args=[1])
    queue.schedules.upsert("stopped", every=3600, task="send")
    queue.schedules.pause("stopped")
    with desk.client() as client:
        before = contents(client)
        yield queue
        assert contents(client) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("pause nightly", "nightly: would be paused"),
        ("pause stopped", "stopped: is already paused"),
        ("resume nightly", "nightly: is not paused"),
        ("resume stopped", "stopped: would be resumed; next slot 20"),
        ("trigger nightly", "nightly: would be triggered: send(1)"),
        ("rm nightly", "nightly: would be deleted: "),
        ("update nightly --cron 0=3=*=*=*", "nightly: would stay as it is"),
    ],
)
def test_it_says_what_would_be_done(words: str, says: str, run: Run, unchanged: Queue):
    said = run("schedules", *(word.replace("=", " ") for word in words.split()), "--dry-run").lines

    assert said[0].startswith(says)


def test_an_update_lists_old_and_new_values(run: Run, unchanged: Queue):
    said = run("schedules", "update", "nightly", "--cron", "30 4 * * *", "--args", "[2]", "--dry-run").lines
    found = run("schedules", "update", "nightly", "--tz", "Europe/Berlin", "--dry-run", "--json").json

    assert said[0] == "nightly: would be changed"
    assert "  cron: 0 3 * * * → 30 4 * * *" in said
    assert any(line.startswith("  payload: ") and "[1]" in line and "[2]" in line for line in said)
    assert said[-1].startswith("  next slot: 20")
    assert found["changes"] == {"tz": {"old": "UTC", "new": "Europe/Berlin"}}
    assert (found["result"], found["dry_run"]) == ("changed", True)


def test_an_invalid_change_is_refused_as_without_a_dry_run(run: Run, unchanged: Queue):
    said = run("schedules", "update", "nightly", "--cron", "61 * * * *", "--dry-run")

    assert (said.code, "61" in said.complaint) == (2, True)
    assert run("schedules", "pause", "nowhere", "--dry-run").code == 1


def test_a_backfill_counts_the_slots_without_a_job(run: Run, queue: Queue):
    queue.schedules.upsert("hourly", every=3600, payload=1, start=1704067200)
    period = ["--from", "2024-02-01T00:00Z", "--to", "2024-02-01T09:30Z"]
    queue.enqueue(1, job_id="hourly-1706745600000")  # the first slot

    dry = run("schedules", "backfill", "hourly", *period, "--dry-run", "--json").json

    assert (dry["slots"], dry["enqueued"], dry["dry_run"]) == (10, 9, True)
    assert queue.stats()["pending_depth"] + queue.stats()["delayed_depth"] == 1


def test_the_code_is_compared_with_what_is_stored(
    run: Run, unchanged: Queue, desk: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "dry_app.py").write_text(CODE.format(url=desk.own_url))

    said = run("schedules", "upsert", "dry_app:queue", "--app-dir", str(tmp_path), "--dry-run").lines

    assert said[:2] == ["new: would be created", "nightly: would be changed"]
    assert "queue mail: the code has 2 schedules" in said
