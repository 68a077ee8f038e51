"""The application of the tests."""

from __future__ import annotations

from datetime import date

from schedq import Discard, Exponential, Queue, current_job

queue = Queue("shop", redis="redis://redis.shop.example")
sent: list[str] = []


@queue.task
def send(address: str, text: str = "Hello") -> str:
    """A plain task."""
    sent.append(f"{text}, {address}")
    return address


@queue.task(max_attempts=3, backoff=Exponential(base=10))
async def charge(order: int) -> str:
    """An async task that fails at first, and enqueues another one when it succeeds."""
    if order < 0:
        raise Discard(f"there is no order {order}")
    if current_job().attempts < 2:
        raise ConnectionError("the bank does not reply")
    await send.aenqueue(f"customer-{order}", "Paid")
    return f"order {order} is paid"


@queue.task
async def remind(order: int, when: date) -> str:
    """An async task with a typed argument."""
    return f"order {order} on {when:%d %B}"


@queue.cron("0 9 * * *")
def report() -> None:
    """A schedule."""
    sent.append("report")
