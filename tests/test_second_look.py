"""`scripts/test` looks once more at few failures. What pytest does then is seen by running it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "scripts"))
import second_look


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pytest notes what failed."""
    monkeypatch.setattr(second_look, "FAILED", tmp_path / "lastfailed")
    return tmp_path / "lastfailed"


def test_few_failures_are_named_and_looked_at_once_more(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed.write_text(json.dumps({"tests/test_b.py::test_two": True, "tests/test_a.py::test_one": True}))

    assert second_look.main(2) == 0

    assert capsys.readouterr().out.split()[-2:] == ["tests/test_a.py::test_one", "tests/test_b.py::test_two"]


def test_many_failures_are_no_accident(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed.write_text(json.dumps({f"tests/test_a.py::test_{n}": True for n in range(3)}))

    assert second_look.main(2) == 1

    assert capsys.readouterr().out == ""


def test_a_run_that_noted_no_failure_is_not_repeated(failed: Path) -> None:
    assert second_look.main(2) == 1
