"""Redis dies while workers are running, is not available yet, or is full."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from schedq import NewJob, QueueFull
from tests.stories.processes import app
from tests.stories.processes.scene import APP, Scene, call, each
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()
VISIBILITY_MS = 6000
"""After an outage, workers have a third of this and half a second for renewals."""


@together()
def test_jobs_that_were_enqueued_while_redis_was_killed_are_all_done(make_scene: MakeScene):
    # A killed process keeps everything that it has written; `everysec` may write a little later, `always` does not.
    scene = make_scene(server={"appendonly": True, "appendfsync": "always"}, visibility_ms=5000)
    workers = [scene.ready_worker(), scene.ready_worker()]
    ids: list[str] = []

    def produce() -> None:
        with app.made(scene.server.url, scene.settings | {"retry_for": 30}) as queue:
            for _ in range(200):
                ids.append(queue.enqueue(call("nap", 0.02)))
                time.sleep(0.005)

    producer = threading.Thread(target=produce)
    producer.start()
    scene.until(lambda: len(ids) >= 60)
    scene.server.kill()
    time.sleep(0.7)
    scene.server.start()
    producer.join(60)
    scene.until(lambda: scene.queue.stats()["completed_total"] == 200, within=60)

    assert len(ids) == 200
    assert scene.is_completed(*ids)
    scene.until(lambda: all(": back after " in worker.log for worker in workers))
    for worker in workers:
        assert (worker.log.count(": lost ("), worker.log.count(": back after ")) == (1, 1), worker
    assert_explained(scene, ids)


def assert_explained(scene: Scene, ids: list[str]) -> None:
    """Every start after a job's first is recorded as following an attempt whose lease was lost."""
    starts = scene.starts()
    for job_id in ids:
        lost = [entry for entry in scene.job(job_id).history if entry["outcome"] == "lost"]
        assert 1 <= len(starts[job_id]) <= 1 + len(lost), (scene.job(job_id), starts[job_id])


@together()
def test_a_full_redis_refuses_new_jobs_whole_and_lets_workers_do_the_rest(make_scene: MakeScene):
    scene = make_scene(visibility_ms=4000)
    queue = scene.queue
    backlog = queue.enqueue_many([call("brief")] * 300)
    long = [scene.add("gated", "open"), scene.add("gated_in_thread", "open")]
    later = queue.enqueue_many([NewJob(call("brief"), delay=600)] * 5)

    scene.client.config_set("maxmemory", scene.client.info("memory")["used_memory"])
    before = scene.state()
    with pytest.raises(QueueFull):
        queue.enqueue(call("brief", "x" * 100_000))
    with pytest.raises(QueueFull) as refused:
        queue.enqueue_many([call("brief", "x" * 100_000)] * 3, delay=60)
    assert refused.value.stored == ()
    assert scene.state() == before
    scene.client.config_set("maxmemory", 1)  # full, whatever is freed from now on

    worker = scene.worker()
    scene.until(lambda: scene.has_started(*long) and queue.stats()["completed_total"] == 300)
    queue.pause()
    assert all(queue.reschedule(job_id, delay=1) for job_id in later)
    ends = set()

    def are_renewed_twice() -> bool:
        ends.update(scene.state().holds("leases", "zset").items())
        return min(Counter(job_id for job_id, _ in ends).values()) >= 3

    scene.until(are_renewed_twice)
    scene.open("open")
    scene.until(lambda: scene.is_completed(*long))
    scene.until(lambda: queue.stats()["pending_depth"] == 5)
    assert not scene.has_started(*later)
    queue.resume()
    scene.until(lambda: scene.is_completed(*later))

    assert {job_id: len(starts) for job_id, starts in scene.starts().items()} == dict.fromkeys(
        [*backlog, *long, *later], 1
    )
    assert scene.is_alive(worker)
    with pytest.raises(QueueFull):
        queue.enqueue(call("brief"))


@together()
def test_processes_wait_for_redis_but_not_forever_when_they_stop(make_scene: MakeScene):
    ends = {
        start_a_worker_early: "completed",
        start_a_promoter_early: "pending",
        stop_late: "exit code 0",
        outlast_a_pause: "attempts [1, 1, 1, 1]",
        outlast_an_end: "attempts [1, 1, 1, 1]",
    }
    found = each(
        ends,
        lambda act: act(make_scene(server={"appendonly": True, "appendfsync": "always"}, visibility_ms=VISIBILITY_MS)),
    )
    assert dict(zip(ends, found, strict=True)) == ends


def start_a_worker_early(scene: Scene) -> str:
    start_early(scene, "worker", APP)
    job_id = scene.add("brief", delay=0.1)
    scene.until(lambda: scene.is_completed(job_id))
    return scene.job(job_id).status


def start_a_promoter_early(scene: Scene) -> str:
    start_early(scene, "promoter", app.NAME)
    job_id = scene.add("brief", delay=0.1)
    scene.until(lambda: scene.queue.stats()["promoted_total"] == 1)
    return scene.job(job_id).status


def stop_late(scene: Scene) -> str:
    worker = scene.ready_worker("--grace", "0.2")
    job_id = scene.add("gated", "never")
    scene.until(lambda: scene.has_started(job_id))
    scene.server.kill()

    worker.send(signal.SIGTERM)

    return f"exit code {worker.code(within=60)}"


def outlast_a_pause(scene: Scene) -> str:
    return outlast(scene, scene.server.freeze, scene.server.thaw)


def outlast_an_end(scene: Scene) -> str:
    return outlast(scene, scene.server.kill, scene.server.start)


def outlast(scene: Scene, end: Callable[[], None], begin: Callable[[], None]) -> str:
    for _ in range(2):
        scene.ready_worker("--concurrency", "2")
    ids = [scene.add(task, "gate") for task in ("gated", "gated_in_thread", "gated", "gated_in_thread")]
    scene.until(lambda: scene.has_started(*ids))

    def first_end_ms() -> float:
        return min(float(end) for end in scene.state().holds("leases", "zset").values())

    ends_ms = first_end_ms()
    end()
    time.sleep(VISIBILITY_MS / 1000 + 0.2)  # longer than the leases
    begin()

    scene.until(lambda: first_end_ms() > max(ends_ms + VISIBILITY_MS, scene.now_ms()))
    scene.open("gate")
    scene.until(lambda: scene.is_completed(*ids))

    return f"attempts {[note.attempt for note in scene.notes('start')]}"


def start_early(scene: Scene, *command: str) -> None:
    scene.server.kill()
    process = scene.start(*command)
    scene.until(lambda: "lost (" in process.log)
    time.sleep(1.5)  # several attempts on every connection

    assert process.log.count("lost (") == 1, process
    assert ": ready for " not in process.log, process
    scene.server.start()
    scene.until(lambda: ": back after " in process.log)
    scene.until(lambda: ": ready for " in process.log)
