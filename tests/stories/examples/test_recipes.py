"""The recipes of the handbook do in a worker what the page says, with the real libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schedq import Queue
from scripts.tools.handbook import all_blocks
from tests.pages import ROOT, page
from tests.servers import Server

pytestmark = pytest.mark.processes

Run = Callable[[str], Any]
PLACE = 'Queue("shop", redis="embedded://data")'
WORK = """
import asyncio, json, sys
from app import pay, queue, refund, ship
from schedq import Discard, Fixed, Retry, Worker

def work():
    asyncio.run(Worker([queue], burst=True).run())

def tell(found):
    print(json.dumps(found))
"""
SENTRY = """
import sentry_sdk
from sentry_sdk.transport import Transport

import monitored

events = []

class Kept(Transport):
    def capture_envelope(self, envelope):
        events.append(envelope.get_event() or envelope.get_transaction_event())

def init():
    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=Kept, traces_sample_rate=1.0)

def errors():
    return [event for event in events if "exception" in event]
"""


@pytest.fixture
def run(tmp_path: Path, server: Server) -> Iterator[Run]:
    """Runs a program next to the files that the page says to save, and returns what it reported."""
    name = f"recipes-{uuid.uuid4().hex[:8]}"
    for block in all_blocks(page("recipes.md")):
        if block.path:
            assert (block.path != "app.py") or PLACE in block.code
            code = block.code.replace(PLACE, f"Queue({name!r}, redis={server.unix_url!r})")
            (tmp_path / block.path).write_text(code)

    def run(program: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", WORK + program],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    yield run
    with Queue(name, redis=server.unix_url) as queue:
        queue.purge()


def test_a_request_id_is_on_the_lines_of_its_job_and_of_the_jobs_that_this_enqueues(run: Run):
    found = run("""
import io, logging
from request_ids import RequestId, request_id

lines = io.StringIO()
handler = logging.StreamHandler(lines)
handler.addFilter(RequestId())
handler.setFormatter(logging.Formatter("%(request_id)s %(message)s"))
logging.getLogger("shop").addHandler(handler)
for number in (1, 2):
    request_id.set(f"r-{number}")
    pay.enqueue(number)
request_id.set("")
ship.enqueue(3)
work()
tell(sorted(lines.getvalue().splitlines()))
""")

    assert found == [
        "- order 3 has left",
        "r-1 order 1 has left",
        "r-1 order 1 is paid",
        "r-2 order 2 has left",
        "r-2 order 2 is paid",
    ]


def test_a_worker_that_imports_the_recipe_logs_the_id_when_a_job_fails(run: Run, tmp_path: Path):
    run("""
import request_ids
request_ids.request_id.set("r-1")
tell(refund.enqueue(17).id)
""")

    words = ("--import", "request_ids", "--burst", "--log-format", "json", "--log-header", "request_id")
    done = subprocess.run(
        [sys.executable, "-m", "schedq", "worker", "app:queue", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    (line,) = [found for found in map(json.loads, done.stderr.splitlines()) if found["level"] == "error"]
    assert (line["request_id"], line["task"]) == ("r-1", "refund")
    assert line["error"] == "ValueError: order 17 was never paid"


def test_structlog_has_its_variables_in_async_handlers_and_in_the_threads_of_plain_ones(run: Run):
    found = run("""
import structlog, structured
from structlog.testing import capture_logs

@queue.task
async def on_the_loop():
    structlog.get_logger().info("one")

@queue.task
def in_a_thread():
    structlog.get_logger().info("two")

jobs = [task.options(headers={"tenant": "acme"}).enqueue().id for task in (on_the_loop, in_a_thread)]
with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
    work()
tell([jobs, sorted(lines, key=lambda line: line["event"]), structlog.contextvars.get_contextvars()])
""")

    jobs, lines, left = found
    common = {"log_level": "info", "attempt": 1, "tenant": "acme"}
    assert lines == [
        common | {"event": "one", "task": "on_the_loop", "job_id": jobs[0]},
        common | {"event": "two", "task": "in_a_thread", "job_id": jobs[1]},
    ]
    assert left == {}


def test_sentry_gets_each_attempt_that_fails_once(run: Run):
    events, jobs = run(
        SENTRY
        + """
@queue.task(max_attempts=2, backoff=Fixed(0))
async def breaks():
    raise LookupError("no")

@queue.task(max_attempts=1)
def breaks_in_a_thread():
    raise LookupError("no")

init()
jobs = [breaks.options(headers={"tenant": "acme"}).enqueue().id, breaks_in_a_thread.enqueue().id]
work()
tell([errors(), jobs])
"""
    )

    found = sorted((event["tags"]["task"], event["contexts"]["job"]["attempt"]) for event in events)
    assert found == [("breaks", 1), ("breaks", 2), ("breaks_in_a_thread", 1)]
    assert {event["tags"]["job_id"] for event in events} == set(jobs)
    assert {event["exception"]["values"][0]["type"] for event in events} == {"LookupError"}
    (first,) = [event for event in events if event["contexts"]["job"]["attempt"] == 2]
    assert first["contexts"]["job"]["headers"]["tenant"] == "acme"


def test_sentry_gets_no_attempt_that_ends_as_its_handler_wants(run: Run):
    found = run(
        SENTRY
        + """
@queue.task(max_attempts=1)
def retries():
    raise Retry(after=0)

@queue.task
def discards():
    raise Discard("no")

init()
for task in (retries, discards):
    task.enqueue()
ship.enqueue(1)
work()
tell(errors())
"""
    )

    assert found == []


def test_without_the_recipe_sentry_gets_the_last_failure_of_a_job(run: Run):
    events, job_id = run(
        SENTRY.replace("import monitored", "")
        + """
@queue.task(max_attempts=2, backoff=Fixed(0))
def breaks():
    raise LookupError("no")

init()
job = breaks.enqueue()
work()
tell([errors(), job.id])
"""
    )

    (event,) = events
    assert event["exception"]["values"][0]["type"] == "LookupError"
    assert (event["extra"]["job_id"], event["extra"]["task"], event["extra"]["attempt"]) == (job_id, "breaks", 2)


def test_an_attempt_is_a_transaction_in_the_trace_of_what_enqueued_it(run: Run):
    events, trace = run(
        SENTRY
        + """
init()
with sentry_sdk.start_transaction(op="http.server", name="request") as request:
    ship.enqueue(17)
work()
tell([[event for event in events if event.get("type") == "transaction"], request.trace_id])
"""
    )

    assert [event["transaction"] for event in events] == ["request", "ship"]
    assert [event["contexts"]["trace"]["trace_id"] for event in events] == [trace] * 2
    assert events[1]["contexts"]["trace"]["op"] == "queue.process"
