"""Workers, promoters and producers of the previous and the current release share a queue, as in a rolling upgrade."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.releases import BEFORE, ROOT, unpack
from tests.stories.processes import app
from tests.stories.processes.scene import APP, Process, Scene, call
from tests.stories.processes.stage import MakeScene

pytestmark = pytest.mark.processes

OLD, NEW = "the release before", "this release"
PRODUCE = """
import json, sys
from tests.stories.processes.app import queue
jobs, options = json.loads(sys.argv[1]), json.loads(sys.argv[2])
print(json.dumps([queue.enqueue(job, **options) for job in jobs]))
"""
RESULTS = """
import json, sys
from tests.stories.processes.app import queue
print(json.dumps([queue.job(job_id).result(60) for job_id in sys.argv[1:]]))
"""
WHERE = "import schedq; print(schedq.__file__)"
NO_PROMOTER = "--no-promoter"


@pytest.fixture(scope="module")
def before(pytestconfig: pytest.Config) -> Path:
    """A folder with the package of the previous release; it stays, and with it its bytecode."""
    folder = pytestconfig.cache.mkdir(f"release-{BEFORE}")
    if not (folder / "schedq").exists():
        with tempfile.TemporaryDirectory(dir=folder) as new:
            if not unpack(BEFORE, Path(new)):
                pytest.skip(f"git does not know {BEFORE} here, as in a shallow clone")
            Path(new, "schedq").rename(folder / "schedq")
    return folder


class Upgrade:
    """A scene whose processes belong to either release."""

    def __init__(self, scene: Scene, before: Path) -> None:
        self.scene = scene
        self._before = before

    def start(self, release: str, *arguments: str, command: tuple[str, ...] = ()) -> Process:
        """A process of that release; both run the tests' application."""
        # `-m` puts the current folder first on sys.path, which is where the process that forks finds its `schedq`.
        how = {"command": command, "cwd": ROOT if release == NEW else self._before, "is_fork": True}
        return self.scene.start(*arguments, how=how, PYTHONPATH=str(ROOT))

    def says(self, release: str, program: str, *arguments: str) -> str:
        """The output of a program that ends by itself."""
        done = self.start(release, *arguments, command=("-c", program))
        assert done.code(60) == 0, repr(done)
        return done.output.strip()

    def worker(self, release: str, *options: str) -> Process:
        """A worker that has found no jobs and is waiting."""
        worker = self.start(release, "worker", APP, "--concurrency", "2", *options)
        self.scene.until(lambda: self.scene.is_alive(worker))
        return worker

    def enqueue(self, release: str, *jobs: object, **options: object) -> list[str]:
        """Store jobs; returns their ids."""
        found: list[str] = json.loads(self.says(release, PRODUCE, json.dumps(jobs), json.dumps(options)))
        return found


@pytest.fixture
def upgrade(make_scene: MakeScene, before: Path) -> Upgrade:
    """A queue whose leases outlast any pause of the machine."""
    return Upgrade(make_scene(visibility_ms=60_000), before)


@pytest.fixture
def brief_upgrade(make_scene: MakeScene, before: Path) -> Upgrade:
    """A queue with short leases, for jobs of killed workers."""
    return Upgrade(make_scene(visibility_ms=3000), before)


def test_each_process_runs_the_code_of_its_release(upgrade: Upgrade, before: Path):
    assert Path(upgrade.says(OLD, WHERE)).is_relative_to(before)
    assert Path(upgrade.says(NEW, WHERE)).is_relative_to(ROOT)


@pytest.mark.parametrize("promoter", [OLD, NEW])
def test_workers_and_producers_of_both_share_the_jobs_of_one_queue(upgrade: Upgrade, promoter: str):
    scene = upgrade.scene
    upgrade.start(promoter, "promoter", app.NAME)
    workers = [upgrade.worker(release, NO_PROMOTER) for release in (OLD, NEW)]
    naps = [call("nap", 0.05)] * 12

    ids = [
        job_id
        for release in (OLD, NEW)
        for options in ({}, {"delay": 0.3}, {"max_attempts": 2})
        for job_id in upgrade.enqueue(release, *naps, **options)
    ]
    scene.until(lambda: scene.is_completed(*ids), within=60)

    starts = scene.notes("start")
    assert Counter(note.id for note in starts) == Counter(ids)  # each once
    assert {note.pid for note in starts} == {worker.pid for worker in workers}
    assert {scene.job(job_id).attempts for job_id in ids} == {1}
    by_old, by_new = (json.loads(upgrade.says(release, RESULTS, *ids)) for release in (OLD, NEW))
    assert by_old == by_new == [scene.job(job_id).result for job_id in ids]


@pytest.mark.parametrize(("first", "then"), [(OLD, NEW), (NEW, OLD)], ids=["old, then new", "new, then old"])
def test_a_release_finishes_the_jobs_of_a_killed_worker_of_the_other(brief_upgrade: Upgrade, first: str, then: str):
    upgrade, scene = brief_upgrade, brief_upgrade.scene
    killed = upgrade.worker(first)
    (job_id,) = upgrade.enqueue(then, call("gated", "never"))
    scene.until(lambda: scene.has_started(job_id))
    other = upgrade.worker(then)

    killed.kill()  # with it goes the promoter of its release
    scene.until(lambda: scene.is_completed(job_id))

    job = scene.job(job_id)
    assert (job.attempts, job.crashes, job.result) == (2, 1, other.pid)
    assert [note.pid for note in scene.notes("start")] == [killed.pid, other.pid]


