"""Enqueues jobs for app.py, as a web application would: some now, some later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from demo.app import PICTURES, contact_sheet, deliver_webhook, queue, remind, resize


def main() -> None:
    """Enqueue one job of each kind, and wait for the pictures."""
    copies = [resize.enqueue(path.name, width=320) for path in sorted(PICTURES.glob("*.jpg"))]
    sheet = contact_sheet.enqueue()
    for order in range(1001, 1007):
        # Our own id makes this safe to repeat: while the job exists, enqueueing it again changes nothing.
        deliver_webhook.options(job_id=f"order-{order}").enqueue({"type": "order.paid", "order": order})
    remind.options(delay=5).enqueue("ada@example.org", "In five seconds", "This is the reminder you asked for.")
    at = datetime.now(UTC) + timedelta(seconds=10)
    remind.options(run_at=at).enqueue("ada@example.org", f"At {at:%H:%M:%S} UTC", "This is another one.")

    for job in [*copies, sheet]:
        print(job.result(timeout=60))
    print("left to do:", queue.stats()["delayed_depth"], "later,", queue.stats()["pending_depth"], "now")


if __name__ == "__main__":
    main()
