"""Stacks in a worker's log: when its event loop is blocked, a handler is slow, or an operator asks."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import time

import pytest

from tests.stories.processes.scene import Process, Scene
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()


def blocks(worker: Process, words: str) -> list[str]:
    """The log entries whose first line contains these words, each with its indented lines."""
    entries = re.findall(r"^\S.*\n(?:    .*\n)*", worker.log, re.MULTILINE)
    return [entry for entry in entries if words in entry.splitlines()[0]]


def asked(scene: Scene, worker: Process, *, times: int = 1) -> str:
    """Request its stacks; returns the output so far. A long entry is written in pieces, so its end may be missing."""
    before = len(blocks(worker, "stacks of process"))
    worker.send(signal.SIGUSR1)
    scene.until(lambda: len(blocks(worker, "stacks of process")) >= before + times)
    return "".join(blocks(worker, "stacks of process")[before:])


@together()
def test_a_handler_that_blocks_the_event_loop_is_named_once_with_its_stack(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker("--watchdog", "0.2")
    job_id = scene.add("hogs", "open")

    def told() -> list[str]:
        return [
            entry for entry in blocks(worker, "has been blocked for") if f"in job {job_id}: hogs, attempt 1" in entry
        ]

    scene.until(told)
    time.sleep(0.5)  # time for a second message
    scene.open("open")
    scene.until(lambda: scene.is_completed(job_id))

    (entry,) = told()
    assert re.search(r"^    \s*File .*app\.py\", line \d+, in hogs$", entry, re.MULTILINE)

    def seconds() -> list[float]:
        return [float(entry.rpartition("after ")[2].split()[0]) for entry in blocks(worker, "runs again")]

    scene.until(lambda: max(seconds(), default=0) >= 0.7)


@together()
def test_a_handler_that_holds_the_interpreter_lock_is_named_too(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker("--watchdog", "0.2")

    def is_named() -> bool:
        """Run a job. If the watchdog's thread gets no processor meanwhile, it sees what runs after the job."""
        job_id = scene.add("keeps_the_interpreter", 1)
        scene.until(lambda: scene.is_completed(job_id))
        return any("in keeps_the_interpreter\n" in entry for entry in blocks(worker, ", in job "))

    scene.until(is_named)
    scene.until(lambda: blocks(worker, "runs again"))
    assert float(blocks(worker, "runs again")[0].rpartition("after ")[2].split()[0]) >= 0.2


