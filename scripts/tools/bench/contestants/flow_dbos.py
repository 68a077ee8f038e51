"""dbos: a workflow that starts child workflows and waits for all, and one with steps; its system database is SQLite.

Depending on the contestant's name, SQLite leaves it to the operating system when commits reach the disk.
"""

import os
import threading
import time
from pathlib import Path

import flowing
from dbos import DBOS, DBOSClient
from sqlalchemy import Engine, event

MARKS = os.environ["BENCH_MARKS"]
DATABASE = f"sqlite:///{MARKS}.sqlite"
READY = Path(f"{MARKS}.ready")
QUEUE = "flow"
POLL_S = 0.01

if os.environ["BENCH_CONTESTANT"] == "dbos_unsynced":

    @event.listens_for(Engine, "connect")
    def leave_syncing_to_the_system(connection, _record):
        connection.execute("PRAGMA synchronous=OFF")


@DBOS.workflow()
def child(number, turn):
    if flowing.must_hold(number, turn):
        time.sleep(flowing.HOLD_S)
    flowing.mark(number, turn)


@DBOS.workflow()
def parent(numbers, turn):
    handles = [DBOS.start_workflow(child, number, turn) for number in numbers]
    for handle in handles:
        handle.get_result(polling_interval_sec=POLL_S)
    flowing.after(turn)


@DBOS.step()
def step(number, turn):
    flowing.mark(number, turn)


@DBOS.workflow()
def sequence(numbers, turn):
    for number in numbers:
        step(number, turn)


class Producer:
    def __init__(self):
        while not READY.exists():  # the worker creates the tables
            time.sleep(0.01)
        self._client = DBOSClient(system_database_url=DATABASE)

    def batch(self, numbers, turn):
        self._client.enqueue({"queue_name": QUEUE, "workflow_name": parent.__qualname__}, numbers, turn)

    def steps(self, numbers, turn):
        self._client.enqueue({"queue_name": QUEUE, "workflow_name": sequence.__qualname__}, numbers, turn)


def work(kind):
    DBOS(config={"name": "flow", "system_database_url": DATABASE, "log_level": "WARNING"})
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S)
    READY.touch()
    threading.Event().wait()


if __name__ == "__main__":
    flowing.main(Producer, work)
