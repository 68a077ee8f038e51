"""A worker or promoter that is killed at any line: others finish its work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from scripts.tools.crashes.lines import ROLES, Killer, sample
from tests.servers import Server

pytestmark = pytest.mark.processes
SEED, LINES = 1, 6


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_be_killed_at_any_line(server: Server, role: str):
    killer = Killer(server)

    with ThreadPoolExecutor(2) as pool:
        deaths = list(pool.map(lambda target: killer.kill(role, target), sample(killer.lines(role), LINES, SEED)))

    print(f"seed {SEED}: {sum(death.is_dead for death in deaths)} of {len(deaths)} killed")
    assert [str(death) for death in deaths if death.wrong] == []
    assert sum(death.is_dead for death in deaths) >= LINES // 2


def test_a_job_that_is_lost_with_its_worker_is_noticed(server: Server):
    """As if claimed jobs had vanished."""
    killer = Killer(server, lambda client, keys: client.unlink(keys.processing, keys.leases))
    lines = Killer(server).lines("worker")
    per_job = next(line for line in lines if line[0] == "worker/executor.py" and line[2] >= 20)

    assert "nowhere" in str(killer.kill("worker", (*per_job[:2], 5)))
