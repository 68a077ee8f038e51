"""`scripts/bench --limits` with little to do: each part works; how fast is not tested."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scripts.tools.bench import arena
from scripts.tools.bench.__main__ import main
from scripts.tools.bench.arena import Arena
from scripts.tools.bench.entries import SCHEDQ, Contestant
from scripts.tools.bench.environments import Environments
from scripts.tools.bench.limits import costs, running, session
from scripts.tools.bench.limits.rows import ROWS, TARGETS
from scripts.tools.bench.limits.session import limited
from tests.servers import TOPOLOGY
from tests.tools.test_bench import found

runs = pytest.mark.skipif(
    TOPOLOGY != "single" or not sys.platform.startswith("linux"), reason="it measures on one server, and reads /proc"
)


class Here(Environments):
    """The tests' own environment has everything that schedq needs."""

    def command(self, contestant: Contestant) -> list[str]:
        return [sys.executable, str(arena.APPS / f"{contestant.app}.py")]


@runs
def test_scripts_with_limits_are_measured_beside_plain_ones():
    figures = costs.beside_plain(None, keys=3, rounds=2, limits=costs.ALL)

    assert {"claim", "settle"} < set(figures)
    assert all(float(figure) > 0 for figure in figures.values())


@runs
@pytest.mark.parametrize("measure", [costs.rest_for_one_instant, costs.limits_raised, costs.full_gate])
def test_the_longest_script_is_found_where_many_keys_change_at_once(measure: Any):
    figures = measure(None, keys=200)

    assert figures["max ms"] > 0
    assert figures["of"] > 5


@runs
def test_light_keys_are_done_soon_behind_a_flood():
    assert float(costs.flood(None, jobs=200, light_keys=5, each=2)["starts"]) <= 30


@runs
@pytest.mark.processes
def test_workers_are_measured_while_they_fill_a_place_that_becomes_free(tmp_path: Path):
    make = partial(Arena, limited(SCHEDQ), Here(tmp_path, print), None)

    assert float(running.free_place(make, jobs=5)["p50 ms"]) > 0


def test_the_most_starts_in_any_second_are_counted_wherever_it_begins():
    assert running.most_in([0.0, 0.9, 1.0, 1.5, 1.89, 3.0], 1.0) == 4


def test_verdicts_compare_with_the_targets_and_name_what_was_measured():
    figures = {"fair-10": {"claim": 1.5, "settle": 1.3}, "gates": {"ms": 9.0}, "yardstick": {"claim of 50, ms": 4.0}}
    run = found() | {"figures": {row: {"schedq": [figures[row]]} for row in figures}, "loads": [0.5, 3.25]}

    said = session.text(run)

    assert "Load of the machine: 0.5 to 3.2." in said
    assert "| fair claim of 50, 10 keys, × plain | 1.50 | ≤ 1.6 | met |" in said
    assert "| settle 50 gated jobs, 10 keys, × plain | 1.30 | ≤ 1.25 | **not met** |" in said
    assert "| claim of 50 with 60 open gates, ms | 9 | ≤ 5 | **not met** (a plain claim of 50 took 4) |" in said
    with pytest.raises(ValueError, match=r"the load of the machine was 3.25"):
        session.write(run)


def test_every_target_has_a_row_and_help_names_the_rows():
    said = "".join(CliRunner().invoke(main, ["--help"]).output.split())

    assert {target.row for target in TARGETS} <= set(ROWS)
    assert all(name in said for name in (*ROWS, "--limits"))
