"""Servers that can't be used, now or at all: errors of the clients, and logs of the processes.

An eviction policy, a wrong password, a missing database, a cluster node and a busy server are tested for clients in
tests/queue/test_faults.py, and a server that is loading in tests/connection/test_handshake.py; processes with a wrong
password are tested in tests/stories/processes/test_starting.py.
"""

from __future__ import annotations

import time

import pytest

from schedq import StoreUnavailable
from tests.conftest import MakeQueue
from tests.servers import Server
from tests.stories.processes import app
from tests.stories.processes.scene import APP
from tests.stories.processes.stage import scenes
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew

pytestmark = pytest.mark.processes

NOBODY = "127.0.0.1 1"
"""A primary that is not there: its replica serves the data that it has."""
ROLES = (("worker", APP), ("worker", APP, "--processes", "2"), ("promoter", app.NAME), ("stats", app.NAME))


def test_a_read_only_replica_is_named_and_waited_for(make_queue: MakeQueue) -> None:
    with Server(replicaof=NOBODY) as replica, replica.client() as client:
        impatient, patient = make_queue(at=replica, retry_for=0), make_queue(at=replica, retry_for=30)

        for verb in (impatient.stats, lambda: impatient.enqueue(1), lambda: impatient.claim(0)):
            with pytest.raises(StoreUnavailable, match="read-only replica"):
                verb()
        waiting = patient.start("enqueue", 1)
        client.replicaof("NO", "ONE")

        assert waiting.result(60)


@pytest.mark.parametrize("door", ["blocking"], indirect=True)
def test_a_worker_waits_until_a_replica_is_the_primary(make_queue: MakeQueue, crew: Crew, logs: Logs) -> None:
    with Server(replicaof=NOBODY) as replica, replica.client() as client:
        queue = make_queue(at=replica, retry_for=30)
        queue.task(name="ok")(lambda: "ok")
        crew.start(queue)
        until(lambda: [line for line in logs() if "read-only replica" in line], within=60)

        client.replicaof("NO", "ONE")

        assert queue.result(queue.enqueue({"task": "ok"}), 60) == "ok"
        crew.end()
        assert len([line for line in logs() if "read-only replica" in line]) <= 3


def test_a_process_ends_with_one_line_where_keys_may_be_evicted() -> None:
    with scenes() as make_scene:
        scene = make_scene(server={"maxmemory": "100mb", "maxmemory_policy": "allkeys-lru"})
        started = [scene.start(*words) for words in ROLES]

        for process in started:
            assert process.code() == 1, process
            (line,) = [line for line in process.log.splitlines() if " INFO " not in line]
            assert "may evict keys (maxmemory-policy allkeys-lru)" in line, process
        scene.client.config_set("maxmemory-policy", "noeviction")


def test_a_process_waits_for_a_replica_to_become_the_primary() -> None:
    with scenes() as make_scene:
        scene = make_scene(server={"replicaof": NOBODY})
        started = [scene.start(*words) for words in ROLES[:3]]
        scene.until(lambda: all("read-only replica" in process.log for process in started), within=60)
        time.sleep(0.5)
        assert all(process.is_running for process in started)

        scene.client.replicaof("NO", "ONE")
        job_id = scene.add("brief")

        scene.until(lambda: scene.is_completed(job_id), within=60)
        assert scene.job(job_id).attempts == 1
