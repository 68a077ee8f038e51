"""rq: SimpleWorker or the forking default, depending on the contestant's name; its scheduler runs in the worker."""

import os
import time
from datetime import UTC, datetime

import marking
import producing
import redis
from rq import Queue, Retry, SimpleWorker, Worker

SHORT = os.environ.get("BENCH_SETTING") == "short"
FORKS = os.environ["BENCH_CONTESTANT"] == "rq_fork" or SHORT
queue = Queue("bench", connection=redis.Redis.from_url(os.environ["BENCH_REDIS"]))


def mark_plain(number, reference):
    marking.mark(number, reference)


def burn(number, reference):
    marking.burn(number, reference)


def hang(number, reference):
    marking.hang(number, reference)


TASKS = {"burn": burn, "hang": hang}


def send(to, n):
    """Never due in this benchmark."""


def sleep_long():
    marking.mark(0, time.time())
    time.sleep(marking.NAP_S)


class Producer:
    async def one(self, kind, number, reference):
        queue.enqueue(TASKS.get(kind, mark_plain), number, reference, result_ttl=0)

    async def many(self, kind, calls):
        task, limit = TASKS.get(kind, mark_plain), marking.HANG_TIMEOUT_S if kind == "hang" else None
        queue.enqueue_many([Queue.prepare_data(task, call, result_ttl=0, timeout=limit) for call in calls])

    async def later(self, kind, number, due):
        queue.enqueue_at(datetime.fromtimestamp(due, UTC), mark_plain, number, due, result_ttl=0)

    async def letter(self, number, due):
        letter = {"to": "user@example.com", "n": number}
        queue.enqueue_at(datetime.fromtimestamp(due, UTC), send, kwargs=letter, result_ttl=0)

    async def nap(self):
        queue.enqueue(sleep_long, retry=Retry(max=3) if SHORT else None)


def work(kind, count):
    knobs = {"worker_ttl": 20, "maintenance_interval": 5, "job_monitoring_interval": 5} if SHORT else {}
    make = Worker if FORKS else SimpleWorker
    worker = make([queue], connection=queue.connection, log_job_description=False, **knobs)
    worker.work(with_scheduler=True, logging_level="WARNING")


if __name__ == "__main__":
    import with_rq

    producing.main(with_rq.Producer, with_rq.work)
