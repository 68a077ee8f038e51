"""The effect of LTRIM and EXPIRE of the guide's workers on histories that they share with ours."""

from __future__ import annotations

import pytest

from schedq import Discard
from tests.stories.foreign.guide import EACH_LANGUAGE, Guide, did
from tests.stories.foreign.stage import Matrix

pytestmark = pytest.mark.processes
matrix = Matrix()
OURS = 60
KEPT = 50


@pytest.mark.breaks("places", because="the guide's LTRIM takes entries out of the histories and leaves the records")
@pytest.mark.breaks("totals", because="so there are fewer entries than were counted")
@pytest.mark.breaks("tokens", because="the guide's complete leaves its token in the hash")
@matrix(EACH_LANGUAGE)
def test_a_guide_worker_cuts_the_shared_histories_to_its_own_length(guide: Guide):
    scene, queue = guide.scene, guide.scene.queue
    keys = queue.settings.keys
    ids = queue.enqueue_many(range(2 * OURS))
    for job_id in ids[:OURS]:
        job = queue.claim(0)
        assert job is not None
        assert job.id == job_id
        assert queue.complete(job)
    for _ in range(OURS):
        job = queue.claim(0)
        assert job is not None
        assert queue.fail(job, Discard("no use"))
    theirs = [queue.enqueue("done"), queue.enqueue("failed"), queue.enqueue("failed")]
    workers = [guide.worker("--jobs", 1)]
    assert workers[0].code() == 0
    workers.append(guide.worker("--jobs", 2, "--max-attempts", 1, "--fail", "no luck"))
    assert workers[1].code() == 0
    assert did("completed", *workers) + did("failed", *workers) == theirs

    # The lists are cut to 50, the guide's limit; our limits are far higher.
    state = scene.state()
    assert state.ids("completed") == [*ids[:OURS], theirs[0]][-KEPT:]
    assert state.ids("failed") == [*ids[OURS:], *theirs[1:]][-KEPT:]
    # Records of completed jobs expire as before: ours after `completed_ttl`, theirs after five minutes.
    cut_off = ids[: OURS - KEPT + 1]
    assert {scene.job(job_id).status for job_id in cut_off} == {"completed"}
    assert all(scene.client.ttl(keys.job(job_id)) > 3000 for job_id in cut_off)
    assert 0 < scene.client.ttl(keys.job(theirs[0])) <= 300
    # Our failed jobs are kept forever but are in no list: only callers with the id can find and requeue them.
    cut_off = ids[OURS : 2 * OURS - KEPT + 2]
    assert {scene.client.ttl(keys.job(job_id)) for job_id in cut_off} == {-1}
    assert not set(cut_off) & {job.id for job in queue.list_failed(limit=1000)}
    assert queue.requeue(cut_off[0])
    assert scene.job(cut_off[0]).status == "pending"
    # Their failed jobs expire, but no longer once they are requeued.
    assert 0 < scene.client.ttl(keys.job(theirs[1])) <= 300
    assert queue.requeue(theirs[1])
    assert scene.client.ttl(keys.job(theirs[1])) == -1
    # The entries of expired jobs stay in the list, but such jobs are not shown and can't be requeued.
    scene.client.delete(keys.job(theirs[2]))
    assert state.ids("failed")[-1] == theirs[2]
    assert theirs[2] not in {job.id for job in queue.list_failed(limit=1000)}
    assert not queue.requeue(theirs[2])
    assert queue.get_job(theirs[2]) is None
