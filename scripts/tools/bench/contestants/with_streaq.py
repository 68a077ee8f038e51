"""streaq: 32 jobs at a time, 4 threads for plain functions, no results, silent, uvloop."""

import asyncio
import os
import time
from datetime import UTC, datetime

import marking
import producing
import uvloop
from streaq import Worker

SHORT = {"idle_timeout": 5} if os.environ.get("BENCH_SETTING") == "short" else {}
worker = Worker(
    redis_url=os.environ["BENCH_REDIS"],
    concurrency=32,
    sync_concurrency=4,
    prefetch=32,
    anyio_kwargs={"use_uvloop": True},
    **SHORT,
)


@worker.task(ttl=0, silent=True)
def mark_plain(number: int, reference: float) -> None:
    marking.mark(number, reference)


@worker.task(ttl=0, silent=True)
async def mark_async(number: int, reference: float) -> None:
    marking.mark(number, reference)


@worker.task(ttl=0, silent=True)
async def send(to: str, n: int) -> None:
    """Never due in this benchmark."""


@worker.task(ttl=0, silent=True)
async def sleep_long() -> None:
    marking.mark(0, time.time())
    await asyncio.sleep(marking.NAP_S)


TASKS = {"plain": mark_plain, "async": mark_async}


class Producer:
    @classmethod
    async def make(cls):
        await worker.__aenter__()
        return cls()

    async def one(self, kind, number, reference):
        await TASKS[kind].enqueue(number, reference)

    async def many(self, kind, calls):
        await worker.enqueue_many([TASKS[kind].enqueue(*call) for call in calls])

    async def later(self, kind, number, due):
        await TASKS[kind].enqueue(number, due).start(schedule=datetime.fromtimestamp(due, UTC))

    async def letter(self, number, due):
        await send.enqueue("user@example.com", number).start(schedule=datetime.fromtimestamp(due, UTC))

    async def nap(self):
        await sleep_long.enqueue()


def work(kind, count):
    worker.run_sync()


if __name__ == "__main__":
    import with_streaq

    producing.main(with_streaq.Producer.make, with_streaq.work, uvloop.run)
