"""The speed page and RESULTS.md show what the benchmarks of limits and workflows have found."""

from __future__ import annotations

import json

import pytest

from scripts.tools.bench.limits import session as limits
from scripts.tools.bench.workflows import __main__ as alone
from scripts.tools.bench.workflows import comparison


def test_the_page_has_the_stored_figures_of_workflows():
    assert alone.BLOCK.read() == alone.text(json.loads(alone.FOUND.read_text()))


@pytest.mark.parametrize("stored", [limits, comparison], ids=["limits", "workflow-peers"])
def test_the_page_and_the_results_have_the_stored_figures(stored):
    found = json.loads(stored.FOUND.read_text())

    assert stored.BLOCK.read() == stored.text(found)
    assert stored.PAGE.read() == stored.for_handbook(found)
