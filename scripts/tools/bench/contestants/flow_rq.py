"""rq: jobs and one that depends on all of them, and jobs of which each depends on the one before."""

import os
import time

import flowing
import redis
from rq import Queue, Retry, SimpleWorker, Worker

SHORT = os.environ.get("BENCH_SETTING") == "short"
queue = Queue("flow", connection=redis.Redis.from_url(os.environ["BENCH_REDIS"]))


def child(number, turn):
    if flowing.must_hold(number, turn):
        time.sleep(flowing.HOLD_S)
    flowing.mark(number, turn)


def after(turn):
    flowing.after(turn)


class Producer:
    def batch(self, numbers, turn):
        again = Retry(max=3) if SHORT else None
        jobs = queue.enqueue_many([Queue.prepare_data(child, (number, turn), retry=again) for number in numbers])
        queue.enqueue(after, turn, depends_on=jobs)

    def chain(self, numbers, turn):
        job = None
        for number in numbers:
            job = queue.enqueue(child, number, turn, depends_on=job)


def work(kind):
    knobs = {"worker_ttl": 20, "maintenance_interval": 5, "job_monitoring_interval": 5} if SHORT else {}
    make = Worker if SHORT else SimpleWorker
    worker = make([queue], connection=queue.connection, log_job_description=False, **knobs)
    worker.work(with_scheduler=True, logging_level="WARNING")


if __name__ == "__main__":
    import flow_rq

    flowing.main(flow_rq.Producer, flow_rq.work)
