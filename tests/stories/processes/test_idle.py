"""Idle workers send few requests to Redis, however many there are, and use almost no CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from schedq.transitions import scripts
from tests.servers import Request
from tests.stories.processes.scene import Scene
from tests.stories.processes.stage import MakeScene

pytestmark = pytest.mark.processes

LOOKS = 6
LOOK_S = 0.9
"""Seconds on Redis's clock between two looks for due jobs by one worker, at least: it rests for longer in between."""
REST_S = 9
"""The same for everything else that a worker does from time to time."""
LOOKERS = 3
"""The promoter and two that stand by."""


def looks(requests: Sequence[Request]) -> Counter[str]:
    """How often each client has looked for due jobs."""
    sha = scripts.load("promote").sha
    return Counter(request.client for request in requests if sha in request.words[:2])


def are_enough(requests: Sequence[Request]) -> bool:
    """Whether one client has looked often enough."""
    return max(looks(requests).values(), default=0) >= LOOKS


def too_many(requests: Sequence[Request]) -> dict[tuple[str, ...], int]:
    """The requests that one client sent more often than it may, and how often. It may start with two in a row."""
    window_s = requests[-1].at - requests[0].at
    look = scripts.load("promote").sha
    counts = Counter((request.client, *request.words[:2]) for request in requests)
    return {
        which: count for which, count in counts.items() if count > 2 + window_s / (LOOK_S if look in which else REST_S)
    }


def test_idle_workers_use_almost_no_requests_and_no_cpu(make_scene: MakeScene):
    """`scripts/bench` measures how many, and how much."""
    alone, crowd = make_scene(), make_scene()
    worker = alone.worker()
    ten = [crowd.worker() for _ in range(10)]
    for scene in (alone, crowd):
        scene.add("brief", delay=3600)
    alone.until(lambda: is_settled(alone, workers=1))
    crowd.until(lambda: is_settled(crowd, workers=10))

    cpu_before = worker.cpu_s
    with alone.server.requests() as of_one, crowd.server.requests() as of_ten:
        for scene, requests in ((alone, of_one), (crowd, of_ten)):
            scene.until(partial(are_enough, requests))
    cpu_s = worker.cpu_s - cpu_before

    assert too_many(of_one) == {}
    assert too_many(of_ten) == {}
    # Others may look once at the start, and one or two replace lookers that do not get the processor for a while.
    assert len([count for count in looks(of_ten).values() if count > 1]) <= LOOKERS + 2
    assert cpu_s / looks(of_one).total() < 0.1
    assert all(process.is_running for process in (worker, *ten))


def test_a_single_process_under_a_parent_sends_its_claims_behind_its_waits(make_scene: MakeScene):
    scene = make_scene()
    scene.worker("--processes", "1")
    scene.until(lambda: is_settled(scene, workers=1))
    claim = scripts.load("claim").sha

    with scene.server.requests() as requests:
        job_id = scene.add("brief")
        scene.until(lambda: scene.is_completed(job_id))
        scene.until(lambda: any("BZPOPMIN" in request.words for request in requests))

    (first, *_) = [request.client for request in requests if claim in request.words[:2]]
    assert first in [request.client for request in requests if "BZPOPMIN" in request.words]


def is_settled(scene: Scene, workers: int) -> bool:
    """Whether all workers wait for jobs, and know which of them look for due ones."""
    keys = scene.queue.settings.keys
    standbys = [name for name in scene.client.hmget(keys.standbys, "first", "second") if name]
    return (
        scene.waiting() == workers
        and scene.client.zcard(keys.workers) == workers
        and 1 + len(standbys) == min(workers, LOOKERS)
    )
