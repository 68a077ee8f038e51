"""`--processes`: a parent that forwards signals and restarts dead children."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.stories.processes.scene import LONG_GOODBYES, ROOT, Process, Scene, each, living
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()


def fleet(scene: Scene, count: int, *options: str, **environment: str) -> Process:
    """A parent whose workers are all looking for jobs."""
    started = scene.worker("--processes", str(count), *options, **environment)
    scene.until(lambda: scene.is_alive(started, count) and scene.waiting() == count, within=60)
    assert len(started.children) == count
    return started


def is_gone(pid: int) -> bool:
    return all(pid != other for other, _, _ in living())


@together()
def test_a_signal_to_the_whole_group_of_a_fleet_counts_once(make_scene: MakeScene):
    assert each([signal.SIGTERM, signal.SIGINT], lambda ending: released_by(make_scene(), ending)) == [0, 0]


def released_by(scene: Scene, ending: signal.Signals) -> int:
    """How many jobs a fleet releases when its whole group gets this signal."""
    parent = fleet(scene, 3, "--concurrency", "1", "--grace", "60")
    ids = [scene.add(task, 1) for task in ("nap", "doze", "nap")]
    scene.until(lambda: scene.has_started(*ids))

    parent.send_group(ending)

    assert parent.code() == 0
    assert scene.is_completed(*ids)
    return scene.queue.stats().released_total


@together()
def test_a_second_signal_to_a_fleet_releases_all_jobs_at_once(scene: Scene):
    parent = fleet(scene, 2, "--grace", "600")
    ids = [scene.add("stuck"), scene.add("gated", "never")]
    scene.until(lambda: scene.has_started(*ids))
    parent.send(signal.SIGTERM)
    scene.until(lambda: "stopping" in parent.log)

    parent.send(signal.SIGTERM)

    scene.until(lambda: sorted(scene.places().get("pending", ())) == sorted(ids))
    assert parent.code() == 0


@together()
def test_a_killed_parents_workers_stop_gracefully(scene: Scene):
    parent = fleet(scene, 2, "--grace", "60", **LONG_GOODBYES)
    children = parent.children
    job_id = scene.add("nap", 1)
    scene.until(lambda: scene.has_started(job_id))

    parent.kill()

    scene.until(lambda: all(map(is_gone, children)))
    assert scene.is_completed(job_id)
    assert scene.client.zcard(scene.queue.settings.keys.workers) == 0


@together()
def test_a_dead_child_is_replaced(make_scene: MakeScene):
    scene = make_scene(visibility_ms=3000)
    parent = fleet(scene, 2)
    job_id = scene.add("gated", "never")
    scene.until(lambda: scene.has_started(job_id))
    victim = scene.starts()[job_id][0].pid

    os.kill(victim, signal.SIGKILL)

    scene.until(lambda: "(SIGKILL); a new one starts" in parent.log)
    scene.until(lambda: len(parent.children) == 2)
    scene.until(lambda: scene.is_completed(job_id))
    scene.until(lambda: len(parent.worker_ids) == 3)
    assert (scene.job(job_id).attempts, scene.job(job_id).crashes) == (2, 1)
    assert victim not in parent.children


@together()
def test_a_parent_watches_over_one_process_too_and_says_how_it_died(make_scene: MakeScene):
    scene = make_scene(visibility_ms=3000)
    parent = fleet(scene, 1)
    job_id = scene.add("gated", "never")
    scene.until(lambda: scene.has_started(job_id))
    victim = scene.starts()[job_id][0].pid
    assert victim != parent.pid

    os.kill(victim, signal.SIGKILL)

    how = (
        "worker process 1: was killed from outside, often by the kernel for lack of memory (SIGKILL); a new one starts"
    )
    scene.until(lambda: how in parent.log)
    scene.until(lambda: scene.is_completed(job_id))


@together()
def test_a_child_that_a_handler_ended_with_success_is_replaced(make_scene: MakeScene):
    scene = make_scene(visibility_ms=3000)
    parent = fleet(scene, 2)

    job_id = scene.add("vanishes")

    scene.until(lambda: "ended with exit code 0; a new one starts" in parent.log)
    scene.until(lambda: scene.is_completed(job_id))
    scene.until(lambda: len(parent.worker_ids) == 3)
    assert (scene.job(job_id).attempts, scene.job(job_id).crashes) == (2, 1)


@together()
def test_a_child_that_is_asked_to_stop_is_not_replaced(scene: Scene):
    parent = fleet(scene, 2)
    keys = scene.queue.settings.keys

    for worker_id in scene.client.zrange(keys.workers, 0, -1):
        assert scene.queue.inspector.stop_worker(str(worker_id))

    assert parent.code(within=60) == 0
    assert "a new one starts" not in parent.log


@together()
def test_a_child_that_dies_at_once_is_restarted_with_growing_delays(scene: Scene):
    parent = scene.worker("--processes", "2", APP_DIES="yes")

    def waits(child: int) -> list[float]:
        lines = [line for line in parent.log.splitlines() if f"process {child}: ended with exit code 3;" in line]
        return [float(line.split()[-2]) for line in lines]

    scene.until(lambda: len(waits(1)) >= 3 and len(waits(2)) >= 3, within=90)

    assert waits(1)[:3] == waits(2)[:3] == [0.25, 0.5, 1.0]
    parent.send(signal.SIGTERM)
    code = parent.code()  # a child that was just starting dies once more, and that is an error of the stop
    assert code == int(any(line.endswith("ended with exit code 3") for line in parent.log.splitlines()))


@together()
def test_a_handlers_own_processes_can_be_terminated(scene: Scene):
    scene.worker("--processes", "2")
    job_id = scene.add("ends_a_child")

    scene.until(lambda: scene.is_completed(job_id), within=60)

    assert scene.job(job_id).result == [-signal.SIGTERM, -signal.SIGINT]


@together()
def test_children_start_as_their_parent_did_whatever_the_applications_folder_holds(scene: Scene):
    script = scene.folder / "bin" / "schedq"  # as written by an installer
    script.parent.mkdir()
    script.write_text("from schedq.cli import main\nmain()\n")
    (scene.folder / "queue.py").write_text("raise RuntimeError('this is not the standard library')\n")
    (scene.folder / "shop.py").write_text("from tests.stories.processes.app import queue\n")
    job_id = scene.add("brief")

    parent = scene.start(
        "worker",
        "shop:queue",
        "--processes",
        "2",
        "--burst",
        how={"command": (sys.executable, str(script)), "cwd": scene.folder},
        PYTHONPATH=str(ROOT),
    )

    assert parent.code(within=60) == 0
    assert scene.is_completed(job_id)
