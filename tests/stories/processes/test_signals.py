"""SIGTERM and SIGINT: running jobs may finish, the others are released, and nothing delays the exit."""

from __future__ import annotations

import signal
import time

import pytest

from tests.stories.processes.scene import LONG_GOODBYES, Scene, each
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()

ENDINGS = (signal.SIGTERM, signal.SIGINT)


@together()
def test_a_worker_that_is_asked_to_stop_lets_its_jobs_finish_and_claims_no_more(make_scene: MakeScene):
    found = each(ENDINGS, lambda ending: stop_gracefully(make_scene(), ending))
    assert found == [{"completed": 2, "pending": 2}] * 2


def stop_gracefully(scene: Scene, ending: signal.Signals) -> dict[str, int]:
    """Where four jobs are, of which the worker ran two, when it has stopped."""
    worker = scene.ready_worker("--concurrency", "2", "--grace", "60", **LONG_GOODBYES)
    running = [scene.add("gated", "open"), scene.add("gated_in_thread", "open")]
    scene.until(lambda: scene.has_started(*running))
    waiting = [scene.add("brief"), scene.add("brief")]

    worker.send(ending)
    scene.until(lambda: "stopping" in worker.log)
    scene.open("open")

    assert worker.code() == 0
    assert scene.is_completed(*running)
    assert scene.places()["pending"] == waiting
    assert scene.queue.stats()["released_total"] == 0
    assert scene.client.zcard(scene.queue.settings.keys.workers) == 0
    assert scene.client.exists(scene.queue.settings.keys.promoter) == 0
    return {place: len(ids) for place, ids in scene.places().items()}


@together()
def test_jobs_that_do_not_end_in_time_go_to_the_front_and_keep_their_attempts(make_scene: MakeScene):
    assert each(ENDINGS, lambda ending: stop_short(make_scene(), ending)) == [{1}, {1}]


def stop_short(scene: Scene, ending: signal.Signals) -> set[int]:
    """The attempts of jobs that two workers ran, one of which stopped too soon."""
    worker = scene.ready_worker("--concurrency", "4", "--grace", "0.3")
    unending = [scene.add(task) for task in ("stuck", "stuck_in_executor", "deaf")]
    unending.append(scene.add("gated", "never"))
    scene.until(lambda: scene.has_started(*unending))
    waiting = [scene.add("brief") for _ in range(3)]

    sent_at = time.monotonic()
    worker.send(ending)
    scene.until(lambda: scene.queue.stats()["released_total"] == 4)

    assert time.monotonic() - sent_at >= 0.25
    assert " 0.3 s to finish" in worker.log
    (line,) = scene.places().values()
    assert (set(line[:4]), line[4:]) == (set(unending), waiting)
    other = scene.worker("--concurrency", "1")
    scene.until(lambda: scene.is_completed(*unending, *waiting))
    assert worker.code() == 0
    assert [note.id for note in scene.notes("start")][4:] == line
    assert {note.pid for note in scene.notes("start")} == {worker.pid, other.pid}
    assert [entry["outcome"] for entry in scene.job(unending[0]).history] == ["released", "completed"]
    return {note.attempt for note in scene.notes("start")}


@together()
def test_a_second_signal_releases_all_jobs_at_once(make_scene: MakeScene):
    tasks = [("gated", "gated_in_thread"), ("stuck",), ("stuck_in_executor",), ("deaf",)]
    pairs = [(one, other) for one in ENDINGS for other in ENDINGS]
    attempts = each(zip(tasks, pairs, strict=True), lambda case: stop_twice(make_scene(), *case))
    assert attempts == [[0, 0], [0], [0], [0]]


def stop_twice(scene: Scene, tasks: tuple[str, ...], endings: tuple[signal.Signals, signal.Signals]) -> list[int]:
    """The attempts that count of jobs whose worker gets two signals."""
    worker = scene.ready_worker("--grace", "600")
    ids = [scene.add(task, *(["never"] if task.startswith("gated") else [])) for task in tasks]
    scene.until(lambda: scene.has_started(*ids))
    worker.send(endings[0])
    scene.until(lambda: "stopping" in worker.log)
    assert set(scene.places()) == {"processing"}

    worker.send(endings[1])
    scene.until(lambda: sorted(scene.places().get("pending", ())) == sorted(ids))

    assert worker.code() == 0
    return [scene.job(job_id).attempts for job_id in ids]


@together()
def test_an_idle_worker_and_an_idle_promoter_stop_at_once(scene: Scene):
    worker, promoter = scene.ready_worker(), scene.start("promoter", "work")
    scene.until(lambda: "ready" in promoter.log)

    sent_at = time.monotonic()
    for process in (worker, promoter):
        process.send(signal.SIGTERM)

    assert [worker.code(), promoter.code()] == [0, 0]
    assert time.monotonic() - sent_at < 25


@together()
def test_without_redis_an_idle_worker_stops_nearly_as_fast(make_scene: MakeScene):
    took_s = each(("killed", "killed before the start"), lambda case: stop_without_redis(make_scene(), case))
    assert max(took_s) < 25  # one second for deregistering, 6 while a claim may be in flight


def stop_without_redis(scene: Scene, case: str) -> float:
    """How many seconds it takes."""
    if case == "killed":
        worker = scene.ready_worker()
        scene.server.kill()
    else:
        scene.server.kill()
        worker = scene.worker()
    scene.until(lambda: "lost (" in worker.log)
    time.sleep(0.5)  # it keeps trying

    sent_at = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.code() == 0
    return time.monotonic() - sent_at


@together()
def test_a_burst_ends_when_all_jobs_are_done_including_later_ones(scene: Scene):
    ids = [scene.add("brief"), scene.add("nap", 0.2), scene.add("brief", delay=1.2), scene.add("fails")]
    single, fleet = scene.worker("--burst"), scene.worker("--burst", "--processes", "2")

    assert [single.code(within=60), fleet.code(within=60)] == [0, 0]

    assert scene.is_completed(*ids[:3])
    assert scene.job(ids[3]).status == "failed"
    assert [note.attempt for note in scene.starts()[ids[3]]] == [1, 2, 3]
    assert scene.places().keys() == {"completed", "failed"}


@together()
def test_a_handlers_task_that_exits_the_process_fails_only_its_job(make_scene: MakeScene):
    scene = make_scene()
    worker = scene.ready_worker("-c", "2")
    other = scene.add("gated", "gate")
    scene.until(lambda: other in scene.starts())

    job_id = scene.add("exits_in_a_task", max_attempts=1)

    scene.until(lambda: scene.job(job_id).status == "failed")
    assert scene.job(job_id).last_error == "SystemExit: 3"
    scene.open("gate")
    scene.until(lambda: scene.is_completed(other))
    assert worker.is_running
    assert scene.job(other).attempts == 1
