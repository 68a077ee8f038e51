"""Programs written from the Redis guide and schedq share a queue: each runs the other's jobs."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from schedq import NewJob
from tests.stories.foreign.guide import ALL, EACH_LANGUAGE, Client, Guide, did, lines, totals
from tests.stories.foreign.stage import Matrix
from tests.stories.processes import app
from tests.stories.processes.scene import call

pytestmark = pytest.mark.processes
matrix = Matrix()

LEAVES_IT = "the guide's complete leaves its token in the hash"
SHARED = ("enqueued_total", "completed_total", "failed_total", "reclaimed_total")
DEPTHS = ("pending_depth", "processing_depth", "completed_depth", "failed_depth")


@matrix(EACH_LANGUAGE)
def test_a_guide_producer_feeds_a_schedq_worker_that_its_marker_wakes(guide: Guide):
    scene = guide.scene
    scene.ready_worker("--no-promoter")  # only the producer can wake it
    now = guide.produce(call("brief"), "--wake")
    scene.until(lambda: scene.is_completed(now))
    overdue = guide.produce(call("brief"), "--delay-ms", 1, "--wake")
    scene.until(lambda: scene.is_completed(overdue))

    assert [note.id for note in scene.notes("start")] == [now, overdue]
    assert scene.job(now).payload == call("brief")


@matrix(EACH_LANGUAGE)
def test_a_promoter_notices_jobs_of_a_guide_producer_within_a_second(guide: Guide):
    scene = guide.scene
    events = guide.start("events")
    scene.until(lambda: scene.client.pubsub_numsub(scene.queue.settings.keys.events)[0][1])
    scene.ready_worker()
    now = guide.produce(call("brief"))
    soon = guide.produce(call("brief"), "--delay-ms", 300)
    woken = guide.produce(call("brief"), "--delay-ms", 300, "--wake")
    scene.until(lambda: scene.is_completed(now, soon, woken))

    for job_id, delay in ((now, 0), (soon, 300), (woken, 300)):
        job = scene.job(job_id)
        late_ms = job.started_at_ms - job.enqueued_at_ms - delay
        assert 0 <= late_ms < 9000  # one second, plus the delays of a busy machine; an idle worker looks after ten
    scene.until(lambda: {now, soon, woken} <= {line["id"] for line in lines(events)})
    shared = (*SHARED, *DEPTHS)
    assert guide_stats(guide) == totals(scene, shared)
    assert totals(scene, shared) == dict.fromkeys(shared, 0) | {
        "enqueued_total": 3,
        "completed_total": 3,
        "completed_depth": 3,
    }


def guide_stats(guide: Guide) -> dict[str, int]:
    done = guide.start("stats")
    assert done.code() == 0
    (line,) = lines(done)
    return line


@pytest.mark.breaks("tokens", because=LEAVES_IT)
@matrix(ALL, visibility_ms=3000)
def test_a_schedq_producer_feeds_guide_workers_now_and_later_by_schedq_promoter(guide: Guide):
    scene = guide.scene
    scene.start("promoter", app.NAME)
    scene.until(lambda: scene.client.exists(scene.queue.settings.keys.promoter))  # Node.js starts long before Python
    worker = guide.waiting_worker()
    new = [
        NewJob({"n": delay}, delay=delay) for delay in (0, 0.4, 0.2)
    ]  # stored at one instant, however slow the machine is
    payloads = dict(zip(scene.queue.enqueue_many(new), ({"n": delay} for delay in (0, 0.4, 0.2)), strict=True))
    now, last, later = payloads

    result = scene.queue.job(last).result(timeout=90)

    assert result == {"worker": worker.pid}
    assert did("started", worker) == [now, later, last]
    scene.until(lambda: did("completed", worker) == [now, later, last])
    assert {line["id"]: json.loads(line["payload"]) for line in lines(worker) if line["did"] == "started"} == payloads
    for job in map(scene.job, payloads):
        assert (job.status, job.attempts) == ("completed", 1)
        assert job.claimed_at_ms >= job.run_at_ms
    assert totals(scene, SHARED[:2]) == {"enqueued_total": 3, "completed_total": 3}
    scene.until(lambda: not scene.state().holds("leases", "zset"))  # those of jobs that the reclaimer had adopted


@pytest.mark.breaks("tokens", because=LEAVES_IT)
@matrix(EACH_LANGUAGE, visibility_ms=3000)
def test_a_job_that_one_side_fails_can_be_completed_by_the_other(guide: Guide):
    scene = guide.scene
    theirs = guide.produce(call("brief"))
    assert guide.worker("--fail", "smtp timeout", "--jobs", 1).code() == 0
    job = scene.job(theirs)
    assert (job.status, job.attempts, job.last_error) == ("pending", 1, "smtp timeout")
    assert scene.worker("--burst").code() == 0
    job = scene.job(theirs)
    assert (job.status, job.attempts, job.result) == ("completed", 2, scene.notes("end")[0].pid)

    scene.start("promoter", app.NAME)
    ours = scene.add("brief")
    claim = scene.queue.claim(5000)
    assert claim is not None
    assert scene.queue.fail(claim, "bad luck")  # retried after a second, the queue's backoff
    assert scene.job(ours).status in ("delayed", "pending")
    worker = guide.worker("--jobs", 1)
    assert worker.code() == 0

    job = scene.job(ours)
    assert (job.status, job.attempts, job.result) == ("completed", 2, {"worker": worker.pid})
    assert job.claimed_at_ms >= job.run_at_ms
    scene.until(lambda: not scene.state().holds("leases", "zset"))


@pytest.mark.breaks("tokens", because=LEAVES_IT)
@pytest.mark.breaks(
    "places", "totals", because="the guide's LTRIM takes entries out of the history and leaves the records"
)
@matrix(EACH_LANGUAGE, visibility_ms=5000)
def test_guide_workers_and_schedq_workers_share_the_jobs_of_one_queue(guide: Guide):
    scene = guide.scene
    theirs = [Guide(scene, Client(guide.client.language, move)) for move in ("blmove", "brpoplpush")]
    guides = [each.waiting_worker("--work-ms", 10) for each in theirs]
    for _ in range(2):
        scene.ready_worker("--concurrency", "2")
    made = guide.start("produce", '{"task": "nap", "args": [0.02]}', "--count", 60)
    ids = scene.queue.enqueue_many([call("nap", 0.02)] * 60)
    ids += scene.queue.enqueue_many([call("nap", 0.02)] * 30, delay=0.5)
    ids += guide.produce(call("nap", 0.02), "--count", 30, "--delay-ms", 500).split()
    assert made.code() == 0
    ids += made.output.split()
    assert len(set(ids)) == 180

    scene.until(lambda: scene.is_completed(*ids), within=60)

    done_by_ours = [note.id for note in scene.notes("start")]
    done_by_theirs = did("started", *guides)
    assert Counter(done_by_ours + done_by_theirs) == Counter(ids)  # each once, because nothing died or was slow
    assert done_by_ours
    assert all(did("completed", each) for each in guides)
    scene.until(lambda: totals(scene, SHARED) == dict.fromkeys(SHARED, 0) | dict.fromkeys(SHARED[:2], 180))
    scene.until(lambda: not scene.state().holds("leases", "zset"))
