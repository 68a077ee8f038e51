"""`scripts/kit`: its 20 tests pass; how long they take is not tested."""

from __future__ import annotations

import re

import pytest

from scripts.tools.kit import __main__ as kit


@pytest.mark.processes
def test_all_tests_pass_and_the_median_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(kit, "LIMIT_S", 600.0)

    assert kit.main(["1"]) == 0

    assert re.match(r"20 tests: [\d.]+ s, the median of 1 runs", capsys.readouterr().out)
