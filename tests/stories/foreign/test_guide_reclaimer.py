"""A reclaimer written from the Redis guide next to our workers: it checks `claimed_at_ms`, which renewals advance."""

from __future__ import annotations

import pytest

from tests.stories.foreign.guide import EACH_LANGUAGE, Guide, did
from tests.stories.foreign.stage import Matrix
from tests.stories.processes import app

pytestmark = pytest.mark.processes
matrix = Matrix()
VISIBILITY_MS = 5000  # the guide's reclaimer does not wait for renewals that a pause of the machine delays


@pytest.mark.breaks("tokens", because="the guide's complete leaves its token in the hash")
@matrix(EACH_LANGUAGE, visibility_ms=VISIBILITY_MS)
def test_a_guide_reclaimer_spares_renewed_jobs_and_takes_back_those_of_dead_workers(guide: Guide):
    scene = guide.scene
    killed = scene.ready_worker("--no-promoter")
    lost = scene.add("gated", "never")
    scene.until(lambda: scene.has_started(lost))
    living = scene.ready_worker("--no-promoter")
    killed.kill()
    kept = scene.add("gated", "gate")
    scene.until(lambda: scene.has_started(kept))
    began = scene.job(kept).started_at_ms

    reclaimer = guide.start("reclaim", "--visibility-ms", VISIBILITY_MS, "--every-ms", 100)
    worker = guide.waiting_worker()
    scene.until(lambda: scene.is_completed(lost), within=60)
    scene.until(lambda: scene.now_ms() > began + 2 * VISIBILITY_MS)
    scene.open("gate")
    scene.until(lambda: scene.is_completed(kept))

    assert did("reclaimed", reclaimer) == did("completed", worker) == [lost]
    assert [note.id for note in scene.notes("start")] == [lost, kept]
    assert (scene.job(kept).result, scene.job(kept).attempts) == (living.pid, 1)
    assert (scene.job(lost).result, scene.job(lost).attempts) == ({"worker": worker.pid}, 2)
    assert scene.queue.stats()["reclaimed_total"] == 1
    # The dead worker's lease is left behind, because only our reclaimers check leases.
    assert set(scene.state().holds("leases", "zset")) == {lost}
    scene.start("promoter", app.NAME)
    scene.until(lambda: not scene.state().holds("leases", "zset"))
    assert scene.job(lost).status == "completed"