@together()
def test_after_the_whole_process_was_stopped_no_handler_is_blamed(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker("--watchdog", "0.5")
    running = scene.add("gated", "open")
    scene.until(lambda: scene.has_started(running))

    for _ in range(3):
        worker.send(signal.SIGSTOP)
        time.sleep(0.9)
        worker.send(signal.SIGCONT)
        time.sleep(0.2)
    scene.open("open")
    scene.until(lambda: scene.is_completed(running))

    assert blocks(worker, "has been blocked for") == []


@together()
def test_the_watchdog_can_be_off(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker("--watchdog", "0")
    hog = scene.add("hogs", "open")
    scene.until(lambda: scene.has_started(hog))
    time.sleep(1.6)  # longer than the default

    scene.open("open")
    scene.until(lambda: scene.is_completed(hog))

    assert blocks(worker, "event loop") == []
    assert "schedq-watchdog" not in asked(scene, worker)


@together()
def test_a_slow_handler_is_reported_once_with_its_stack_wherever_it_runs(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker("--slow", "0.3")
    slow = {scene.add(task, "open"): task for task in ("gated", "gated_in_thread")}
    quick = scene.add("brief")

    def told(job_id: str) -> list[str]:
        return [entry for entry in blocks(worker, "is slow") if job_id in entry]

    scene.until(lambda: all(map(told, slow)))
    time.sleep(0.5)  # time for a second message
    scene.open("open")
    scene.until(lambda: scene.is_completed(quick, *slow))

    record = scene.job(quick)
    assert record.completed_at_ms - record.claimed_at_ms >= 300 or not told(quick)
    for job_id, task in slow.items():
        (entry,) = told(job_id)
        assert f"job {job_id}: {task}, attempt 1" in entry
        assert re.search(rf"app\.py\", line \d+, in {task}$", entry, re.MULTILINE)


@together()
def test_sigusr1_logs_the_stacks_of_all_threads_and_tasks_with_their_jobs(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker()
    ids = {task: scene.add(task, "open") for task in ("gated", "gated_in_thread")}
    scene.until(lambda: scene.has_started(*ids.values()))

    asked(scene, worker)
    asked(scene, worker)
    scene.open("open")
    scene.until(lambda: len(blocks(worker, " completed, ")) == len(ids))  # earlier entries are then complete

    found = blocks(worker, "stacks of process")
    assert len(found) == 2
    for text in found:
        assert re.search(rf"^    thread schedq-handler-1, job {ids['gated_in_thread']}: gated_in_thread", text, re.M)
        assert re.search(rf"^    task .*, job {ids['gated']}: gated, attempt 1$", text, re.M)
        assert re.search(r"in gated$", text, re.M)
        assert re.search(r"in gated_in_thread$", text, re.M)
        assert "thread MainThread" in text


@together()
def test_sigusr1_works_while_the_event_loop_is_blocked(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker("--watchdog", "0")
    (scene.folder / "lock").touch()
    with (scene.folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hog = scene.add("hogs_in_c", "lock")
        scene.until(lambda: scene.has_started(hog))

        asked(scene, worker)

        assert scene.job(hog).status == "processing"
    scene.until(lambda: scene.is_completed(hog))
    scene.until(lambda: f"{hog}: hogs_in_c completed" in worker.log)  # the earlier entry is then complete
    first, _, rest = "".join(blocks(worker, "stacks of process")).partition("thread MainThread")
    assert "in hogs_in_c" in first
    assert "in hogs_in_c" in rest
    assert re.search(rf"task .*, job {hog}: hogs_in_c, attempt 1\n\s+runs now.*\n(      .*\n)+.* in hogs_in_c\n", rest)


@together()
def test_the_stack_below_an_entry_is_a_field_of_it_in_json(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.worker("--log-format", "json")
    scene.until(lambda: "ready for" in worker.log)

    worker.send(signal.SIGUSR1)

    def told() -> list[dict[str, str]]:
        written = [json.loads(line) for line in worker.log.splitlines(keepends=True) if line.endswith("\n")]
        return [entry for entry in written if "stacks of process" in entry["message"]]

    scene.until(told)
    (entry,) = told()
    assert "thread MainThread" in entry["stack"]


@together()
def test_a_parent_passes_sigusr1_on_even_to_children_that_are_starting(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    parent = scene.worker("--processes", "2")
    scene.until(lambda: "worker process 1: started" in parent.log)
    parent.send(signal.SIGUSR1)  # the children may still be starting

    scene.until(lambda: scene.is_alive(parent, 2))
    scene.until(lambda: len(pids(parent)) == 2)
    asked(scene, parent, times=2)

    assert pids(parent) == parent.children
    assert parent.log.count("started, pid") == 2


def pids(parent: Process) -> set[int]:
    return {int(found) for found in re.findall(r"stacks of process (\d+)", parent.log)}


@together()
def test_a_promoter_logs_its_stacks_and_continues(scene: Scene):
    promoter = scene.start("promoter", "work")
    scene.until(lambda: "ready" in promoter.log)

    asked(scene, promoter)

    scene.until(lambda: "promoter.py" in promoter.log)
    assert promoter.is_running


@together()
def test_a_process_that_a_handler_forked_does_not_write_to_its_parent(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    worker = scene.ready_worker()

    job_id = scene.add("forks_and_is_asked")
    scene.until(lambda: scene.is_completed(job_id))

    assert scene.job(job_id).result == -signal.SIGUSR1
    assert asked(scene, worker)
    assert len(blocks(worker, "stacks of process")) == 1
