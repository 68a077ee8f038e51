"""What happens to an order after it was taken. Each attempt has a transaction of its own."""

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
    """The bank does not pay."""


class NoSuchOrderError(Exception):
    """The tenant has no such order."""


class Bank:
    """A stand-in for a payment provider. The key makes a repeated charge harmless, as such providers offer it."""

    def __init__(self) -> None:
        self.charged: dict[str, Decimal] = {}

    def charge(self, customer: str, amount: Decimal, key: str) -> None:
        """Take the money once.

        Raises:
            DeclinedError: it will not.
            ConnectionError: it may have.
        """
        if customer.startswith("broke"):
            raise DeclinedError(f"{customer} has no money")
        if customer.startswith("slow") and key not in self.charged:
            self.charged[key] = amount
            raise ConnectionError("the bank did not reply")
        self.charged[key] = amount


bank = Bank()


def get_bank() -> Bank:
    """Replaced in tests."""
    return bank


@queue.before_enqueue
def add_context(job: EnqueueFacts) -> None:
    """Every job says for whom it is; one that doesn't is refused where it is made."""
    job.headers.setdefault("tenant", context.tenant.get())
    job.headers.setdefault("request_id", context.request_id.get())
    if not job.headers["tenant"]:
        raise UsageError(f"a job of {job.task} needs a tenant")


@queue.use
async def restore_context(attempt: AttemptFacts, call_next: CallNext) -> Any:
    """Work for the tenant of the job. Plain tasks see these variables in their thread."""
    headers = attempt.job.headers
    with context.working_for(headers.get("tenant", ""), headers.get("request_id", "")):
        return await call_next()


def then_confirm(attempt: AttemptFacts, status: str) -> None:
    """The transaction of `charge` is committed now, so a job may rely on it. Its id makes a repeated call harmless."""
    number = attempt.job.payload["args"][0]
    if status == "charged":
        confirm.options(job_id=f"confirm-{number}", headers=attempt.job.headers).enqueue(number)


def then_decline(attempt: AttemptFacts, error: BaseException) -> None:
    """The transaction of `charge` was rolled back, so another job notes why."""
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
    """Charge an order. What it writes is rolled back if it fails."""
    order = existing(orders, number)
    if order.status == "new":
        order.status = "charged"
        bank.charge(order.customer, order.amount, key=f"order-{number}")
        log.info("order %d is charged", number)
    return order.status  # an earlier attempt may have got further


@queue.task(discard_on=NoSuchOrderError)
def decline(number: int, reason: str, *, orders: Orders = Depends(Orders)) -> None:
    """Note why an order is not carried out."""
    order = existing(orders, number)
    order.status, order.note = "declined", reason


@queue.task(discard_on=NoSuchOrderError)
def confirm(number: int, *, orders: Orders = Depends(Orders)) -> str:
    """Tell the customer."""
    order = existing(orders, number)
    order.status = "confirmed"
    return f"mail to {order.customer}: {order.amount:.2f} charged"


def existing(orders: Orders, number: int) -> Order:
    """The tenant's order.

    Raises:
        NoSuchOrderError: there is none.
    """
    order = orders.get(number, context.tenant.get())
    if order is None:
        raise NoSuchOrderError(f"tenant {context.tenant.get()} has no order {number}")
    return order
