"""dramatiq: one thread, large prefetch, only the middleware that the handlers need."""

import asyncio
import os
import time

import dramatiq
import marking
import producing
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AsyncIO, Callbacks, Pipelines, Retries

SHORT = os.environ.get("BENCH_SETTING") == "short"
broker = RedisBroker(
    url=os.environ["BENCH_REDIS"],
    middleware=[AsyncIO(), Callbacks(), Pipelines(), Retries()],
    **({"heartbeat_timeout": 10_000, "maintenance_chance": 1_000_000} if SHORT else {}),
)
dramatiq.set_broker(broker)


@dramatiq.actor
def mark_plain(number, reference):
    marking.mark(number, reference)


@dramatiq.actor
async def mark_async(number, reference):
    marking.mark(number, reference)


@dramatiq.actor
def send(to, n):
    """Never due in this benchmark."""


@dramatiq.actor
async def sleep_long():
    marking.mark(0, time.time())
    await asyncio.sleep(marking.NAP_S)


ACTORS = {"plain": mark_plain, "async": mark_async}


class Producer:
    async def one(self, kind, number, reference):
        ACTORS[kind].send(number, reference)

    async def later(self, kind, number, due):
        delay_ms = max(0, round((due - time.time()) * 1000 + 0.5))
        ACTORS[kind].send_with_options(args=(number, due), delay=delay_ms)

    async def letter(self, number, due):
        delay_ms = round((due - time.time()) * 1000)
        send.send_with_options(kwargs={"to": "user@example.com", "n": number}, delay=delay_ms)

    async def nap(self):
        sleep_long.send()


def work(kind, count):
    os.environ |= {"dramatiq_queue_prefetch": "500", "dramatiq_delay_queue_prefetch": "65535"}
    words = ["dramatiq", "with_dramatiq", "--processes", str(count), "--threads", "1"]
    os.execvp("dramatiq", words)


if __name__ == "__main__":
    import with_dramatiq

    producing.main(with_dramatiq.Producer, with_dramatiq.work)
