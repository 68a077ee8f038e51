"""The web application: takes orders and shows them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from pydantic import BaseModel, Field

from orders import context
from orders.database import Orders, lifespan, new_session
from orders.tasks import charge


@asynccontextmanager
async def running(_: FastAPI) -> AsyncIterator[None]:
    """The database of this process. The queue connects when it is used, and needs no closing."""
    with lifespan():
        yield


app = FastAPI(title="Orders", lifespan=running)


@app.middleware("http")
async def set_context(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Every request has an id, and belongs to a tenant."""
    number = request.headers.get("x-request-id") or uuid.uuid4().hex
    with context.working_for(request.headers.get("x-tenant", ""), number):
        response = await call_next(request)
    response.headers["X-Request-ID"] = number
    return response


def get_tenant(x_tenant: Annotated[str, Header(min_length=1, max_length=100)]) -> str:
    """The tenant, from a header of the request."""
    return x_tenant


Tenant = Annotated[str, Depends(get_tenant)]


class NewOrder(BaseModel):
    """What a customer sends."""

    customer: str = Field(min_length=3, max_length=200)
    amount: Decimal = Field(gt=0, max_digits=10, decimal_places=2)


class OrderState(BaseModel):
    """What a customer sees."""

    number: int
    status: str
    note: str = ""


@app.post("/orders", status_code=202)
def take(order: NewOrder, tenant: Tenant) -> OrderState:
    """Store an order and let a worker charge it."""
    with new_session.begin() as session:
        number = Orders(session).add(tenant, order.customer, order.amount).id
    # Only now: inside the transaction, a worker could look for the order before it is committed.
    charge.options(job_id=f"charge-{number}").enqueue(number)
    return OrderState(number=number, status="new")


@app.get("/orders/{number}")
def show(number: int, tenant: Tenant, orders: Annotated[Orders, Depends()]) -> OrderState:
    """Return the state of an order."""
    order = orders.get(number, tenant)
    if order is None:
        raise HTTPException(404, f"no order {number}")
    return OrderState(number=number, status=order.status, note=order.note)
