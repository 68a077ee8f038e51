"""Workers written from the Redis guide that die or freeze: their jobs are taken back and no longer belong to them."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest

from tests.proxy import Proxy
from tests.stories.foreign.guide import ALL, EACH_LANGUAGE, Guide, did, totals
from tests.stories.foreign.stage import Matrix

pytestmark = pytest.mark.processes
matrix = Matrix()


@matrix(ALL, visibility_ms=3000)
def test_a_guide_worker_that_dies_at_any_point_loses_no_job(guide: Guide):
    scene = guide.scene
    ids = [scene.add("brief") for _ in range(3)]
    with ExitStack() as stack:
        # The server has executed the request, and the worker dies before it gets the reply.
        after_move, after_note = (stack.enter_context(Proxy(scene.server)) for _ in range(2))
        after_move.hold_reply(guide.client.move.upper())
        after_note.hold_reply("EXEC")
        dying = [
            guide.worker(redis=after_move.url),
            guide.worker(redis=after_note.url),
            guide.worker("--work-ms", 600_000),
        ]
        scene.until(lambda: after_move.faults == after_note.faults == 1 and did("started", dying[2]), within=60)
        scene.until(lambda: len(claimed(guide)) == 2)
        for worker in dying:
            worker.kill()
    assert not did("started", *dying[:2])
    assert sorted(scene.state().ids("processing")) == sorted(ids)

    worker = scene.worker()
    scene.until(lambda: scene.is_completed(*ids), within=60)

    assert sorted(note.id for note in scene.notes("start")) == sorted(ids)
    assert {note.pid for note in scene.notes("start")} == {worker.pid}
    for job in map(scene.job, ids):
        assert (job.attempts, job.crashes) == (2, 1)
        assert [line["outcome"] for line in job.history] == ["lost", "completed"]
    stats = scene.queue.stats()
    assert (stats["adopted_total"], stats["reclaimed_total"]) == (3, 3)


def claimed(guide: Guide) -> list[str]:
    """The jobs whose claim has been written."""
    state = guide.scene.state()
    return [job_id for job_id in state.ids("processing") if state.job(job_id).get("claim_token")]


@matrix(EACH_LANGUAGE, visibility_ms=3000)
def test_a_guide_worker_that_was_frozen_comes_too_late_and_changes_nothing(guide: Guide):
    scene = guide.scene
    ids = [scene.add("gated", "gate") for _ in range(2)]
    late = [guide.worker("--jobs", 1, "--work-ms", 6000, *options) for options in ((), ("--fail", "no luck"))]
    scene.until(lambda: len(did("started", *late)) == 2, within=60)
    for frozen in late:
        frozen.send(signal.SIGSTOP)
    worker = scene.worker()
    scene.until(lambda: scene.has_started(*ids), within=60)
    before = scene.state()

    for frozen in late:
        frozen.send(signal.SIGCONT)
    assert [frozen.code() for frozen in late] == [0, 0]

    assert sorted(did("came too late", *late)) == sorted(ids)
    after = scene.state()
    for job_id in ids:  # the renewal is schedq's
        assert after.job(job_id) | {"claimed_at_ms": ""} == before.job(job_id) | {"claimed_at_ms": ""}
    scene.open("gate")
    scene.until(lambda: scene.is_completed(*ids))
    assert [(job.result, job.attempts) for job in map(scene.job, ids)] == [(worker.pid, 2)] * 2
    assert totals(scene, ("completed_total", "failed_total")) == {"completed_total": 2, "failed_total": 0}


@pytest.mark.breaks(
    "places", because="the guide's complete adds a job to the history without checking whether it is already there"
)
@pytest.mark.breaks("tokens", because="the guide's complete leaves its token in the hash")
@matrix(EACH_LANGUAGE, visibility_ms=2000)
def test_a_guide_worker_that_was_frozen_before_its_note_runs_the_job_again(guide: Guide):
    """Its write of the claim checks nothing, so it can't notice that it lost the job. Hence "at least once"."""
    scene = guide.scene
    done, running = scene.add("brief"), scene.add("gated", "never")
    with ExitStack() as stack:
        wires = [stack.enter_context(Proxy(scene.server)) for _ in range(2)]
        for wire in wires:
            wire.hold_reply(guide.client.move.upper())
        frozen = [guide.worker("--jobs", 1, redis=wire.url) for wire in wires]
        scene.until(lambda: all(wire.faults for wire in wires), within=60)
        ours = scene.worker()
        scene.until(lambda: scene.is_completed(done) and scene.has_started(running), within=60)

        for wire in wires:
            wire.let_go()
        assert [worker.code() for worker in frozen] == [0, 0]

    assert sorted(did("completed", *frozen)) == sorted((done, running))
    assert {note.id: note.pid for note in scene.notes("start")} == {done: ours.pid, running: ours.pid}
    scene.until(lambda: "lost" in ours.log)  # a renewal has informed our worker, which cancelled the handler
    assert [note.id for note in scene.notes("end")] == [done]
    assert scene.state().ids("completed").count(done) == 2
    assert scene.state().ids("completed").count(running) == 1
    for job in map(scene.job, (done, running)):
        assert (job.status, job.attempts, job.result["worker"] in {worker.pid for worker in frozen}) == (
            "completed",
            3,
            True,
        )
    scene.until(lambda: not scene.state().holds("leases", "zset"))
