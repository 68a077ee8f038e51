"""celery: a chord and a chain, with Redis as broker and as result backend; one prefork child."""

import os
import time
import uuid

import flowing
from celery import Celery, chain, chord

SHORT = os.environ.get("BENCH_SETTING") == "short"
LEASE = {"visibility_timeout": 5, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
app = Celery("flow", broker=os.environ["BENCH_REDIS"], backend=os.environ["BENCH_REDIS"])
app.conf.update(
    worker_send_task_events=False,
    task_send_sent_event=False,
    worker_prefetch_multiplier=1 if SHORT else 128,
    task_acks_late=SHORT,
    task_reject_on_worker_lost=SHORT,
    broker_transport_options=LEASE if SHORT else {},
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task
def child(number, turn):
    if flowing.must_hold(number, turn):
        time.sleep(flowing.HOLD_S)
    flowing.mark(number, turn)


@app.task
def after(results, turn):
    flowing.after(turn)


class Producer:
    def batch(self, numbers, turn):
        chord(child.s(number, turn) for number in numbers)(after.s(turn))

    def chain(self, numbers, turn):
        chain(*[child.si(number, turn) for number in numbers])()


def work(kind):
    off = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    node = f"{uuid.uuid4().hex[:8]}@bench"
    words = ["celery", "-A", "flow_celery", "worker", "-P", "prefork", "-c", "1", "-n", node, "-l", "ERROR", *off]
    os.execvp("celery", words)


if __name__ == "__main__":
    import flow_celery

    flowing.main(flow_celery.Producer, flow_celery.work)
