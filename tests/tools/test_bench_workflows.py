"""`python -m scripts.tools.bench.workflows`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from scripts.tools.bench.workflows.__main__ import main

pytestmark = pytest.mark.processes


def test_it_measures_and_prints_a_table():
    ran = CliRunner().invoke(main, ["--quick", "--only", "callbacks"])

    assert ran.exit_code == 0, ran.output
    assert "\n| from the last child to `then`, ms | " in ran.output


def test_an_unknown_row_is_named():
    ran = CliRunner().invoke(main, ["--only", "callback"])

    assert ran.exit_code == 2
    assert (
        "no row 'callback'; available: steps, waits, children, callbacks, graphs, other_queues, million, idle"
        in ran.output
    )
