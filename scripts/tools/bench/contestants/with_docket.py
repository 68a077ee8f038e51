"""docket: 64 jobs at a time, polled every 2 ms, the schedule every 10 ms, no results, uvloop."""

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta

import marking
import producing
import uvloop
from docket import Docket, Worker

SHORT = {"redelivery_timeout": timedelta(seconds=5)} if os.environ.get("BENCH_SETTING") == "short" else {}


async def mark_async(number: int, reference: float) -> None:
    marking.mark(number, reference)


async def send(to: str, n: int) -> None:
    """Never due in this benchmark."""


async def sleep_long() -> None:
    marking.mark(0, time.time())
    await asyncio.sleep(marking.NAP_S)


def make_docket():
    docket = Docket(name="bench", url=os.environ["BENCH_REDIS"], execution_ttl=timedelta(0))
    for function in (mark_async, send, sleep_long):
        docket.register(function)
    return docket


class Producer:
    def __init__(self, docket):
        self._docket = docket

    @classmethod
    async def make(cls):
        return cls(await make_docket().__aenter__())

    async def one(self, kind, number, reference):
        await self._docket.add(mark_async)(number, reference)

    async def many(self, kind, calls):
        await self._docket.add_many([self._docket.call(mark_async)(*call) for call in calls])

    async def later(self, kind, number, due):
        await self._docket.add(mark_async, when=datetime.fromtimestamp(due, UTC))(number, due)

    async def letter(self, number, due):
        await self._docket.add(send, when=datetime.fromtimestamp(due, UTC))("user@example.com", number)

    async def nap(self):
        await self._docket.add(sleep_long)()


KNOBS = {
    "concurrency": 64,
    "minimum_check_interval": timedelta(milliseconds=2),
    "scheduling_resolution": timedelta(milliseconds=10),
    **SHORT,
}


def work(kind, count):
    async def run():
        async with make_docket() as docket, Worker(docket, **KNOBS) as worker:
            await worker.run_forever()

    uvloop.run(run())


if __name__ == "__main__":
    import with_docket

    producing.main(with_docket.Producer.make, with_docket.work, uvloop.run)
