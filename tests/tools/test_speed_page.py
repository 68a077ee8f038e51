"""The speed page shows what the benchmarks of workflows have found."""

from __future__ import annotations

import json

from schedq.handbook import FOLDER
from scripts.tools.bench.workflows import __main__ as alone
from scripts.tools.bench.workflows import comparison


def page() -> str:
    return (FOLDER / "speed.md").read_text()


def test_the_page_has_the_stored_figures_of_workflows():
    assert alone.text(json.loads(alone.FOUND.read_text())) in page()


def test_the_page_has_the_stored_comparison():
    assert comparison.text(json.loads(comparison.FOUND.read_text())) in page()
