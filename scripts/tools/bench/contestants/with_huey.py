"""huey: RedisHuey with blocking pops, in a consumer with one thread or two processes."""

import logging
import os
import time
from datetime import UTC, datetime

import marking
import producing
from huey import RedisHuey

huey = RedisHuey("bench", url=os.environ["BENCH_REDIS"], results=False)
logging.getLogger("huey").setLevel(logging.ERROR)


@huey.task()
def mark_plain(number, reference):
    marking.mark(number, reference)


@huey.task()
def send(to, n):
    """Never due in this benchmark."""


@huey.task()
def sleep_long():
    marking.mark(0, time.time())
    time.sleep(marking.NAP_S)


class Producer:
    async def one(self, kind, number, reference):
        mark_plain(number, reference)

    async def later(self, kind, number, due):
        mark_plain.schedule((number, due), eta=datetime.fromtimestamp(due, UTC))

    async def letter(self, number, due):
        send.schedule((), {"to": "user@example.com", "n": number}, eta=datetime.fromtimestamp(due, UTC))

    async def nap(self):
        sleep_long()


def work(kind, count):
    kinds = {"worker_type": "process" if count > 1 else "thread", "workers": count}
    huey.create_consumer(periodic=False, **kinds).run()


if __name__ == "__main__":
    import with_huey

    producing.main(with_huey.Producer, with_huey.work)
