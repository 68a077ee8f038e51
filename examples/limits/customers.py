"""Fair shares: however much one customer enqueues, the next job of each other customer comes soon."""

from __future__ import annotations

from schedq import Queue

queue = Queue("exports")


@queue.task(key="customer", concurrency=10, key_concurrency=2)
def export(customer: str, month: int) -> None:
    """Write a month of a customer's data. At most ten run at the same time, and two of the same customer."""
    print(f"export of {customer}, month {month}")
