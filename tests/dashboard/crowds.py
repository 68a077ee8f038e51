"""Queues with something on each page."""

from __future__ import annotations

from typing import Any, Final

from schedq import Progress, Rate
from tests.inspect.scenes import report

BATCH: Final = "quarterly-reports-of-a-company-far-away"


def fail_all(queue: Any, count: int) -> None:
    queue.enqueue_many([{"n": n} for n in range(count)], max_attempts=1)
    while (job := queue.claim(timeout_ms=0)) is not None:
        queue.fail(job, f"smtp timeout after {job.attempts} s")


def crowded(queue: Any) -> str:
    """A queue with something on each page; a failed job."""
    queue.purge()
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
