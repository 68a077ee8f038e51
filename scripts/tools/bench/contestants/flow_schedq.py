"""schedq: a batch with `then`, or a workflow with `ctx.map`, depending on the contestant's name; chains and steps."""

import asyncio
import os
import sys
import uuid

import flowing

from schedq import BatchResults, Queue, WorkflowContext

SHORT = {"visibility_ms": 5000} if os.environ.get("BENCH_SETTING") == "short" else {}
queue = Queue("flow", redis=os.environ["BENCH_REDIS"], max_pending=None, **SHORT)


@queue.task
async def child(number: int, turn: int) -> None:
    if flowing.must_hold(number, turn):
        await asyncio.sleep(flowing.HOLD_S)
    flowing.mark(number, turn)


@queue.task
async def after(results: BatchResults, turn: int) -> None:
    flowing.after(turn)


@queue.workflow
async def mapped(ctx: WorkflowContext, numbers: list[int], turn: int) -> None:
    await ctx.map(child, [child.with_args(number, turn) for number in numbers])
    flowing.after(turn)


async def step(number: int, turn: int) -> None:
    flowing.mark(number, turn)


@queue.workflow
async def sequence(ctx: WorkflowContext, numbers: list[int], turn: int) -> None:
    for number in numbers:
        await ctx.step(step, number, turn)


class Producer:
    def batch(self, numbers, turn):
        if os.environ["BENCH_CONTESTANT"] == "schedq_map":
            mapped.enqueue(numbers, turn)
            return
        from schedq import RESULT

        with queue.batch(uuid.uuid4().hex, child, then=after.with_args(RESULT, turn)) as batch:
            batch.add(child.with_args(number, turn) for number in numbers)

    def chain(self, numbers, turn):
        queue.chain(*[child.with_args(number, turn) for number in numbers])

    def steps(self, numbers, turn):
        sequence.enqueue(numbers, turn)


def work(kind):
    words = ["-m", "schedq", "worker", "flow_schedq:queue", "--concurrency", "200", "--grace", "0"]
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    import flow_schedq

    flowing.main(flow_schedq.Producer, flow_schedq.work)
