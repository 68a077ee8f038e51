"""arq: 100 jobs at a time, polled every 10 ms, no results, uvloop."""

import asyncio
import os
import time
from datetime import UTC, datetime

import marking
import producing
import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

SETTINGS = RedisSettings.from_dsn(os.environ["BENCH_REDIS"])
SHORT = {"job_timeout": 62} if os.environ.get("BENCH_SETTING") == "short" else {}


async def mark_async(context, number, reference):
    marking.mark(number, reference)


async def send(context, to, n):
    """Never due in this benchmark."""


async def sleep_long(context):
    marking.mark(0, time.time())
    await asyncio.sleep(marking.NAP_S)


class Producer:
    def __init__(self, pool):
        self._pool = pool

    @classmethod
    async def make(cls):
        return cls(await create_pool(SETTINGS))

    async def one(self, kind, number, reference):
        await self._pool.enqueue_job("mark_async", number, reference)

    async def later(self, kind, number, due):
        await self._pool.enqueue_job("mark_async", number, due, _defer_until=datetime.fromtimestamp(due, UTC))

    async def letter(self, number, due):
        letter = {"to": "user@example.com", "n": number}
        await self._pool.enqueue_job("send", **letter, _defer_until=datetime.fromtimestamp(due, UTC))

    async def nap(self):
        await self._pool.enqueue_job("sleep_long")


def work(kind, count):
    asyncio.set_event_loop(uvloop.new_event_loop())
    functions = [mark_async, send, sleep_long]
    Worker(functions, redis_settings=SETTINGS, max_jobs=100, poll_delay=0.01, keep_result=0, **SHORT).run()


if __name__ == "__main__":
    import with_arq

    producing.main(with_arq.Producer.make, with_arq.work, uvloop.run)
