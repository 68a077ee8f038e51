"""`python -m scripts.tools.bench.workflows --peers` with little to do: each part works; how fast is not tested."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scripts.tools.bench import arena
from scripts.tools.bench.arena import Arena, Mark
from scripts.tools.bench.entries import Contestant
from scripts.tools.bench.environments import Environments
from scripts.tools.bench.workflows import comparison, measurements
from scripts.tools.bench.workflows.__main__ import main
from scripts.tools.bench.workflows.flows import FLOWS, OURS, PEERS, TITLES
from scripts.tools.bench.workflows.measurements import AFTER, CALLED, FIGURE, HELD, ROWS, Amount
from tests.servers import TOPOLOGY

SMALL = Amount(turns=2, fan_outs=1, children=30, waiting=200)
runs = pytest.mark.skipif(
    TOPOLOGY != "single" or not sys.platform.startswith("linux"), reason="it measures on one server, and reads /proc"
)


class Here(Environments):
    """The tests' own environment has everything that schedq needs."""

    def command(self, contestant: Contestant) -> list[str]:
        return [sys.executable, str(arena.APPS / f"{contestant.app}.py")]


def found(**figures: Mapping[str, Sequence[float | str]]) -> dict[str, Any]:
    """Results of a run; `row={"contestant": figures of its runs}`."""
    return {
        "date": "2026-01-01 00:00 UTC",
        "machine": {"cores": 2, "cpu": "a CPU", "memory_gib": 4, "system": "an OS", "python": "3.11.7"},
        "server": "redis-server 7.0.15",
        "quick": False,
        "versions": {name: {"a-package": "1.0"} for name in FLOWS},
        "figures": {
            row.replace("_", "-"): {who: [{FIGURE: each} for each in runs] for who, runs in measured.items()}
            for row, measured in figures.items()
        },
        "load": 0.25,
        "others": [4, 8],
        "left_out": [],
        "troubles": [],
    }


def all_found() -> dict[str, Any]:
    """Results of a run that lacks nothing."""
    return found(**{name: {who: [1.0, 2.0, 3.0] for who in row.who} for name, row in ROWS.items()})


@runs
@pytest.mark.processes
@pytest.mark.parametrize(("row", "who"), [(row.name, who) for row in ROWS.values() for who in row.who if who in OURS])
def test_each_row_can_be_measured(row: str, who: str, tmp_path: Path):
    make = partial(Arena, FLOWS[who], Here(tmp_path, print), None)

    assert float(ROWS[row].figures(make, SMALL)[FIGURE]) > 0


def marks(turn: float, *instants: tuple[int, float]) -> list[Mark]:
    return [Mark(number, turn, at, 1) for number, at in instants]


def test_a_continuation_is_measured_from_the_last_child_that_ended_in_its_turn():
    later = marks(1, (CALLED, 20.0), (0, 21.0), (1, 24.0), (AFTER, 24.5))
    first = marks(0, (CALLED, 10.0), (1, 11.0), (0, 12.0), (AFTER, 12.25))

    turns = measurements.by_turn([*later, *first])

    assert [measurements.gap_ms(turn) for turn in turns] == [250, 500]
    assert [measurements.rate(turn) for turn in turns] == [pytest.approx(2 / 2.25), pytest.approx(2 / 4.5)]


def test_the_pace_of_a_sequence_is_that_between_its_first_and_its_last_step():
    turn = marks(0, (CALLED, 1.0), (0, 2.0), (1, 2.5), (2, 3.0))

    assert measurements.pace(turn) == 2


def test_the_held_child_is_marked_and_is_none_of_those_that_have_ended():
    turn = marks(0, (0, 1.0), (HELD, 2.0), (AFTER, 3.0))

    assert [mark.number for mark in measurements.children(turn)] == [0]


@pytest.mark.parametrize("file", ["flowing.py", "flow_bullmq_node.js"])
def test_the_numbers_of_marks_mean_the_same_in_all_programs(file: str):
    text = (arena.APPS / file).read_text()
    numbers = {name: int(value.replace("_", "")) for name, value in re.findall(r"\b([A-Z]+) = (\d[\d_]+)", text)}

    assert (numbers["HELD"], numbers["CALLED"], numbers["AFTER"]) == (HELD, CALLED, AFTER)


def test_the_table_has_medians_and_tells_what_failed_from_what_an_engine_does_not_have():
    run = found(
        after={"schedq": [3.0, 1.0, 2.0], "rq": [9.5]},
        chain={"rq": [250.0]},
        killed={"schedq": [4.25], "rq": ["no (waited 100 s)"], "dbos": [1.5]},
    )

    said = comparison.text(run)

    assert "Load at the start: 0.2. Other processes took 6 % of a core, at most 8 %." in said
    assert "| figure | schedq | RQ | DBOS |" in said
    assert "| from the last of 100 children to the continuation, ms | 2 | 9.50 | n/a |" in said
    assert "| a chain of 100 jobs, jobs/s | n/a | 250 | – |" in said
    assert "continuation after, s | 4.25 | no (waited 100 s) | 1.50 |" in said
    assert "- RQ (a-package 1.0): enqueue_many and a job with depends_on" in said


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"quick": True}, "a full run"),
        ({"load": 1.6}, "the machine was busy: load 1.6"),
        ({"others": [10, 90]}, "others 50 % of a core"),
        ({"figures": found(after={"schedq": [1.0]})["figures"]}, "after of schedq_map, after of celery"),
    ],
)
def test_figures_of_a_busy_machine_or_of_some_rows_do_not_go_to_the_handbook(change: dict[str, Any], why: str):
    assert comparison.refusal(all_found()) == ""
    assert why in comparison.refusal(all_found() | change)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--peers", "sidekiq"), f"no engine 'sidekiq'; available: {', '.join(PEERS)}"),
        (("--peers", "--only", "waits"), f"no row 'waits'; available: {', '.join(ROWS)}"),
        (("--runs", "2"), "--runs is for --peers"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_measured(words: tuple[str, ...], complaint: str):
    result = CliRunner().invoke(main, words)

    assert (result.exit_code, complaint in result.output) == (2, True), result.output


@pytest.mark.parametrize("name", FLOWS)
def test_every_engine_has_a_program_a_title_and_settings(name: str):
    entry = FLOWS[name]

    assert (arena.APPS / f"{entry.app}{'.py' if entry.is_python else '.js'}").exists()
    assert TITLES[name]
    assert entry.set_up
    assert entry.short
    assert any(name in row.who for row in ROWS.values())
