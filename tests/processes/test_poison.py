"""A job that kills its worker ends in `failed`; those that died with it do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.processes.conftest import MakeScene
from tests.processes.scene import Process, Scene, each

pytestmark = pytest.mark.processes

GOOD = 9


def fleet(scene: Scene) -> list[Process]:
    return [scene.worker("--processes", "2", "--concurrency", "10")]


def pair(scene: Scene) -> list[Process]:
    return [scene.worker("--concurrency", "10") for _ in range(2)]


def test_a_job_that_kills_its_worker_fails_alone(make_scene: MakeScene):
    each([fleet, pair], lambda start: run_poison(make_scene(visibility_ms=1000, backoff=0.2), start))


def run_poison(scene: Scene, start: Callable[[Scene], list[Process]]) -> None:
    poison = scene.add("poison")
    good = [scene.add("doze", 0.4) for _ in range(GOOD)]
    running = start(scene)

    def is_over() -> bool:
        """Whoever supervises workers starts dead ones again."""
        for n, worker in enumerate(running):
            if not worker.is_running:
                running[n] = scene.worker("--concurrency", "10")
        return scene.job(poison).status == "failed" and scene.is_completed(*good)

    scene.until(is_over, within=40)

    starts = scene.starts()
    assert [note.attempt for note in starts[poison]] == [1, 2, 3]
    assert len({note.pid for note in starts[poison]}) == 3
    job = scene.job(poison)
    assert (job.attempts, job.crashes) == (3, 3)
    assert "lease expired" in job.last_error
    fates = [[entry["outcome"] for entry in scene.job(job_id).history] for job_id in good]
    assert all(fate == ["lost"] * (len(fate) - 1) + ["completed"] for fate in fates)
    assert all(len(fate) <= 3 for fate in fates)
    assert all(len(starts[job_id]) == len(fate) for job_id, fate in zip(good, fates, strict=True))
    assert sum(len(fate) > 1 for fate in fates) >= GOOD // 2, "they were not beside it"
