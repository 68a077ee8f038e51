"""Workers that die or freeze in the middle of a job: others finish it, and nobody finishes it twice."""

from __future__ import annotations

import signal

import pytest

from schedq import lua
from tests.processes.conftest import MakeScene
from tests.processes.scene import Scene, each
from tests.processes.wire import Wire

pytestmark = pytest.mark.processes

VISIBILITY_MS = 2000
MARGIN_MS = 1500


def test_a_killed_workers_job_is_finished_by_another_in_time(make_scene: MakeScene):
    each(
        [kill_a_worker, kill_the_holder_of_the_promoter_lease, kill_between_claim_and_start],
        lambda act: act(make_scene(visibility_ms=VISIBILITY_MS)),
    )


def kill_a_worker(scene: Scene) -> None:
    kill_in_mid_job(scene, "--no-promoter")


def kill_the_holder_of_the_promoter_lease(scene: Scene) -> None:
    kill_in_mid_job(scene)


def kill_in_mid_job(scene: Scene, *options: str) -> None:
    killed = scene.ready_worker(*options)
    job_id = scene.add("gated", "never")
    scene.until(lambda: scene.has_started(job_id))
    other = scene.ready_worker()
    scene.until(lambda: scene.client.exists(scene.queue.settings.keys.promoter))
    first_end = scene.state().holds("leases", "zset")[job_id]
    scene.until(lambda: scene.state().holds("leases", "zset")[job_id] != first_end)

    killed.kill()  # the lease has just been renewed: it could not take longer
    killed_at_ms = scene.now_ms()
    scene.until(lambda: scene.is_completed(job_id))

    job = scene.job(job_id)
    took_ms = job.completed_at_ms - killed_at_ms
    print(f"\n{killed.arguments} killed: its job was finished after {took_ms:.0f} ms")
    assert took_ms <= VISIBILITY_MS + MARGIN_MS
    assert (job.attempts, job.crashes, job.result) == (2, 1, other.pid)
    assert [note.pid for note in scene.notes("start")] == [killed.pid, other.pid]
    assert [(entry["outcome"], entry["worker"]) for entry in job.history] == [
        ("lost", killed.worker_ids[0]),
        ("completed", other.worker_ids[0]),
    ]


def kill_between_claim_and_start(scene: Scene) -> None:
    with Wire(scene.server) as wire:
        killed = scene.ready_worker(SCHEDQ_REDIS_URL=wire.url)
        wire.lose_reply_to(lua.load("claim").sha)
        job_id = scene.add("brief")
        assert wire.lost.wait(10)

        killed.kill()
        killed_at_ms = scene.now_ms()
        assert (scene.job(job_id).status, scene.notes()) == ("processing", [])
        other = scene.worker()
        scene.until(lambda: scene.is_completed(job_id))

    job = scene.job(job_id)
    assert job.completed_at_ms - killed_at_ms <= VISIBILITY_MS + MARGIN_MS
    assert (job.attempts, [note.pid for note in scene.notes("start")]) == (2, [other.pid])


def test_a_worker_gets_back_what_an_unanswered_claim_gave_it(scene: Scene):
    with Wire(scene.server) as wire:
        worker = scene.ready_worker(SCHEDQ_REDIS_URL=wire.url)
        wire.lose_reply_to(lua.load("claim").sha)
        job_id = scene.add("brief")
        assert wire.lost.wait(10)

        wire.cut()

        scene.until(lambda: scene.is_completed(job_id))
        worker.send(signal.SIGTERM)
        assert worker.code() == 0
    assert [note.attempt for note in scene.notes("start")] == [1]
    assert (worker.log.count(": lost ("), worker.log.count(": back after ")) == (1, 1)


def test_a_frozen_worker_changes_nothing_of_what_is_anothers_and_goes_on_to_other_jobs(scene: Scene):
    frozen = scene.ready_worker()
    ids = [scene.add(task, "thaw") for task in ("gated", "gated_in_thread")]
    scene.until(lambda: scene.has_started(*ids))
    other = scene.ready_worker()

    frozen.send(signal.SIGSTOP)
    scene.until(lambda: scene.is_completed(*ids))
    before = [scene.job(job_id) for job_id in ids]
    scene.open("thaw")
    frozen.send(signal.SIGCONT)
    scene.until(lambda: frozen.log.count("too late") + frozen.log.count("lost its lease") == 2)

    assert [scene.job(job_id) for job_id in ids] == before
    assert [(job.result, job.attempts) for job in before] == [(other.pid, 2)] * 2
    starts = scene.starts()
    assert [[(note.pid, note.attempt) for note in starts[job_id]] for job_id in ids] == [
        [(frozen.pid, 1), (other.pid, 2)]
    ] * 2
    other.send(signal.SIGTERM)
    assert other.code() == 0
    later = scene.add("brief")
    scene.until(lambda: scene.is_completed(later))
    assert scene.job(later).result == frozen.pid


def test_a_wake_marker_that_a_frozen_worker_took_is_put_back(make_scene: MakeScene):
    each([True, False], lambda is_holder: lose_marker(make_scene(), is_holder))


def lose_marker(scene: Scene, is_holder: bool) -> None:
    frozen = scene.ready_worker(*([] if is_holder else ["--no-promoter"]))
    other = scene.ready_worker()
    frozen.send(signal.SIGSTOP)

    job_id = scene.add("brief")
    assert scene.client.exists(scene.queue.settings.keys.wake) == 0  # who waited longest has got it
    scene.until(lambda: scene.is_completed(job_id))

    job = scene.job(job_id)
    assert job.started_at_ms - job.enqueued_at_ms <= (3500 if is_holder else 1500)
    assert (job.attempts, job.result) == (1, other.pid)
