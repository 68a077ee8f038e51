"""Workers that die or freeze in the middle of a job: others finish it, and it is finished only once."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from schedq.transitions import scripts
from tests.proxy import Proxy
from tests.stories.processes.scene import Process, Scene, each
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()

VISIBILITY_MS = 4000
"""A worker that is stopped for two seconds keeps its jobs."""
MARGIN_MS = 30_000
GOOD = 9


@together()
def test_a_killed_workers_job_is_finished_by_another_one_in_time(make_scene: MakeScene):
    took_ms = each(
        [kill_a_worker, kill_the_holder_of_the_promoter_lease, kill_between_claim_and_start],
        lambda act: act(make_scene(visibility_ms=VISIBILITY_MS)),
    )
    assert max(took_ms) <= VISIBILITY_MS + MARGIN_MS, took_ms


def kill_a_worker(scene: Scene) -> float:
    return kill_in_mid_job(scene, "--no-promoter")


def kill_the_holder_of_the_promoter_lease(scene: Scene) -> float:
    return kill_in_mid_job(scene)


def kill_in_mid_job(scene: Scene, *options: str) -> float:
    """The milliseconds after which the job was finished."""
    killed = scene.ready_worker(*options)
    job_id = scene.add("gated", "never")
    scene.until(lambda: scene.has_started(job_id))
    other = scene.ready_worker()
    scene.until(lambda: scene.client.exists(scene.queue.settings.keys.promoter))
    first_end = scene.state().holds("leases", "zset")[job_id]
    scene.until(lambda: scene.state().holds("leases", "zset")[job_id] != first_end)

    killed.kill()  # right after a renewal, the worst case
    killed_at_ms = scene.now_ms()
    scene.until(lambda: scene.is_completed(job_id))

    job = scene.job(job_id)
    assert (job.attempts, job.crashes, job.result) == (2, 1, other.pid)
    assert [note.pid for note in scene.notes("start")] == [killed.pid, other.pid]
    assert [(entry["outcome"], entry["worker"]) for entry in job.history] == [
        ("lost", killed.worker_ids[0]),
        ("completed", other.worker_ids[0]),
    ]
    return job.completed_at_ms - killed_at_ms


def kill_between_claim_and_start(scene: Scene) -> float:
    with Proxy(scene.server) as proxy:
        killed = scene.ready_worker(SCHEDQ_REDIS_URL=proxy.url)
        proxy.hold_late_reply("BZPOPMIN")  # the claim is behind it
        job_id = scene.add("brief")
        scene.until(lambda: scene.job(job_id).status == "processing")

        killed.kill()
        killed_at_ms = scene.now_ms()
        assert scene.notes() == []
        other = scene.worker()
        scene.until(lambda: scene.is_completed(job_id))

    job = scene.job(job_id)
    assert (job.attempts, [note.pid for note in scene.notes("start")]) == (2, [other.pid])
    return job.completed_at_ms - killed_at_ms


@together()
def test_a_lost_reply_costs_no_attempt(make_scene: MakeScene):
    assert each(["claim", "settle", "promote"], lambda move: lose_reply(make_scene(), move)) == [[1]] * 3


def lose_reply(scene: Scene, move: str) -> list[int]:
    """The attempts of a job while the reply to a request about it is lost."""
    with Proxy(scene.server) as proxy:
        worker = scene.ready_worker(SCHEDQ_REDIS_URL=proxy.url)
        first = scene.add("brief", delay=0.01)  # loads the scripts on the server
        scene.until(lambda: scene.is_completed(first) and scene.waiting())
        if move == "claim":
            proxy.lose_late_reply("BZPOPMIN")  # the claim is behind it
        else:
            proxy.lose_reply(scripts.load(move).sha)

        job_id = scene.add("brief")

        scene.until(lambda: scene.is_completed(job_id) and worker.log.count(": back after ") == 1)
        worker.send(signal.SIGTERM)
        assert worker.code() == 0
    assert scene.queue.stats()["completed_total"] == 2
    assert (proxy.faults, worker.log.count(": lost ("), worker.log.count(": back after ")) == (1, 1, 1)
    return [note.attempt for note in scene.starts()[job_id]]


@together()
def test_a_frozen_worker_changes_no_job_it_lost_and_continues_with_others(make_scene: MakeScene):
    scene = make_scene(visibility_ms=VISIBILITY_MS)
    frozen = scene.ready_worker("--concurrency", "2")  # so it has no slot for which Redis could claim
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


@together()
def test_a_worker_that_was_frozen_for_longer_than_a_lease_does_not_take_its_own_jobs_back(make_scene: MakeScene):
    scene = make_scene(visibility_ms=3000)
    worker = scene.ready_worker()
    ids = [scene.add(task, "thaw") for task in ("gated", "gated_in_thread")]
    scene.until(lambda: scene.has_started(*ids))

    def ends_ms() -> list[float]:
        return [float(end) for end in scene.state().holds("leases", "zset").values()]

    worker.send(signal.SIGSTOP)
    scene.until(lambda: scene.now_ms() > max(ends_ms()) + 500)
    worker.send(signal.SIGCONT)
    scene.until(lambda: min(ends_ms()) > scene.now_ms(), within=60)
    scene.open("thaw")
    scene.until(lambda: scene.is_completed(*ids), within=60)

    starts = scene.starts()
    assert [[note.attempt for note in starts[job_id]] for job_id in ids] == [[1], [1]]
    assert scene.queue.stats()["reclaimed_total"] == 0


@together()
def test_a_job_that_redis_claimed_for_a_frozen_worker_runs_elsewhere_when_its_lease_ends(make_scene: MakeScene):
    scenes = ((make_scene(visibility_ms=VISIBILITY_MS), is_holder) for is_holder in (True, False))
    waits_ms = each(scenes, lambda case: freeze_one_that_waits(*case))
    assert max(waits_ms) <= VISIBILITY_MS + MARGIN_MS, waits_ms


def freeze_one_that_waits(scene: Scene, is_holder: bool) -> float:
    """How long a job waits that was enqueued when the worker that had waited longest was frozen."""
    frozen = scene.ready_worker(*([] if is_holder else ["--no-promoter"]))
    other = scene.ready_worker()
    frozen.send(signal.SIGSTOP)

    job_id = scene.add("brief")
    assert scene.job(job_id).status == "processing"
    scene.until(lambda: scene.is_completed(job_id))

    job = scene.job(job_id)
    assert (job.attempts, job.result) == (2, other.pid)
    return job.started_at_ms - job.enqueued_at_ms


@together()
def test_a_job_that_kills_its_worker_fails_alone(make_scene: MakeScene):
    ends = each([fleet, pair], lambda start: run_poison(make_scene(visibility_ms=3300, backoff=0.2), start))
    assert ends == [{"failed": 1, "completed": GOOD}] * 2


def fleet(scene: Scene) -> list[Process]:
    return [scene.worker("--processes", "2", "--concurrency", "10")]


def pair(scene: Scene) -> list[Process]:
    return [scene.worker("--concurrency", "10") for _ in range(2)]


def run_poison(scene: Scene, start: Callable[[Scene], list[Process]]) -> dict[str, int]:
    """How many jobs end how, one of which kills its worker."""
    poison = scene.add("poison")
    good = [scene.add("lingers", "gate") for _ in range(GOOD)]
    running = start(scene)

    def is_over() -> bool:
        """A supervisor restarts dead workers, so this does as well."""
        for n, worker in enumerate(running):
            if not worker.is_running:
                running[n] = scene.worker("--concurrency", "10")
        if scene.job(poison).crashes:
            scene.open("gate")  # until then, the good jobs ran at the same time
        return scene.job(poison).status == "failed" and scene.is_completed(*good)

    scene.until(is_over)

    starts = scene.starts()
    assert [note.attempt for note in starts[poison]] == [1, 2, 3]
    assert len({note.pid for note in starts[poison]}) == 3
    job = scene.job(poison)
    assert (job.attempts, job.crashes) == (3, 3)
    assert "lease expired" in job.last_error
    fates = [[entry["outcome"] for entry in scene.job(job_id).history] for job_id in good]
    assert all(fate == ["lost"] * (len(fate) - 1) + ["completed"] for fate in fates)
    assert all(len(fate) <= 3 for fate in fates)
    # A worker that dies right after its claim takes claimed jobs with it that it has not started.
    assert all(1 <= len(starts[job_id]) <= len(fate) for job_id, fate in zip(good, fates, strict=True))
    assert sum(len(fate) > 1 for fate in fates) >= GOOD // 2, "they did not run at the same time"
    return {place: len(ids) for place, ids in scene.places().items()}
