"""docket with limits: RateLimit, ConcurrencyLimit, and the keys of tasks, which may be there once."""

import asyncio
import os
from datetime import timedelta

import marking
import producing
import uvloop
from docket import ConcurrencyLimit, Docket, RateLimit, Worker

RATE = RateLimit(200, per=timedelta(seconds=1))
TOGETHER = ConcurrencyLimit(max_concurrent=100)
BY_KEY = ConcurrencyLimit("key", max_concurrent=1)


async def rated(number: int, reference: float, rate: RateLimit = RATE) -> None:
    marking.mark(number, 0.0)


async def together(number: int, reference: float, limit: ConcurrencyLimit = TOGETHER) -> None:
    marking.mark(number, reference)


async def keyed(number: int, reference: float, key: str, limit: ConcurrencyLimit = BY_KEY) -> None:
    marking.mark(number, reference)


async def flood(number: int, reference: float, key: str, limit: ConcurrencyLimit = BY_KEY) -> None:
    await asyncio.sleep(0.002)


async def unique(number: int, reference: float) -> None:
    marking.mark(number, reference)


TASKS = {"rated": rated, "together": together, "keyed": keyed, "idle": keyed, "flood": flood, "unique": unique}
KEYS = {"keyed": lambda number: str(number % 100), "idle": lambda number: f"idle{number}", "flood": lambda _: "flood"}


def make_docket():
    docket = Docket(name="limited", url=os.environ["BENCH_REDIS"], execution_ttl=timedelta(0))
    for function in (rated, together, keyed, flood, unique):
        docket.register(function)
    return docket


def words(kind, number, reference):
    return (number, reference, KEYS[kind](number)) if kind in KEYS else (number, reference)


class Producer:
    def __init__(self, docket):
        self._docket = docket

    @classmethod
    async def make(cls):
        return cls(await make_docket().__aenter__())

    async def one(self, kind, number, reference):
        key = {"key": "one"} if kind == "unique" else {}
        await self._docket.add(TASKS[kind], **key)(*words(kind, number, reference))

    async def many(self, kind, calls):
        await self._docket.add_many([self._docket.call(TASKS[kind])(*words(kind, *call)) for call in calls])


KNOBS = {
    "concurrency": 64,
    "minimum_check_interval": timedelta(milliseconds=2),
    "scheduling_resolution": timedelta(milliseconds=10),
}


def work(kind, count):
    async def run():
        async with make_docket() as docket, Worker(docket, **KNOBS) as worker:
            await worker.run_forever()

    uvloop.run(run())


if __name__ == "__main__":
    import limited_docket

    producing.main(limited_docket.Producer.make, limited_docket.work, uvloop.run)
