"""The web application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from bookshop.database import Base, Order, engine, get_session, outbox
from bookshop.tasks import ask_for_review, confirm, queue, send_catalog
from schedq.integrations.fastapi import AsyncQueueDep, add_exception_handlers, lifespan


@asynccontextmanager
async def tables(_: FastAPI) -> AsyncIterator[None]:
    """The application's own lifespan."""
    Base.metadata.create_all(engine)
    yield


app = FastAPI(title="Bookshop", lifespan=lifespan(queue, around=tables))
add_exception_handlers(app)
SessionDep = Annotated[Session, Depends(get_session, scope="function")]


class NewOrder(BaseModel):
    """What a customer sends."""

    customer: str = Field(min_length=3, max_length=200)


@app.post("/orders", status_code=202)
def take(order: NewOrder, session: SessionDep) -> dict[str, Any]:
    """Store an order and its jobs in one transaction, which needs no Redis."""
    stored = Order(customer=order.customer)
    session.add(stored)
    session.flush()
    job = outbox.enqueue(session, confirm, stored.id)
    outbox.enqueue(session, ask_for_review.options(delay=timedelta(days=14)), stored.id)
    return {"number": stored.id, "job": job.id}


@app.get("/orders/{number}")
def show(number: int, session: SessionDep) -> dict[str, Any]:
    """Return an order."""
    order = session.get(Order, number)
    if order is None:
        raise HTTPException(404, "no such order")
    return {"number": number, "status": order.status}


@app.post("/catalogs", status_code=202)
async def catalog(order: NewOrder) -> dict[str, str]:
    """Enqueue without a database. While Redis is unavailable, the response has the status 503."""
    job = await send_catalog.aenqueue(order.customer)
    return {"job": job.id}


@app.get("/jobs/{job_id}")
async def show_job(job_id: str, queue: AsyncQueueDep) -> dict[str, Any]:
    """Return how far a job is."""
    record = await queue.get_job(job_id)
    if record is None:
        raise HTTPException(404, "no such job")
    return {"status": record.status, "result": record.result}
