"""`schedq worker` with --max-jobs, --max-time, --only and --except, and with tasks in several modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.processes.scene import Scene
from tests.stories.processes.stage import Together

pytestmark = pytest.mark.processes
together = Together()


@together()
def test_a_worker_that_has_run_its_jobs_exits_with_code_0(scene: Scene):
    ids = [scene.add("brief") for _ in range(3)]

    worker = scene.worker("--max-jobs", "2")

    assert worker.code() == 0
    assert [scene.is_completed(job_id) for job_id in ids] == [True, True, False]
    assert "has reached its limit of jobs or time" in worker.log


@together()
def test_a_worker_whose_time_is_over_exits_with_code_0(scene: Scene):
    assert scene.worker("--max-time", "0.5").code() == 0


@together()
def test_of_several_processes_each_is_replaced_at_once_without_an_error(scene: Scene):
    parent = scene.worker("--processes", "2", "--max-jobs", "1")
    ids = [scene.add("brief") for _ in range(5)]

    scene.until(lambda: scene.is_completed(*ids))

    assert len({note.pid for note in scene.notes("start")}) == 5
    scene.until(lambda: scene.is_alive(parent, 2))
    assert " ERROR " not in parent.log


@together()
def test_the_parent_of_a_burst_ends_with_processes_that_have_reached_their_limits(scene: Scene):
    later = scene.add("brief", delay=600)

    parent = scene.worker("--processes", "2", "--burst", "--max-time", "0.5")

    assert parent.code() == 0
    assert not scene.is_completed(later)


@together()
def test_a_worker_for_one_task_leaves_other_jobs(scene: Scene):
    mine, other = scene.add("brief"), scene.add("fails")

    assert scene.worker("--only", "brief", "--burst").code() == 0

    assert [scene.is_completed(job_id) for job_id in (mine, other)] == [True, False]


@together()
def test_a_worker_for_all_tasks_but_some_leaves_their_jobs(scene: Scene):
    mine, other = scene.add("brief"), scene.add("fails")

    assert scene.worker("--except", "fails,nap", "--burst").code() == 0

    assert [scene.is_completed(job_id) for job_id in (mine, other)] == [True, False]
    assert scene.queue.job(other).record().attempts == 0


@together()
def test_a_task_that_is_not_there_is_named_with_those_that_are(scene: Scene):
    worker = scene.worker("--only", "breif")

    assert worker.code() == 2
    assert "there is no task 'breif'; the tasks are: " in worker.log
    assert "Traceback" not in worker.log


APP = """
from schedq import Queue

queue = Queue("shop")
"""
TASKS = """
import os

from shop.app import queue

@queue.task
def {name}() -> None:
    os.write(1, b"{name} ran\\n")  # a print of a thread may be mixed with another one
"""


def make_package(folder: Path) -> None:
    """A package `shop` with a queue in one module, and tasks in others, one of them nested."""
    files = {
        "shop/__init__.py": "",
        "shop/app.py": APP,
        "shop/tasks/__init__.py": "",
        "shop/tasks/mail.py": TASKS.format(name="send"),
        "shop/tasks/deeper/__init__.py": "",
        "shop/tasks/deeper/reports.py": TASKS.format(name="report"),
        "shop/tasks/__main__.py": "raise SystemExit('must not be run')",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@together()
def test_tasks_in_the_modules_of_a_package_are_found(scene: Scene):
    make_package(scene.folder / "src")
    for task in ("send", "report"):
        scene.start("enqueue", "shop", "--task", task).code()

    options = ("--app-dir", str(scene.folder / "src"), "--import", "shop.tasks", "--burst")
    worker = scene.start("worker", "shop.app:queue", *options)

    assert worker.code() == 0, worker
    assert sorted(worker.output.splitlines()) == ["report ran", "send ran"]
    assert "ready for shop (send, report)" in worker.log or "ready for shop (report, send)" in worker.log


@together()
def test_a_missing_module_is_named_with_the_folder(scene: Scene):
    make_package(scene.folder / "src")
    worker = scene.start("worker", "shop.app:queue", "--app-dir", str(scene.folder / "src"), "--import", "shop.task")

    assert worker.code() == 2
    assert f"there is no module 'shop.task' here ({scene.folder / 'src'})" in worker.log


@together()
def test_without_a_task_the_error_says_how_to_find_them(scene: Scene):
    make_package(scene.folder / "src")
    worker = scene.start("worker", "shop.app:queue", "--app-dir", str(scene.folder / "src"))

    assert worker.code() == 2
    assert "--import" in worker.log
