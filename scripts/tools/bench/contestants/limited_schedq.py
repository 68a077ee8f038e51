"""schedq with limits: a rate, a limit of all jobs together, one job of a key at a time, and unique jobs."""

import asyncio
import os
import sys
import time

import marking
import producing

from schedq import Queue, Rate, Unique, current_job

queue = Queue("limited", redis=os.environ["BENCH_REDIS"], max_pending=None)
one_at_a_time = queue.gate("one-at-a-time", key_concurrency=1)
ended_at = 0.0


@queue.task(rate=Rate(200, per=1))
async def rated(number: int, reference: float) -> None:
    marking.mark(number, current_job()._job.claimed_at_ms / 1000)


@queue.task(concurrency=100)
async def together(number: int, reference: float) -> None:
    marking.mark(number, reference)


@queue.task(gate=one_at_a_time, key=lambda number, reference: number % 100)
async def keyed(number: int, reference: float) -> None:
    marking.mark(number, reference)


@queue.task(gate=one_at_a_time, key=lambda number, reference: "flood")
async def flood(number: int, reference: float) -> None:
    await asyncio.sleep(0.002)


@queue.task(gate=one_at_a_time, key=lambda number, reference: f"idle{number}")
async def idle(number: int, reference: float) -> None:
    marking.mark(number, reference)


@queue.task(gate=one_at_a_time, key=lambda number, reference: "line")
async def line(number: int, reference: float) -> None:
    """Mark with the instant at which the job before this one ended."""
    global ended_at
    marking.mark(number, ended_at)
    await asyncio.sleep(0.005)
    ended_at = time.time()


@queue.task(unique=Unique(key="one"))
async def unique(number: int, reference: float) -> None:
    marking.mark(number, reference)


TASKS = {task.__name__: task for task in (rated, together, keyed, flood, idle, line, unique)}


class Producer:
    async def one(self, kind, number, reference):
        TASKS[kind].enqueue(number, reference)

    async def many(self, kind, calls):
        TASKS[kind].enqueue_many([(call, {}) for call in calls])


def work(kind, count):
    words = ["-m", "schedq", "worker", "limited_schedq:queue", "--concurrency", "200", "--processes", str(count)]
    os.execv(sys.executable, [sys.executable, *words, "--grace", "0"])


if __name__ == "__main__":
    import limited_schedq

    producing.main(limited_schedq.Producer, limited_schedq.work)