def test_a_worker_of_the_previous_release_leaves_the_headers_of_a_job_unchanged(upgrade: Upgrade):
    scene = upgrade.scene
    (job_id,) = upgrade.enqueue(NEW, call("brief"), headers={"tenant": "acme"})

    upgrade.worker(OLD)
    scene.until(lambda: scene.is_completed(job_id))

    assert scene.job(job_id).headers == {"tenant": "acme"}


def test_a_worker_of_the_release_before_runs_a_paused_task_but_leaves_held_jobs_until_it_is_resumed(upgrade: Upgrade):
    scene, queue = upgrade.scene, upgrade.scene.queue
    held = upgrade.enqueue(OLD, call("brief"), call("brief"))
    queue.pause(task="brief")
    new = upgrade.worker(NEW)
    scene.until(lambda: queue.stats()["held_depth"] == 2)
    new.kill()

    upgrade.worker(OLD)
    (passed,) = upgrade.enqueue(OLD, call("brief"))
    scene.until(lambda: scene.is_completed(passed))
    assert {scene.job(job_id).status for job_id in held} == {"pending"}
    queue.resume(task="brief")

    scene.until(lambda: scene.is_completed(*held))
    assert sorted(note.id for note in scene.notes("start")) == sorted([passed, *held])


def test_a_worker_of_the_release_before_leaves_jobs_of_a_gate_alone(upgrade: Upgrade):
    scene, queue = upgrade.scene, upgrade.scene.queue
    queue.gates.set("api", key_concurrency=1)
    gated = [queue.enqueue(call("nap", 0.2), gate="api", key="a") for _ in range(3)]

    old = upgrade.worker(OLD)
    (plain,) = upgrade.enqueue(OLD, call("brief"))
    scene.until(lambda: scene.is_completed(plain))
    assert {scene.job(job_id).status for job_id in gated} == {"pending"}
    old.kill()
    new = upgrade.worker(NEW)
    scene.until(lambda: scene.is_completed(*gated))

    starts = [note for note in scene.notes("start") if note.id in gated]
    assert [note.id for note in starts] == gated, "one at a time, in order"
    assert {note.pid for note in starts} == {new.pid}
    assert scene.job(gated[1]).started_at_ms >= scene.job(gated[0]).completed_at_ms


@pytest.mark.parametrize("then", [OLD, NEW])
def test_reports_of_a_killed_worker_are_not_shown_for_the_next_attempt(brief_upgrade: Upgrade, then: str):
    upgrade, scene = brief_upgrade, brief_upgrade.scene
    killed = upgrade.worker(NEW)
    (job_id,) = upgrade.enqueue(NEW, call("reporting", "go"))
    scene.until(lambda: scene.job(job_id).progress is not None)
    assert (scene.job(job_id).progress.fraction, scene.job(job_id).meta) == (0.5, {"by": killed.pid})
    upgrade.worker(then)

    killed.kill()
    scene.until(lambda: len(scene.notes("start")) == 2)

    job = scene.job(job_id)
    assert (job.status, job.attempts, job.progress, job.meta) == ("processing", 2, None, {})
    scene.open("go-again")
    scene.until(lambda: scene.is_completed(job_id))
    assert scene.job(job_id).progress is None


def test_a_promoter_of_the_release_before_fires_a_schedule_with_headers(upgrade: Upgrade):
    queue = upgrade.scene.queue
    queue.schedules.upsert("tick", every=1, task="brief", headers={"tenant": "acme"})

    upgrade.start(OLD, "promoter", app.NAME)
    upgrade.scene.until(lambda: queue.list_pending())

    record = queue.schedules.get("tick")
    assert record is not None
    assert (record.state, record.fields["headers"]) == ("active", '{"tenant":"acme"}')
    triggered = queue.get_job(queue.schedules.trigger("tick") or "")
    assert triggered is not None
    assert triggered.headers == {"tenant": "acme"}


@pytest.mark.parametrize(("looks", "works"), [(OLD, NEW), (NEW, OLD)], ids=["old looks", "new looks"])
def test_operators_of_one_release_see_and_move_the_jobs_of_the_other(upgrade: Upgrade, looks: str, works: str):
    scene = upgrade.scene
    (later,) = upgrade.enqueue(works, call("brief"), delay=3600)
    worker = upgrade.worker(works)

    said = json.loads(json_of(upgrade, looks, "job", later))
    assert (said["id"], said["status"]) == (later, "delayed")
    assert worker.worker_ids[0] in json_of(upgrade, looks, "workers")
    assert upgrade.start(looks, "reschedule", later, "--now").code(60) == 0
    scene.until(lambda: scene.is_completed(later))

    assert re.search(r'"completed_total":\s*1\b', json_of(upgrade, looks, "stats"))


def json_of(upgrade: Upgrade, release: str, *words: str) -> str:
    done = upgrade.start(release, *words, "--json")
    assert done.code(60) == 0, repr(done)
    return done.output
