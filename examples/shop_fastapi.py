"""FastAPI with schedq: `uvicorn shop_fastapi:app` serves, `schedq worker shop_fastapi:queue` works."""

from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from schedq import Conflict, Queue
from schedq.integrations.fastapi import AsyncQueueDep, add_exception_handlers, lifespan

queue = Queue("shop")


@queue.task(max_attempts=5)
async def send_receipt(order: int, to: str) -> str:
    """Pretend to send an e-mail."""
    return f"receipt of order {order} sent to {to}"


@queue.task
def print_label(order: int) -> str:
    """Pretend to print; a plain function, so it runs in a worker thread."""
    return f"label of order {order} printed"


app = FastAPI(lifespan=lifespan(queue))
add_exception_handlers(app)  # Redis is down or full: nothing was stored, and the client may try again


class Order(BaseModel):
    """What a customer sends."""

    to: str = Field(max_length=200)
    remind_after: float | None = Field(default=None, ge=0, le=30 * 86_400, description="seconds")


@app.post("/orders/{number}", status_code=202)
async def order(number: int, order: Order) -> dict[str, str | None]:
    """Enqueue the receipt now, once per order however often it is requested, and a reminder later."""
    try:
        receipt = await send_receipt.options(job_id=f"receipt-{number}").aenqueue(number, order.to)
    except Conflict as error:
        raise HTTPException(409, "this order was already placed with another address") from error
    reminder = None
    if order.remind_after is not None:
        reminder = (await send_receipt.options(delay=order.remind_after).aenqueue(number, order.to)).id
    return {"receipt": receipt.id, "reminder": reminder}


@app.post("/orders/{number}/label", status_code=202)
def label(number: int) -> dict[str, str]:
    """The same from a plain function, which FastAPI runs in a thread."""
    return {"label": print_label.enqueue(number).id}


@app.get("/jobs/{job_id}")
async def job(job_id: str, queue: AsyncQueueDep) -> dict[str, Any]:
    """The state of a job."""
    record = await queue.get_job(job_id)
    if record is None:
        raise HTTPException(404, f"no job {job_id}")
    return {"status": record.status, "attempts": record.attempts, "result": record.result, "error": record.last_error}
