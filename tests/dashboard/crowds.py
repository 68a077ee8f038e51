"""Queues with something on each page."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from schedq import Progress, Rate
from schedq.model import outcome
from schedq.model.runs import RunWait, beginning
from schedq.transitions import run
from tests.inspect.scenes import report

FLOW: Final = "quarterly-report-of-everything-7"
RUN: Final = "order-17-of-a-customer-far-away"
BATCH: Final = "quarterly-reports-of-a-company-far-away"


def fail_all(queue: Any, count: int) -> None:
    queue.enqueue_many([{"n": n} for n in range(count)], max_attempts=1)
    while (job := queue.claim(timeout_ms=0)) is not None:
        queue.fail(job, f"smtp timeout after {job.attempts} s")


def recorded(queue: Any, job: Any, name: str, word: str = "ok", value: object = None, took_ms: int = 5) -> None:
    """Record an operation of a run."""
    now_ms = int(time.time() * 1000)
    memo = json.dumps([name.split("/")[-1].split()[0], word, value, now_ms - took_ms, now_ms, 1])
    queue._ask(run.step(queue.settings, job, name, memo))


def suspended(queue: Any) -> None:
    """A run that waits in a branch; the only job."""
    queue.enqueue({"task": "reports.quarterly.fulfil_an_order", "args": [17]}, job_id=RUN)
    job = queue.claim()
    job.run = beginning(1, job.claimed_at_ms, None)
    recorded(queue, job, "step charge", value={"receipt": "w" * 200})
    recorded(queue, job, "1.bank/step ask the other bank", "error", "ConnectionError: the bank is away " * 9, 20)
    recorded(queue, job, "1.mail/receive", "timeout", took_ms=10)
    waits = [RunWait("receive", "1.mail/receive#2", None, "verdict"), RunWait("sleep", "1.late/sleep", 1 << 42)]
    queue.settle(outcome.suspended(job, waits))


def flowing(queue: Any) -> None:
    """A flow with nodes in all states, which waits for one; the next job."""
    task = queue.task(lambda *_: None, name="reports.quarterly.extract", max_attempts=1)
    flow = queue.flow("quarterly-report-of-everything")
    good, bad = flow.call(task), flow.options(name="extract from the shop far away").call(task)
    flow.options(after=bad, name="a skipped one").call(task)
    lost = flow.options(name="the slow machine").call(task)
    flow.first(good, lost)
    runs = flow.options(after=good).map(task, [1, 2, 3])
    flow.options(after=[runs, bad], when="ended", name="clean up").call(task)
    flow.start(job_id=FLOW)
    job = queue.claim()
    job.run = beginning(1, job.claimed_at_ms, None, is_flow=True)
    recorded(queue, job, "plan")
    recorded(queue, job, "1.0/extract", took_ms=400)
    recorded(queue, job, "1.1/extract from the shop far away", "error", "ConnectionError: the shop is away " * 9, 20)
    recorded(queue, job, "1.4/first", value=0)
    recorded(queue, job, "1.3/the slow machine", "cancelled")
    queue.settle(outcome.suspended(job, [RunWait("map", "1.5/extract 2", None, "", "run-1")]))


def crowded(queue: Any) -> str:
    """A queue with something on each page; a failed job."""
    queue.purge()
    suspended(queue)
    flowing(queue)
    fail_all(queue, 3)
    queue.enqueue_many([{"task": "send_email", "args": ["ada@example.org", "w" * 300]}] * 3)
    queue.complete(queue.claim())
    queue.renew(queue.claim(), progress=Progress(123_456, 1_000_000, "rows of a long table " * 9))
    queue.enqueue({"kind": "later", "text": "x" * 200}, delay=1800)
    queue.schedules.upsert("nightly-report-of-everything", cron="0 3 * * *", task="report", tz="Europe/Berlin")
    queue.gates.set("payments-of-a-bank-far-away", concurrency=2, key_concurrency=1, key_rate=Rate(10, per=1))
    pay = queue.task(lambda customer: None, name="pay", gate="payments-of-a-bank-far-away", key="customer")
    pay.enqueue_many([((f"customer-{number}@a-company.example.org",), {}) for number in range(5)])
    queue.gates.pause("payments-of-a-bank-far-away", key="customer-3@a-company.example.org")
    with queue.batch(BATCH, pay) as batch:
        batch.add([f"customer-{number}@a-company.example.org" for number in range(3)])
    queue.cancel(next(job.id for job in queue.list_pending() if job.id.startswith(BATCH)))
    queue.promote_due()
    report(queue, "send_email", completed=900, failed=5, run_ms=[*range(1, 906)], late_ms=[0, 70_000])
    report(queue, "reports.quarterly." + "0" * 60, completed=1, run_ms=[60_000], late_ms=[0])
    return str(queue.list_failed()[0].id)
