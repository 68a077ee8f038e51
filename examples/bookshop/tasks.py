"""The queue and its tasks."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from bookshop.database import Base, Order, engine, get_session, outbox
from schedq import Depends, Queue


@contextmanager
def running() -> Iterator[None]:
    """What each worker does while it runs: it sends the jobs of the outbox to Redis."""
    Base.metadata.create_all(engine)
    with relay.running():
        yield


queue = Queue("bookshop", lifespan=running)
relay = outbox.relay(engine, [queue])


@queue.task(max_attempts=5, timeout=30)
def confirm(number: int, *, session: Session = Depends(get_session)) -> str:
    """Confirm an order. If an attempt fails, what it has written is rolled back."""
    order = session.get_one(Order, number)
    order.status = "confirmed"
    return f"mail to {order.customer}: order {number} is confirmed"


@queue.task
def ask_for_review(number: int, *, session: Session = Depends(get_session)) -> str:
    """Ask a customer, some days after the order, how the book was."""
    return f"mail to {session.get_one(Order, number).customer}: how was the book?"


@queue.task
async def send_catalog(address: str) -> str:
    """Send the catalog."""
    return f"catalog sent to {address}"
