"""Idle workers send few requests to Redis, however many there are, and use almost no CPU."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.stories.processes.stage import MakeScene

pytestmark = pytest.mark.processes

WINDOW_S = 10


def test_idle_workers_use_almost_no_requests_and_no_cpu(make_scene: MakeScene, record_property):
    alone, crowd = make_scene(), make_scene()
    worker = alone.worker()
    ten = [crowd.worker() for _ in range(10)]
    for scene in (alone, crowd):
        scene.add("brief", delay=3600)
    alone.until(lambda: alone.waiting() == 1, within=60)
    crowd.until(lambda: crowd.waiting() == 10, within=60)
    time.sleep(2)  # the workers need time to notice how many they are

    cpu_before = worker.cpu_s
    with alone.server.requests() as of_one, crowd.server.requests() as of_ten:
        time.sleep(WINDOW_S)
    cpu = (worker.cpu_s - cpu_before) / WINDOW_S

    one, all_ten = len(of_one) / WINDOW_S, len(of_ten) / WINDOW_S
    print(f"\nidle: one worker {one:.1f} requests/s, {cpu:.2%} of a core; ten workers {all_ten:.1f} requests/s")
    record_property("idle", f"one={one}/s cpu={cpu:.4f} ten={all_ten}/s")
    assert 0.2 <= one <= 2.5, Counter(request.name for request in of_one)
    assert all_ten <= 10, Counter(request.name for request in of_ten)
    assert cpu < 0.03
    assert all(process.is_running for process in (worker, *ten))
