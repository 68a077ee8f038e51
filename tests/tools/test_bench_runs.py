"""`scripts/bench` with little to do: each part works; how fast is not tested."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from scripts.tools.bench import arena, hop, limit, processes
from scripts.tools.bench.arena import Arena
from scripts.tools.bench.entries import SCHEDQ, Contestant
from scripts.tools.bench.environments import Environments
from scripts.tools.bench.scale import BARE, JOB_STATES, GrowingQueue, worst
from scripts.tools.bench.tap import Tap
from scripts.tools.bench.throughput import drain, requests
from scripts.tools.bench.timing import delayed, latency
from tests.servers import TOPOLOGY, Server

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the benchmark reads /proc"),
    pytest.mark.skipif(TOPOLOGY != "single", reason="the benchmark measures on one server"),
]
SMALL = dataclasses.replace(SCHEDQ, jobs=100)


class Here(Environments):
    """The tests' own environment has everything that schedq needs."""

    def command(self, contestant: Contestant) -> list[str]:
        return [sys.executable, str(arena.APPS / f"{contestant.app}.py")]


@pytest.fixture
def make(tmp_path: Path) -> partial[Arena]:
    return partial(Arena, SMALL, Here(tmp_path, print), None)


@pytest.mark.processes
def test_a_queue_is_filled_and_drained_by_two_processes(make: partial[Arena]):
    figures = drain(make, kind="plain", count=2, share=1.0)

    assert float(figures["jobs/s"]) > 0
    assert float(figures["commands/job"]) > 1
    assert figures["limit"]


@pytest.mark.processes
def test_requests_are_counted_for_each_way_to_enqueue(make: partial[Arena]):
    figures = requests(make, jobs=100)

    assert 1 <= float(figures["enqueue"]) < 1.5
    assert 0 < float(figures["bulk"]) < 0.2
    assert float(figures["drain"]) > 0


@pytest.mark.processes
def test_every_job_of_the_timed_rows_starts_and_none_before_its_time(make: partial[Arena]):
    now = latency(make, jobs=5, low_s=0.005, high_s=0.01)
    later = delayed(make, jobs=50, seconds=0.5, lead_s=1)

    assert float(now["p50 ms"]) > 0
    assert (later["ran"], later["starts"]) == (50, 50)
    assert float(later["earliest ms"]) >= 0


def test_the_servers_own_limit_runs_through_all_steps():
    found = limit.measure(None, jobs=200)

    assert set(found) == {"plain", "lua", "lua-50", "redis-py-1", "redis-py-10", "redis-py-50"}
    assert all(f"{step}/s" in found[way] for step in limit.STEPS for way in ("plain", "lua", "lua-50"))


@pytest.mark.processes
def test_a_bare_hop_wakes_one_process_from_another():
    found = hop.measure(None, hops=5, low_s=0.001, high_s=0.002)

    assert 0 < float(found["p50 ms"]) <= float(found["p99 ms"]) <= float(found["max ms"])


@pytest.mark.parametrize("place", JOB_STATES)
def test_a_round_of_moves_does_not_change_the_length_of_the_backlog(place: str):
    with Server() as server, server.client() as store:
        growing = GrowingQueue(server, place)
        keys = growing.keys
        depths = {"delayed": keys.delayed, "pending": keys.pending, "failed": keys.failed, "in flight": keys.processing}

        growing.grow(200)
        costs = growing.costs(2)
        left = store.zcard(keys.delayed) if place == "delayed" else store.llen(depths[place])
        growing.close()

    assert left == 200
    assert set(costs) == {"enqueue", "enqueue, later", BARE, "promote", "claim", "complete", "reclaim", "cancel"}
    assert min(costs.values()) > 0


def test_the_worst_growth_is_that_of_delayed_or_pending_jobs():
    flat = {"enqueue": {"1000": 5.0, "1000000": 5.5}, "claim": {"1000": 10.0, "1000000": 14.0}}
    steep = {"enqueue": {"1000": 5.0, "1000000": 500.0}}
    flat[BARE] = steep["enqueue"]

    assert worst({"delayed": flat, "pending": flat, "failed": steep}) == ("claim, by jobs delayed", 1.4)


def test_a_script_is_one_request(server: Server):
    with server.client() as store, Tap(server.port) as tap:
        for _ in range(3):
            store.eval("redis.call('SET', KEYS[1], 1) return redis.call('DEL', KEYS[1])", 1, "bench-tap")
        store.connection_pool.disconnect()

    greetings = 3  # CLIENT SETINFO twice and perhaps HELLO, on a new connection
    assert 4 <= tap.requests <= 4 + greetings


def test_processes_that_a_process_has_started_end_with_it():
    parent = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & echo ready; wait"], stdout=subprocess.PIPE)
    assert parent.stdout and parent.stdout.readline() == b"ready\n"
    family = processes.tree(parent.pid)

    processes.end([parent])
    parent.stdout.close()

    assert len(family) == 3
    assert [pid for pid in family if processes.is_alive(pid)] == []
