"""A queue is never without a promoter for long, and standby costs little, however many candidates there are."""

from __future__ import annotations

import pytest

from scripts.tools.takeover import virtual
from tests.servers import Server


@pytest.mark.parametrize(("count", "beats"), [(2, False), (80, False), (1000, False), (20, True)])
def test_another_promoter_takes_over_within_the_limits_however_many_stand_by(server: Server, count: int, beats: bool):
    found = virtual.run(server, count, 30, seed=1, beats=beats)

    assert not found.misses, found.line()
    assert len(found.took_s) == 30


def test_holders_that_die_one_right_after_the_other_are_followed_as_soon(server: Server):
    found = virtual.run(server, 3, 30, seed=1, pause_s=(0.0, 1.0))

    assert not found.misses, found.line()


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_that_started_together_follow_holders_that_die_in_a_row_and_are_not_replaced(server: Server, seed: int):
    found = virtual.run(server, 80, 40, seed=seed, beats=True, pause_s=(0.0, 1.0), replaces=False)

    assert not found.misses, found.line()
