"""The site's background tasks. Nothing in here depends on schedq."""

import asyncio

from django.utils.translation import get_language

from shop.models import Order

try:
    from django.tasks import TaskContext, task
    from django.tasks.exceptions import TaskResultDoesNotExist
except ImportError:
    from django_tasks import TaskContext, task
    from django_tasks.exceptions import TaskResultDoesNotExist

__all__ = ["TaskResultDoesNotExist", "charge", "notify", "send_receipt"]
RECEIPTS = {"en": "receipt of order {} sent to {}", "de": "Quittung zu Bestellung {} an {} geschickt"}


@task(queue_name="shop-mails")
def send_receipt(order: int, to: str) -> str:
    """Pretend to send an e-mail in the customer's language."""
    return RECEIPTS[get_language()].format(order, to)


@task(queue_name="shop-mails")
async def notify(order: int) -> str:
    """Pretend to call another server and wait for its response."""
    await asyncio.sleep(0.01)
    return f"order {order} told"


@task(queue_name="shop-mails", takes_context=True)
def charge(context: TaskContext, order: int, failures: int = 0) -> str:
    """Fail the given number of times, like a card that is declined at first."""
    if context.attempt <= failures:
        raise ConnectionError(f"attempt {context.attempt} of order {order}: the bank does not respond")
    Order.objects.filter(pk=order).update(is_paid=True)
    return f"order {order} paid at attempt {context.attempt}"
