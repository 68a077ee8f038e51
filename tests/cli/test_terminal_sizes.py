"""Lists on a real terminal: on 80x24 texts are cut but times are whole, and a wide one has room for everything."""

from __future__ import annotations

import json
import re
import time

import pytest

from schedq import Discard, Queue
from tests.cli.scenes import beat, claimed
from tests.cli.screens import on_terminal, plain

pytestmark = pytest.mark.processes
WHEN = r"(?:\d\d:\d\d:\d\d|20\d\d-\d\d-\d\d \d\d:\d\d)"
AGO = r"(?:in )?[\d.]+ \w+(?: ago)?"
TEXT = "a text that is long " * 20


@pytest.fixture
def busy(queue: Queue) -> Queue:
    """A queue with long texts everywhere, and jobs with generated ids."""

    @queue.task
    def send_email(text: str, number: int = 0) -> None: ...

    for n in range(4):
        queue.enqueue({"task": "send_email", "args": [TEXT, n]})
    queue.fail(claimed(queue), Discard(TEXT))
    queue.complete(claimed(queue), TEXT)
    queue.claim(0)
    queue.enqueue({"task": "send_email", "args": [TEXT, 5]}, delay=86_400 * 3)
    queue.schedules.upsert("nightly-report-of-everything", cron="0 3 * * *", task="x", tz="Europe/Berlin", args=[TEXT])
    jobs = [{"id": "01k8hnuder000p3t0vn97m0km9", "task": "send_email", "started_at_ms": int(time.time() * 1000) - 5000}]
    beat(
        queue,
        "reports-7d4b9c6f5-4711-k3x9ab",
        running=1,
        jobs=json.dumps(jobs),
        host="reports-7d4b9c6f5",
        workflows='["send_email"]',
    )
    queue.gates.set("api-of-the-partner", concurrency=10)
    with queue.batch("a-batch-with-a-long-name-2027-03", send_email) as batch:
        batch.add([TEXT])
    return queue


SHOWN = {
    "jobs mail --state pending": rf"^\w{{26}} +{WHEN} +{AGO} +send",
    "jobs mail --state delayed": rf"^\w{{26}}  {WHEN} +in [23] d +send",
    "jobs mail --state processing": rf"^\w{{26}}  {AGO} +send",
    "jobs mail --state completed": rf"^\w{{26}}  {WHEN} +{AGO} +[\d.]+ m?s +send",
    "jobs mail --state failed": rf"^\w{{26}}  {WHEN} +{AGO} +.*send",
    "schedules ls mail": r"^nightly-report-of-everything  0 3 \* \* \*.* 20\d\d-\d\d-\d\d 03:00 \+0\d:00  –",
    "workers mail": r"01k8hnuder000p3t0vn97m0km9  send_email +\S+ +[\d.]+ m?s",
    "stats": r"^mail +\d+ +\d+ +\d+ +\d+ +\d+ +in [23] d",
    "stats mail": r"next due +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+0\d00 \(in [^)]+\)",
    "batches ls mail": r"^a-batch-with-a-long-name-2027-03 ",
    "workflows ls mail": r"^\w{26} +delayed +sen.* 0 .*[\d.]+ m?s\b",
    "gates ls mail": r"^api-of-the-partner +0 +0 +0 +0 of 10",
}


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
@pytest.mark.parametrize("command", SHOWN)
def test_times_are_whole(command: str, columns: int, lines: int, busy: Queue):
    shown = plain(on_terminal(*command.split(), columns=columns, lines=lines))

    assert any(re.search(SHOWN[command], line) for line in shown), "\n".join(shown)
    assert max(map(len, shown)) <= columns or command == "workers mail"  # whose first line of a worker may wrap
