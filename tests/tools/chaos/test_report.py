"""The handbook's table of faults matches the recorded soak."""

from __future__ import annotations

from scripts.tools.chaos import report
from scripts.tools.chaos.faults import KINDS
from scripts.tools.chaos.run import failed


def test_the_handbook_shows_the_results_of_the_soak():
    assert report.BLOCK.read() == report.text(report.recorded()), "run: scripts/chaos --handbook"


def test_the_soak_found_no_violation():
    assert failed(report.recorded()) == []


def test_every_kind_of_fault_has_a_row_and_was_injected():
    soak = report.recorded()

    assert set(report.NAMES) == set(KINDS) >= set(soak["faults"])
    assert [kind for kind, times in soak["faults"].items() if not times and kind not in soak["left_out"]] == []
