"""README says of real faults what the recorded soak has found."""

from __future__ import annotations

from tests.chaos import report
from tests.chaos.faults import KINDS
from tests.chaos.run import failed


def test_readme_says_what_the_soak_has_found():
    assert report.written() == report.text(report.recorded()), "run: scripts/chaos --readme"


def test_the_soak_found_nothing_that_must_not_be():
    assert failed(report.recorded()) == []


def test_every_kind_of_fault_has_a_row_and_was_done():
    soak = report.recorded()

    assert set(report.NAMES) == set(KINDS) >= set(soak["faults"])
    assert [kind for kind, times in soak["faults"].items() if not times and kind not in soak["left_out"]] == []
