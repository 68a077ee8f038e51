"""celery: prefork, threads or solo pool, depending on the contestant's name; every costly option is off."""

import os
import time
import uuid
from datetime import UTC, datetime

import marking
import producing
from celery import Celery

NAME = os.environ["BENCH_CONTESTANT"]
SHORT = os.environ.get("BENCH_SETTING") == "short"
app = Celery("bench", broker=os.environ["BENCH_REDIS"])
app.conf.update(
    task_ignore_result=True,
    worker_send_task_events=False,
    task_send_sent_event=False,
    worker_prefetch_multiplier=1 if SHORT else 128,
    task_acks_late=SHORT,
    task_reject_on_worker_lost=SHORT,
    broker_transport_options={"visibility_timeout": 70} if SHORT else {},
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task
def mark_plain(number, reference):
    marking.mark(number, reference)


@app.task
def burn(number, reference):
    marking.burn(number, reference)


@app.task(time_limit=marking.HANG_TIMEOUT_S)
def hang(number, reference):
    marking.hang(number, reference)


TASKS = {"burn": burn, "hang": hang}


@app.task
def send(to, n):
    """Never due in this benchmark."""


@app.task
def sleep_long():
    marking.mark(0, time.time())
    time.sleep(marking.NAP_S)


class Producer:
    async def one(self, kind, number, reference):
        TASKS.get(kind, mark_plain).delay(number, reference)

    async def later(self, kind, number, due):
        mark_plain.apply_async((number, due), eta=datetime.fromtimestamp(due, UTC))

    async def letter(self, number, due):
        letter = {"to": "user@example.com", "n": number}
        send.apply_async(kwargs=letter, eta=datetime.fromtimestamp(due, UTC))

    async def nap(self):
        sleep_long.delay()


def work(kind, count):
    pool = {"celery": "prefork", "celery_threads": "threads", "celery_solo": "solo"}[NAME]
    children = str(count) if kind == "isolated" else "1"
    off = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    node = f"{uuid.uuid4().hex[:8]}@bench"
    words = ["celery", "-A", "with_celery", "worker", "-P", pool, "-c", children, "-n", node, "-l", "ERROR", *off]
    os.execvp("celery", words)


if __name__ == "__main__":
    import with_celery

    producing.main(with_celery.Producer, with_celery.work)
