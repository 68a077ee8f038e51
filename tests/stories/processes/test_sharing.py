"""Worker processes of one parent share a few jobs evenly, and leave no slot idle while jobs wait."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stories.processes.scene import Process, Scene, call
from tests.stories.processes.stage import Together

pytestmark = pytest.mark.processes
together = Together()


PATIENT = {"APP_WAITS_FOR_SIBLINGS": "1"}
"""A process waits until one with fewer jobs has claimed, however busy the machine is."""


def fleet(scene: Scene, processes: int, *options: str, **environment: str) -> Process:
    """A parent whose workers are all waiting for jobs."""
    started = scene.worker("--processes", str(processes), *options, **environment)
    scene.until(lambda: scene.is_alive(started, processes) and scene.waiting() == processes)
    return started


def shares(scene: Scene, ids: list[str]) -> list[int]:
    """Number of these jobs started by each process, lowest first, once all have started; then they may end."""
    scene.until(lambda: scene.has_started(*ids))
    began = Counter(note.pid for note in scene.notes("start") if note.id in ids)
    scene.open("end")
    scene.until(lambda: scene.is_completed(*ids))
    return sorted(began.values())


@together()
def test_two_processes_share_four_jobs_that_come_at_once(scene: Scene):
    fleet(scene, 2, "-c", "4", **PATIENT)

    ids = scene.queue.enqueue_many([call("computes", "end")] * 4)

    assert shares(scene, ids) == [2, 2]


@together()
def test_two_processes_share_four_jobs_that_come_one_by_one(scene: Scene):
    fleet(scene, 2, "-c", "4", **PATIENT)
    ids = []

    for _ in range(4):
        ids.append(scene.add("computes", "end"))
        scene.until(lambda: scene.has_started(*ids))

    assert shares(scene, ids) == [2, 2]


@together()
def test_three_processes_share_four_jobs(scene: Scene):
    fleet(scene, 3, "-c", "4", **PATIENT)

    ids = scene.queue.enqueue_many([call("computes", "end")] * 4)

    assert shares(scene, ids) == [1, 1, 2]


@together()
def test_jobs_that_waited_for_the_processes_are_shared_too(scene: Scene):
    ids = scene.queue.enqueue_many([call("computes", "end")] * 4)

    scene.worker("--processes", "2", "-c", "4", **PATIENT)

    assert shares(scene, ids) == [2, 2]


@together()
def test_jobs_already_held_by_a_process_count(scene: Scene):
    fleet(scene, 2, "-c", "4", **PATIENT)
    busy = [scene.add("computes", "end")]
    scene.until(lambda: scene.has_started(*busy))

    ids = scene.queue.enqueue_many([call("computes", "end")] * 3)

    assert shares(scene, [*busy, *ids]) == [2, 2]


@together()
def test_more_jobs_than_shares_fill_every_slot(scene: Scene):
    fleet(scene, 2, "-c", "3")

    ids = scene.queue.enqueue_many([call("gated_in_thread", "end")] * 9)
    scene.until(lambda: len(scene.starts()) == 6)

    assert sorted(Counter(note.pid for note in scene.notes("start")).values()) == [3, 3]
    scene.open("end")
    scene.until(lambda: scene.is_completed(*ids))


@together()
def test_while_one_process_is_stuck_the_other_takes_all(scene: Scene):
    fleet(scene, 2, "-c", "4")
    stuck = scene.add("blocks", "unblock")
    scene.until(lambda: scene.has_started(stuck))

    ids = scene.queue.enqueue_many([call("gated_in_thread", "end")] * 4)
    scene.until(lambda: scene.has_started(*ids), within=30)  # they do not wait for the stuck process

    assert shares(scene, ids) == [4]
    scene.open("unblock")
    scene.until(lambda: scene.is_completed(stuck))
