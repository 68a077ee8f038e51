"""An order waits up to two days for the warehouse. If it fails or is cancelled before it is shipped, it is undone."""

from __future__ import annotations

from schedq import Discard, WorkflowContext
from workflows.queues import DAY, queue


class Shop:
    """Stands for the services of a shop.

    Attributes:
        stock: pieces in the warehouse.
        reserved: the orders that have a piece.
        paid: the amount for each idempotency key. A bank that knows the key does nothing again.
        events: what happened, in order.
    """

    def __init__(self) -> None:
        self.stock = 3
        self.reserved: set[int] = set()
        self.paid: dict[str, int] = {}
        self.events: list[str] = []


shop = Shop()


def reserve(order: int) -> None:
    """Take a piece from the stock."""
    if shop.stock == 0:
        raise Discard("out of stock")
    if order not in shop.reserved:
        shop.reserved.add(order)
        shop.stock -= 1
    shop.events.append(f"reserved {order}")


@queue.task
def release(order: int) -> None:
    """Put the piece back, if there is one: perhaps there was none to reserve."""
    if order in shop.reserved:
        shop.reserved.remove(order)
        shop.stock += 1
        shop.events.append(f"released {order}")


def charge(amount: int, key: str) -> None:
    """Charge the card, once for each key."""
    if amount > 500:
        raise Discard("card refused")
    shop.paid[key] = amount


@queue.task(max_attempts=10)
def refund(key: str) -> None:
    """Give the money back, once for each key, if it was paid."""
    if key in shop.paid:
        shop.paid[key] = 0


async def ship(order: int, parcel: str) -> str:
    """Hand the parcel over to a carrier; returns the number for tracking it."""
    shop.events.append(f"shipped {order}")
    return f"track-{parcel}"


async def mail(order: int, text: str) -> None:
    """Write to the customer."""
    shop.events.append(f"mail {order}: {text}")
    print(f"order {order}: {text}")


@queue.workflow(max_attempts=5, run_timeout=60 * DAY)
async def fulfil(ctx: WorkflowContext, order: int, amount: int) -> str:
    """Reserve, charge, wait for `packed`, ship, and ask for a review ten days later."""
    key = ctx.key("charge")
    await ctx.options(undo=release.with_args(order)).step(reserve, order)
    await ctx.options(undo=refund.with_args(key)).step(charge, amount, key)
    try:
        parcel: str = await ctx.receive("packed", timeout=2 * DAY)
    except TimeoutError:
        await ctx.step(mail, order, "not packed in time, so you get your money back")
        raise Discard("not packed in two days") from None  # refund, then release
    tracking = await ctx.step(ship, order, parcel)
    await ctx.keep()  # a review that fails takes nothing back
    await ctx.step(mail, order, f"on its way, {tracking}")
    await ctx.sleep(10 * DAY)
    await ctx.options(name="ask for a review").step(mail, order, "how was it?")
    return tracking
