"""`schedq worker --pool process`: plain tasks in child processes of a worker that operators start, stop and kill."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.stories.processes.scene import APP, FRESH, Process, Scene, living
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()


def isolating(scene: Scene, *options: str) -> Process:
    """A worker whose plain tasks run in child processes."""
    return scene.start("worker", APP, "--pool", "process", *options, how={"command": FRESH})


@together()
def test_plain_tasks_run_in_children_and_async_ones_in_the_worker(make_scene: MakeScene):
    scene = make_scene(visibility_ms=30_000)
    worker = isolating(scene)
    plain, other = scene.add("doze", 0), scene.add("brief")

    scene.until(lambda: scene.is_completed(plain, other))

    assert scene.job(other).result == worker.pid != scene.job(plain).result


@together()
def test_lines_of_the_log_have_the_fields_of_their_job(make_scene: MakeScene):
    scene = make_scene(visibility_ms=30_000)
    worker = isolating(scene, "--log-format", "json", "--log-header", "tenant")
    job_id = scene.add("logs_a_line", headers={"tenant": "acme"})

    scene.until(lambda: scene.is_completed(job_id))

    lines = [json.loads(line) for line in worker.log.splitlines() if "from a function" in line]
    assert [(line["job_id"], line["task"], line["tenant"]) for line in lines] == [(job_id, "logs_a_line", "acme")]


@together()
def test_a_killed_child_costs_its_job_an_attempt_and_its_neighbour_nothing(make_scene: MakeScene):
    scene = make_scene(visibility_ms=30_000, max_attempts=1)
    worker = isolating(scene, "--concurrency", "2")
    neighbour = scene.add("gated_in_thread", "gate")
    scene.until(lambda: scene.has_started(neighbour))
    poison = scene.add("poison")

    scene.until(lambda: scene.job(poison).status == "failed")
    scene.open("gate")

    scene.until(lambda: scene.is_completed(neighbour))
    assert "killed from outside, often by the kernel for lack of memory (SIGKILL)" in scene.job(poison).last_error
    assert worker.is_running


@together()
def test_a_child_logs_its_stack_and_finishes_its_job_although_a_stop_reaches_it_too(make_scene: MakeScene):
    scene = make_scene(visibility_ms=30_000)
    worker = isolating(scene)
    job_id = scene.add("gated_in_thread", "gate")
    scene.until(lambda: scene.has_started(job_id))
    children = below(worker)

    for pid in children:
        os.kill(pid, signal.SIGUSR1)
    scene.until(lambda: all(f"stacks of process {pid}" in worker.log for pid in children))
    scene.until(lambda: "in gated_in_thread" in worker.log)
    for pid in (worker.pid, *children):
        signal_to(pid)
    scene.until(lambda: "stopping" in worker.log)
    scene.open("gate")

    assert worker.code() == 0
    assert scene.is_completed(job_id)
    scene.until(lambda: not children & {pid for pid, _, _ in living()})


@together()
def test_no_child_outlives_a_killed_worker(make_scene: MakeScene):
    scene = make_scene(visibility_ms=30_000)
    worker = isolating(scene)
    job_id = scene.add("gated_in_thread", "never")
    scene.until(lambda: scene.has_started(job_id))
    children = below(worker)
    assert children

    worker.kill()

    scene.until(lambda: not children & {pid for pid, _, _ in living()})
    assert scene.job(job_id).status == "processing", "no worker has ended it"
    scene.queue.cancel(job_id)


def below(worker: Process) -> set[int]:
    """The child processes of a worker that run jobs: they lead groups of their own."""
    return {pid for pid, parent, group in living() if parent == worker.pid and group == pid}


def signal_to(pid: int) -> None:
    """Ask a process to end, as systemd asks all processes of a service."""
    os.kill(pid, signal.SIGTERM)
