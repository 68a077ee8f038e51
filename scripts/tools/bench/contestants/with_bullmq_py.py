"""BullMQ's Python port: 10 jobs at a time, removed when done, uvloop."""

import asyncio
import math
import os
import time
from urllib.parse import urlsplit

import marking
import producing
import uvloop
from bullmq import Queue, Worker

URL = urlsplit(os.environ["BENCH_REDIS"])
# By default a socket times out after 5 s but the worker blocks for up to 10 s, so delayed jobs would never run.
CONNECTION = {"host": URL.hostname, "port": URL.port, "socket_timeout": 60}
SHORT = {"lockDuration": 5000, "stalledInterval": 5000} if os.environ.get("BENCH_SETTING") == "short" else {}
DONE = {"removeOnComplete": True}


async def process(job, token):
    if job.name == "nap":
        marking.mark(0, time.time())
        await asyncio.sleep(marking.NAP_S)
    else:
        marking.mark(job.data["number"], job.data["reference"])


class Producer:
    def __init__(self, queue):
        self._queue = queue

    @classmethod
    async def make(cls):
        return cls(Queue("bench", {"connection": CONNECTION}))

    async def one(self, kind, number, reference):
        await self._queue.add("mark", {"number": number, "reference": reference}, DONE)

    async def many(self, kind, calls):
        await self._queue.addBulk(
            [{"name": "mark", "data": {"number": call[0], "reference": call[1]}, "opts": DONE} for call in calls]
        )

    async def later(self, kind, number, due):
        await self._queue.add("mark", {"number": number, "reference": due}, DONE | {"delay": _delay_ms(due)})

    async def letter(self, number, due):
        await self._queue.add("send", {"to": "user@example.com", "n": number}, DONE | {"delay": _delay_ms(due)})

    async def nap(self):
        await self._queue.add("nap", {}, DONE)


def _delay_ms(due):
    return max(0, math.ceil((due - time.time()) * 1000))


def work(kind, count):
    async def run():
        worker = Worker("bench", process, {"connection": CONNECTION, "concurrency": 10, **SHORT})
        await asyncio.Event().wait()
        await worker.close()

    uvloop.run(run())


if __name__ == "__main__":
    import with_bullmq_py

    producing.main(with_bullmq_py.Producer.make, with_bullmq_py.work, uvloop.run)
