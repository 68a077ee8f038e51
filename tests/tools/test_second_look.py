"""`scripts/test` looks once more at few failures; a test that passes then is unsteady, and fails the run if unknown."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.tools import second_look
from scripts.tools.second_look import Unsteady, known, verdict

ONE, TWO = "tests/test_a.py::test_one", "tests/test_b.py::test_two"
TODAY = dt.date(2026, 11, 22)
Note = Callable[..., object]


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Note:
    """Notes what failed, as pytest does."""
    monkeypatch.setattr(second_look, "CACHE", tmp_path)
    file = tmp_path / "v" / "cache" / "lastfailed"
    file.parent.mkdir(parents=True)
    return lambda *names: file.write_text(json.dumps(dict.fromkeys(names, True)))


def alone(monkeypatch: pytest.MonkeyPatch, note: Note, *still: str) -> list[list[str]]:
    """Instead of pytest: these tests fail alone, too. What it is given."""
    given = []

    def run(arguments: list[str]) -> int:
        given.append(arguments)
        note(*still)
        return int(bool(still))

    monkeypatch.setattr(second_look, "alone", run)
    return given


def listed(monkeypatch: pytest.MonkeyPatch, *entries: Unsteady) -> None:
    monkeypatch.setattr(second_look, "known", lambda: list(entries))


def test_a_test_that_passes_alone_fails_the_run(
    note: Note, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    note(TWO, ONE)
    given = alone(monkeypatch, note, TWO)
    listed(monkeypatch)

    assert second_look.main(2, ["-q"]) == 1

    said = capsys.readouterr().out
    assert given == [["-q"]]
    assert f"unsteady: {ONE} fails beside others and passes alone" in said
    assert f"unsteady: {TWO}" not in said


@pytest.mark.parametrize(
    ("days", "code"), [(0, 0), (60, 0), (61, 1), (-1, 1)], ids=["today", "60 days ago", "61 days ago", "tomorrow"]
)
def test_one_that_is_known_does_not_while_its_entry_is_young(days: int, code: int, capsys: pytest.CaptureFixture[str]):
    entry = Unsteady(ONE, TODAY - dt.timedelta(days=days), "waits for a second")

    assert verdict([ONE], 0, [entry], TODAY) == code

    assert ("known since" in capsys.readouterr().out) == (code == 0)


def test_an_entry_without_a_case_stands_for_all_of_them():
    entry = Unsteady(ONE, TODAY, "waits for a second")

    assert verdict([f"{ONE}[first]", f"{ONE}[second]"], 0, [entry], TODAY) == 0
    assert verdict([f"{TWO}[first]"], 0, [entry], TODAY) == 1


def test_the_failures_of_another_cache_are_looked_at(note: Note, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    note(ONE)
    monkeypatch.setattr(second_look, "CACHE", tmp_path / "of another Python")
    given = alone(monkeypatch, note)
    listed(monkeypatch)

    assert second_look.main(2, ["-o", f"cache_dir={tmp_path}"]) == 1
    assert given == [["-o", f"cache_dir={tmp_path}"]]


def test_one_that_fails_alone_fails_the_run_though_it_is_known(note: Note, monkeypatch: pytest.MonkeyPatch):
    note(ONE)
    alone(monkeypatch, note, ONE)
    listed(monkeypatch, Unsteady(ONE, dt.datetime.now(tz=dt.UTC).date(), "waits for a second"))

    assert second_look.main(2, []) == 1


def test_a_run_in_which_only_known_ones_were_unsteady_is_good(note: Note, monkeypatch: pytest.MonkeyPatch):
    note(ONE)
    alone(monkeypatch, note)
    listed(monkeypatch, Unsteady(ONE, dt.datetime.now(tz=dt.UTC).date(), "waits for a second"))

    assert second_look.main(2, []) == 0


@pytest.mark.parametrize("count", [0, 3])
def test_no_failure_and_many_are_not_looked_at_again(count: int, note: Note, monkeypatch: pytest.MonkeyPatch):
    note(*(f"tests/test_a.py::test_{n}" for n in range(count)))
    given = alone(monkeypatch, note)

    assert second_look.main(2, []) == 1
    assert not given


def test_the_list_is_short_and_names_tests_that_exist():
    entries = known()

    assert len(entries) <= 10
    for entry in entries:
        file, _, name = entry.id.partition("::")
        assert f"def {name.partition('[')[0]}(" in (second_look.ROOT / file).read_text(), entry.id
        assert len(entry.reason) > 20, entry.id


def test_no_entry_is_older_than_sixty_days():
    today = dt.datetime.now(tz=dt.UTC).date()

    assert [entry.id for entry in known() if not entry.is_current(today)] == [], "mend the test, or say anew why not"
