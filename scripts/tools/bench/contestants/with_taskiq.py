"""taskiq: a stream, 100 tasks at a time, orjson, no results; a scheduler process for delayed jobs."""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime

import marking
import producing
import uvloop
from taskiq import TaskiqScheduler
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

URL = os.environ["BENCH_REDIS"]
SHORT = {"idle_timeout": 65_000} if os.environ.get("BENCH_SETTING") == "short" else {}
broker = RedisStreamBroker(URL, xread_count=100, **SHORT).with_serializer(ORJSONSerializer())
source = ListRedisScheduleSource(URL)
scheduler = TaskiqScheduler(broker, [source])


@broker.task
def mark_plain(number, reference):
    marking.mark(number, reference)


@broker.task
async def mark_async(number, reference):
    marking.mark(number, reference)


@broker.task
async def send(to, n):
    """Never due in this benchmark."""


@broker.task
async def sleep_long():
    marking.mark(0, time.time())
    await asyncio.sleep(marking.NAP_S)


TASKS = {"plain": mark_plain, "async": mark_async}


class Producer:
    @classmethod
    async def make(cls):
        await broker.startup()
        return cls()

    async def one(self, kind, number, reference):
        await TASKS[kind].kiq(number, reference)

    async def later(self, kind, number, due):
        await TASKS[kind].schedule_by_time(source, datetime.fromtimestamp(due, UTC), number, due)

    async def letter(self, number, due):
        await send.schedule_by_time(source, datetime.fromtimestamp(due, UTC), to="user@example.com", n=number)

    async def nap(self):
        await sleep_long.kiq()


def work(kind, count):
    knobs = ["--max-async-tasks", "100", "--max-prefetch", "100", "--no-parse", "--log-level", "ERROR"]
    os.execvp("taskiq", ["taskiq", "worker", "with_taskiq:broker", "--workers", str(count), *knobs])


if __name__ == "__main__":
    if sys.argv[1] == "scheduler":
        words = ["taskiq", "scheduler", "with_taskiq:scheduler", "--update-interval", "1", "--log-level", "ERROR"]
        os.execvp("taskiq", words)
    import with_taskiq

    producing.main(with_taskiq.Producer.make, with_taskiq.work, uvloop.run)
