"""The search of all interleavings, in short; `scripts/explore --ci` is the long form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from schedq.transitions import scripts
from scripts.tools.explore import __main__ as script
from scripts.tools.explore.actors import enqueues, works
from scripts.tools.explore.bug import Bug, broken
from scripts.tools.explore.bugs import BUGS
from scripts.tools.explore.scenarios import SCENARIOS
from scripts.tools.explore.scenarios_of_gates import GATE_SCENARIOS
from scripts.tools.explore.scenarios_of_groups import GROUP_SCENARIOS
from scripts.tools.explore.scenarios_of_other_queues import OTHER_QUEUE_SCENARIOS
from scripts.tools.explore.scenarios_of_runs import RUN_SCENARIOS
from scripts.tools.explore.search import Actor, Scenario, Search
from scripts.tools.explore.world import World
from tests.servers import Server


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with Server() as server:
        world = World(server.socket_path)
        yield world
        world.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_schedule_breaks_a_law(world: World, scenario: Scenario) -> None:
    is_large = scenario in (*GATE_SCENARIOS, *GROUP_SCENARIOS, *OTHER_QUEUE_SCENARIOS, *RUN_SCENARIOS)
    report = Search(world, scenario, seed=1, most=20 if is_large else 100).run()

    assert report.violations == []
    assert report.schedules >= 20


@pytest.mark.parametrize("bug", BUGS[::5], ids=lambda bug: bug.name)
def test_a_bug_is_noticed(world: World, bug: Bug) -> None:
    with broken(bug):
        report = Search(world, next(s for s in SCENARIOS if s.name == bug.scenario), seed=1, most=1000).run()

    assert report.violations


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_an_injected_bug_changes_the_engine(bug: Bug) -> None:
    with broken(bug):
        assert "." in bug.script or scripts.load(bug.script) is not None
    assert bug.scenario in {scenario.name for scenario in SCENARIOS}


SMALL = Scenario(
    "two workers",
    (enqueues("j1"), enqueues("j2")),
    (Actor("one", works("w", "complete")), Actor("two", works("x", "complete"))),
    faults=0,
)
"""Two actors with two steps each, no faults: six orders."""


def test_a_small_space_is_searched_whole(world: World) -> None:
    report = Search(world, SMALL).run()

    assert (report.schedules, report.is_whole, report.violations) == (6, True, [])


@pytest.mark.parametrize(("must_be_whole", "schedules"), [(True, 6), (False, 2)])
def test_what_must_be_whole_is_searched_beyond_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch, *, must_be_whole: bool, schedules: int
) -> None:
    monkeypatch.setattr(script, "SCENARIOS", [replace(SMALL, must_be_whole=must_be_whole)])
    monkeypatch.setattr(script, "_WORLDS", [world])

    report, _ = script._search(SMALL.name, 1, 2)

    assert (report.schedules, report.is_whole) == (schedules, must_be_whole)


def test_two_schedulers_at_one_slot_are_searched_whole() -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.must_be_whole)

    assert scenario.name == "two schedulers, one slot, crash anywhere"


def test_the_same_seed_is_the_same_search(world: World) -> None:
    scenario = SCENARIOS[0]

    moves = [Search(world, scenario, seed=seed, most=50).run().moves for seed in (5, 5)]

    assert moves[0] == moves[1]
