"""The script of the page about APScheduler moves the jobs of a real job store."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schedq import Queue
from scripts.tools.handbook import all_blocks
from tests.pages import ROOT, page
from tests.servers import Server

pytest.importorskip("apscheduler", reason="APScheduler is not installed")
pytestmark = pytest.mark.processes

Run = Callable[[str], list[str]]
OLD_APP = "def remind(who): ...\ndef report(): ...\n"
APP = """
from schedq import Queue

queue = Queue({name!r}, redis={url!r})

@queue.task
def remind(who: str) -> None: ...

@queue.task
def report() -> None: ...
"""
STORE = """
import os
from datetime import UTC, datetime, timedelta
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from old_app import remind, report

now = datetime.now(UTC)
scheduler = BackgroundScheduler(timezone="UTC", jobstores={"default": SQLAlchemyJobStore(url="sqlite:///jobs.sqlite")})
scheduler.add_executor("threadpool", "slow")
scheduler.start(paused=True)
minutely = dict(id="minutely", coalesce=False, misfire_grace_time=None, next_run_time=now - timedelta(hours=3))
scheduler.add_job(report, "cron", second=0, jitter=20, **minutely)
scheduler.add_job(remind, "date", run_date=now + timedelta(hours=1), id="date", args=["ada"])
scheduler.add_job(remind, "cron", year=now.year + 1, id="year", args=["bob"])
scheduler.add_job(remind, "interval", minutes=5, id="slow", args=["cy"], executor="slow")
os._exit(0)  # `shutdown` would run what is due
"""
REPLACE = """
from app import queue, remind

queue.cancel("date")
remind.options(delay=60, job_id="date", reuse_id=True).enqueue("eve")
"""


@pytest.fixture
def run(tmp_path: Path, server: Server) -> Iterator[tuple[Run, Queue]]:
    """Runs a program next to the old and the new application and returns its lines; and the new one's queue."""
    name = f"moves-{uuid.uuid4().hex[:8]}"
    (tmp_path / "old_app.py").write_text(OLD_APP)
    (tmp_path / "app.py").write_text(APP.format(name=name, url=server.unix_url))

    def run(program: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with Queue(name, redis=server.unix_url) as queue:
        yield run, queue
        queue.purge()


def test_a_repeated_move_from_apscheduler_adds_nothing_and_goes_on_after_a_conflict(run: tuple[Run, Queue]):
    program, queue = run
    (move,) = [block.code for block in all_blocks(page("from-apscheduler.md")) if "# Fragment: move.py" in block.code]
    program(STORE)

    first = {line.split()[0]: line for line in program(move)}
    missed = {job.id for job in queue.list_pending(limit=1000)}
    program(REPLACE)
    again = {line.split()[0]: line for line in program(move)}

    assert first["date"].startswith("date -> date moved old_app:remind date[")
    assert "is left out, because no cron expression means cron[year=" in first["year"]
    assert "is left out, because TASKS lacks its function, or QUEUES its executor slow:" in first["slow"]
    assert "old_app:remind cron[year=" in first["year"]
    assert "('bob',) {} due" in first["year"]
    assert "is left out, because job date of queue" in again["date"]
    assert "('ada',)" in again["date"]
    assert again["minutely"] == first["minutely"]
    assert len(missed) > 100
    assert {job.id for job in queue.list_pending(limit=1000)} == missed
    assert [job.payload["args"] for job in queue.list_delayed()] == [["eve"]]
