"""`schedq promoter`: the standalone daemon, for workers started with --no-promoter."""

from __future__ import annotations

import signal
import time

import pytest

from schedq.transitions import scripts
from tests.stories.processes import app
from tests.stories.processes.scene import Process, Scene, call, each
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()
VISIBILITY_MS = 4000


def ready_promoter(scene: Scene) -> Process:
    """A promoter that has looked at the queue, in an environment where the application can't be imported."""
    promoter = scene.start("promoter", app.NAME, APP_SETTINGS="{")
    scene.until(lambda: scene.client.exists(scene.queue.settings.keys.promoter))
    return promoter


@together()
def test_a_promoter_without_the_application_feeds_workers_that_promote_nothing(scene: Scene):
    first = ready_promoter(scene)  # before any worker
    worker = scene.ready_worker("--no-promoter")
    second = scene.start("promoter", app.NAME)
    scene.until(lambda: "ready" in second.log)
    ids = [scene.add("brief", delay=delay) for delay in (0.4, 0.2, 0.6)]
    scene.until(lambda: scene.is_completed(*ids))
    late_ms = [job.started_at_ms - job.run_at_ms for job in map(scene.job, ids)]
    assert all(0 <= late < 9000 for late in late_ms), late_ms
    assert [note.pid for note in scene.notes("start")] == [worker.pid] * 3

    first.kill()

    killed_at = time.monotonic()
    job_id = scene.add("brief", delay=0.1)
    scene.until(lambda: scene.is_completed(job_id))
    assert time.monotonic() - killed_at <= 30
    with scene.server.requests() as requests:
        second.send(signal.SIGTERM)
        assert second.code() == 0
    assert any(scripts.load("deregister").sha in request.words for request in requests)
    scene.until(lambda: not scene.client.exists(scene.queue.settings.keys.promoter))


@together("totals")  # completed records are trimmed
def test_a_promoter_uses_the_settings_that_the_workers_stored(make_scene: MakeScene):
    settings = {"max_attempts": 2, "backoff": 7, "completed_history": 3, "min_keep": 0}
    last = each([written_before, written_after], lambda act: act(make_scene(visibility_ms=VISIBILITY_MS, **settings)))
    assert last == ["failed", "failed"]


def written_after(scene: Scene) -> str:
    """The state of a job whose worker died in the last attempt that the stored settings allow."""
    ready_promoter(scene)
    scene.worker("--no-promoter", APP_SETTINGS='{"visibility_ms": 1000, "max_attempts": 1}')
    job_id = scene.add("poison")

    scene.until(lambda: scene.queue.stats()["reclaimed_total"] == 1)

    assert len(scene.notes("start")) <= 1  # none if its worker was stopped until it had lost the job
    return scene.job(job_id).status


def written_before(scene: Scene) -> str:
    """The same, with settings that are stored before the promoter starts."""
    keys = scene.queue.settings.keys
    generous = scene.worker("--burst", "--no-promoter", APP_SETTINGS="{}")
    old = [scene.add("brief") for _ in range(9)]
    scene.until(lambda: scene.is_completed(*old))
    assert generous.code() == 0
    stingy = scene.ready_worker("--no-promoter")
    scene.until(lambda: scene.client.hget(keys.settings, "visibility_ms") == str(VISIBILITY_MS))
    stingy.send(signal.SIGTERM)
    assert stingy.code() == 0
    # A claim by a program without leases, and two jobs whose workers disappear for the second time.
    unleased, suspect, last = (scene.add("brief") for _ in range(3))
    for _ in range(3):
        assert scene.queue.claim()
    scene.client.zrem(keys.leases, unleased)
    scene.client.zadd(keys.leases, {suspect: 1, last: 1})
    scene.client.hset(keys.job(suspect), mapping={"crashes": 1, "max_attempts": 9})
    scene.client.hset(keys.job(last), mapping={"crashes": 1, "attempts": 2})
    assert len(scene.state().ids("completed")) == 9

    ready_promoter(scene)
    scene.until(lambda: scene.queue.stats()["reclaimed_total"] == 2)
    leases = scene.state().holds("leases", "zset")
    left_ms = float(leases[unleased]) - scene.now_ms()

    assert leases.keys() == {unleased}
    assert 0 < left_ms <= VISIBILITY_MS
    job = scene.job(suspect)
    assert (job.status, job.run_at_ms - int(job.fields["reclaimed_at_ms"])) == ("delayed", 7000)
    scene.until(lambda: len(scene.state().ids("completed")) == 3)
    return scene.job(last).status


@together()
def test_a_promoter_that_finds_no_settings_trims_nothing(make_scene: MakeScene):
    scene = make_scene(completed_history=2000)
    keys = scene.queue.settings.keys
    ids = scene.queue.enqueue_many([call("brief")] * 1200)
    assert scene.worker("--burst", "--no-promoter").code() == 0
    scene.client.delete(keys.settings)
    with scene.client.pipeline(transaction=False) as pipeline:
        for job_id in ids:
            pipeline.hset(keys.job(job_id), "completed_at_ms", 1)
        pipeline.execute()
    job_id = scene.add("brief")
    assert scene.queue.claim()
    scene.client.zrem(keys.leases, job_id)

    ready_promoter(scene)
    scene.until(lambda: scene.client.zcard(keys.leases) == 1)  # a sweep has run, which also trims

    assert len(scene.state().ids("completed")) == 1200
