"""saq: 10 jobs at a time, no results, orjson, uvloop; due times in whole seconds."""

import asyncio
import math
import os
import time

import marking
import orjson
import producing
import uvloop
from saq import Queue, Worker

SHORT = os.environ.get("BENCH_SETTING") == "short"


def make_queue():
    return Queue.from_url(os.environ["BENCH_REDIS"], name="bench", dump=orjson.dumps, load=orjson.loads)


def mark_plain(context, *, number, reference):
    marking.mark(number, reference)


async def mark_async(context, *, number, reference):
    marking.mark(number, reference)


async def send(context, *, to, n):
    """Never due in this benchmark."""


async def sleep_long(context):
    marking.mark(0, time.time())
    for _ in range(marking.NAP_S):
        if SHORT:
            await context["job"].update()
        await asyncio.sleep(1)


class Producer:
    def __init__(self, queue):
        self._queue = queue

    @classmethod
    async def make(cls):
        queue = make_queue()
        await queue.connect()
        return cls(queue)

    async def one(self, kind, number, reference):
        await self._queue.enqueue(f"mark_{kind}", number=number, reference=reference, ttl=-1)

    async def later(self, kind, number, due):
        await self._queue.enqueue(f"mark_{kind}", number=number, reference=due, ttl=-1, scheduled=math.ceil(due))

    async def letter(self, number, due):
        await self._queue.enqueue("send", to="user@example.com", n=number, ttl=-1, scheduled=math.ceil(due))

    async def nap(self):
        await self._queue.enqueue(
            "sleep_long", ttl=-1, timeout=marking.NAP_S + 10, heartbeat=5 if SHORT else 0, retries=3
        )


def work(kind, count):
    async def run():
        functions = [mark_plain, mark_async, send, sleep_long]
        await Worker(make_queue(), functions, concurrency=10, timers={"sweep": 1} if SHORT else None).start()

    uvloop.run(run())


if __name__ == "__main__":
    import with_saq

    producing.main(with_saq.Producer.make, with_saq.work, uvloop.run)
