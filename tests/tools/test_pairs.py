"""`scripts/pairs`: every row runs, and its statistics tell a slower version from noise."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.tools.pairs import __main__ as program
from scripts.tools.pairs import costs, runs
from scripts.tools.pairs.intervals import Interval
from tests.releases import ROOT
from tests.servers import TOPOLOGY, Server


def test_ratios_around_one_are_not_slower():
    found = Interval.of([0.98, 1.0, 1.02, 1.05, 0.97, 1.01, 1.04, 0.99, 1.0])

    assert found.median == 1.0
    assert found.low <= found.median <= found.high
    assert not found.is_slower


def test_one_disturbed_run_does_not_make_a_row_slower():
    assert not Interval.of([1.0] * 8 + [9.0]).is_slower


def test_a_version_that_needs_a_tenth_more_is_slower():
    assert Interval.of([1.1, 1.08, 1.12, 1.1, 1.09, 1.11, 1.07, 1.1, 1.1]).is_slower


def test_the_program_knows_every_row(monkeypatch):
    monkeypatch.setenv("PAIRS_REDIS", "redis://localhost")  # it connects only when it runs

    rows = importlib.import_module("scripts.tools.pairs.rows")

    assert tuple(rows.ROWS) == program.ROWS


@pytest.mark.processes
@pytest.mark.skipif(TOPOLOGY != "single", reason="it measures on one server")
def test_every_row_does_its_jobs_and_costs_something():
    with Server() as server:
        found = {name: program.measure(name, ROOT, server, 40) for name in program.ROWS}

    assert all(cost > 0 for cost in found.values()), found


@pytest.mark.processes
@pytest.mark.skipif(TOPOLOGY != "single", reason="it measures on one server")
def test_the_cost_of_every_part_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(costs, "run", functools.cache(runs.run))  # the job without any part runs once
    with Server() as server:
        found = list(costs.measure(server, pairs=1, jobs=20))

    assert [cost.part for cost in found] == list(costs.PARTS)
    assert all(title in costs.table(found, 1, 20) for title in costs.PARTS.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0123456", "--rows", "one"], "git has no commit 0123456 here"),
        (["--rows", "nosuch"], "no row 'nosuch'"),
        (["--pairs", "1"], "--pairs"),
    ],
    ids=["commit", "row", "pairs"],
)
def test_a_mistake_is_named(words: list[str], said: str):
    done = CliRunner().invoke(program.main, words)

    assert done.exit_code in (1, 2)
    assert said in done.output


def test_the_readme_names_its_files():
    folder = Path(program.__file__).parent

    assert all((folder / name).exists() for name in ("rows.py", "features.py", "intervals.py", "README.md"))
