"""schedq: `schedq worker` with default settings except for the concurrency."""

import asyncio
import os
import sys
import time

import marking
import producing

from schedq import Queue

SHORT = {"visibility_ms": 5000} if os.environ.get("BENCH_SETTING") == "short" else {}
CONCURRENCY = {"async": "200", "plain": "128"}

queue = Queue("bench", redis=os.environ["BENCH_REDIS"], **SHORT)


@queue.task
def mark_plain(number: int, reference: float) -> None:
    marking.mark(number, reference)


@queue.task
async def mark_async(number: int, reference: float) -> None:
    marking.mark(number, reference)


@queue.task
async def send(to: str, n: int) -> None:
    """Never due in this benchmark."""


@queue.task
async def sleep_long() -> None:
    marking.mark(0, time.time())
    await asyncio.sleep(marking.NAP_S)


TASKS = {"plain": mark_plain, "async": mark_async}


def task(kind):
    if kind not in TASKS:
        import isolated_schedq

        TASKS.update(isolated_schedq.TASKS)
    return TASKS[kind]


class Producer:
    async def one(self, kind, number, reference):
        task(kind).enqueue(number, reference)

    async def many(self, kind, calls):
        task(kind).enqueue_many([(call, {}) for call in calls])

    async def later(self, kind, number, due):
        task(kind).options(run_at=due).enqueue(number, due)

    async def letter(self, number, due):
        send.options(run_at=due).enqueue(to="user@example.com", n=number)

    async def nap(self):
        sleep_long.enqueue()


def work(kind, count):
    if kind == "isolated":
        words = ["-m", "schedq", "worker", "isolated_schedq:queue", "--concurrency", str(count), "--grace", "0"]
        os.execv(sys.executable, [sys.executable, *words])
    knobs = ["--concurrency", CONCURRENCY[kind]] if kind in CONCURRENCY else []
    knobs += ["--processes", str(count)] if count > 1 else []  # with the option, a parent watches even a single process
    words = ["-m", "schedq", "worker", "with_schedq:queue", *knobs, "--grace", "0"]
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    import with_schedq

    producing.main(with_schedq.Producer, with_schedq.work)
