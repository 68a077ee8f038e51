"""Handlers that call os.fork: a child that returns from one does not become a second worker."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from schedq.worker.forks import EXIT_CODE, _outermost
from tests.stories.processes.scene import Process, Scene
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()
TASKS = ("forks", "forks_in_thread")
WAYS = ("returns", "raises", "awaits", "in a task", "in an executor", "in a callback")


def codes(scene: Scene, *ids: str) -> list[object]:
    """The results of jobs, once all are available."""
    scene.until(lambda: scene.is_completed(*ids))
    return [scene.job(job_id).result for job_id in ids]


def works_alone(scene: Scene, worker: Process, *ids: str) -> bool:
    """Whether each job ran once, in the worker, which continues and has no child left."""
    after = scene.add("brief")
    scene.until(lambda: scene.is_completed(after))
    assert [len(scene.starts()[job_id]) for job_id in (*ids, after)] == [1] * (len(ids) + 1)
    return worker.is_running and not worker.children and len(scene.queue.list_workers()) == 1


@together()
def test_a_child_that_returns_from_an_async_handler_exits(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker("-c", "4")

    ids = [scene.add("forks", how) for how in WAYS]

    assert codes(scene, *ids) == [EXIT_CODE] * len(WAYS)
    assert works_alone(scene, worker, *ids)
    assert all(worker.log.count(f"job {job_id}: its handler called os.fork") == 1 for job_id in ids)
    assert {scene.job(job_id).attempts for job_id in ids} == {1}


@together()
def test_a_child_that_returns_from_a_plain_handler_exits(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker("-c", "4")

    ids = [scene.add("forks_in_thread", how) for how in ("returns", "raises")]

    assert codes(scene, *ids) == [EXIT_CODE, EXIT_CODE]
    assert works_alone(scene, worker, *ids)


@together()
def test_a_log_that_raises_or_waits_for_a_lost_lock_does_not_keep_a_child_alive(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker()

    ids = [scene.add(task, how) for how in ("breaks the log", "blocks the log") for task in TASKS]

    assert codes(scene, *ids) == [EXIT_CODE] * 4
    assert works_alone(scene, worker, *ids)
    assert worker.log.count("in filter") >= 2, "each child whose log waits shows its stack"


def test_on_a_loop_without_python_frames_the_handlers_code_ends_where_the_command_begins():
    """As on uvloop, which is written in C."""
    command: dict[str, Any] = {"__name__": "schedq.cli.daemon"}
    exec("def go_on(callback): return callback()", command)

    def callback() -> FrameType | None:
        return _outermost(sys._getframe(), on_loop=True)

    outermost = command["go_on"](callback)

    assert outermost is not None
    assert outermost.f_code is callback.__code__


@together()
def test_a_child_that_exits_on_its_own_is_not_touched(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker()

    ids = [scene.add("forks", "exits"), scene.add("forks_in_thread", "exits"), scene.add("forks_by_multiprocessing")]

    assert codes(scene, *ids) == [7, 7, 0]
    assert "called os.fork" not in worker.log
