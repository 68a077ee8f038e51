"""The jobs of an order: charge it, then confirm or decline it. Each attempt has its own transaction."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

from orders import context
from orders.database import Order, Orders, lifespan
from schedq import AttemptFacts, CallNext, Depends, EnqueueFacts, Exponential, Queue, UsageError

log = logging.getLogger("orders")
queue = Queue("orders", lifespan=lifespan)


class DeclinedError(Exception):
    """The bank refuses the payment."""


class NoSuchOrderError(Exception):
    """The tenant has no such order."""


class Bank:
    """A stand-in for a payment provider. As with real ones, a key makes a repeated charge harmless."""

    def __init__(self) -> None:
        self.charged: dict[str, Decimal] = {}

    def charge(self, customer: str, amount: Decimal, key: str) -> None:
        """Take the money once.

        Raises:
            DeclinedError: the bank refuses.
            ConnectionError: the bank did not reply, and may have taken the money.
        """
        if customer.startswith("broke"):
            raise DeclinedError(f"{customer} has no money")
        if customer.startswith("slow") and key not in self.charged:
            self.charged[key] = amount
            raise ConnectionError("the bank did not reply")
        self.charged[key] = amount


bank = Bank()


def get_bank() -> Bank:
    """Return the bank. Tests replace this function."""
    return bank


@queue.before_enqueue
def add_context(job: EnqueueFacts) -> None:
    """Add the tenant and the request's id to each job. A job without a tenant is refused."""
    job.headers.setdefault("tenant", context.tenant.get())
    job.headers.setdefault("request_id", context.request_id.get())
    if not job.headers["tenant"]:
        raise UsageError(f"a job of {job.task} needs a tenant")


@queue.use
async def restore_context(attempt: AttemptFacts, call_next: CallNext) -> Any:
    """Set the tenant and the request's id of the job. Plain tasks see these variables in their thread."""
    headers = attempt.job.headers
    with context.working_for(headers.get("tenant", ""), headers.get("request_id", "")):
        return await call_next()


def then_confirm(attempt: AttemptFacts, status: str) -> None:
    """Enqueue the confirmation. The transaction of `charge` is committed by now, so the job can rely on it.

    If the worker dies and this is called again, the job's id keeps it from being enqueued twice.
    """
    number = attempt.job.payload["args"][0]
    if status == "charged":
        confirm.options(job_id=f"confirm-{number}", headers=attempt.job.headers).enqueue(number)


def then_decline(attempt: AttemptFacts, error: BaseException) -> None:
    """Enqueue a job that stores the reason, because the transaction of `charge` was rolled back."""
    number = attempt.job.payload["args"][0]
    decline.options(job_id=f"decline-{number}", headers=attempt.job.headers).enqueue(number, str(error))


@queue.task(
    max_attempts=5,
    backoff=Exponential(base=1, cap=60),
    timeout=30,
    discard_on=(DeclinedError, NoSuchOrderError),  # another attempt would not help
    on_success=then_confirm,
    on_failure=then_decline,
)
def charge(number: int, *, orders: Orders = Depends(Orders), bank: Bank = Depends(get_bank)) -> str:
    """Charge an order. If this fails, its changes to the database are rolled back."""
    order = existing(orders, number)
    if order.status == "new":
        order.status = "charged"
        bank.charge(order.customer, order.amount, key=f"order-{number}")
        log.info("order %d is charged", number)
    return order.status  # not always "charged": after an earlier attempt it may be "confirmed"


@queue.task(discard_on=NoSuchOrderError)
def decline(number: int, reason: str, *, orders: Orders = Depends(Orders)) -> None:
    """Store why an order was declined."""
    order = existing(orders, number)
    order.status, order.note = "declined", reason


@queue.task(discard_on=NoSuchOrderError)
def confirm(number: int, *, orders: Orders = Depends(Orders)) -> str:
    """Tell the customer."""
    order = existing(orders, number)
    order.status = "confirmed"
    return f"mail to {order.customer}: {order.amount:.2f} charged"


def existing(orders: Orders, number: int) -> Order:
    """Return the tenant's order.

    Raises:
        NoSuchOrderError: the tenant has no such order.
    """
    order = orders.get(number, context.tenant.get())
    if order is None:
        raise NoSuchOrderError(f"tenant {context.tenant.get()} has no order {number}")
    return order
