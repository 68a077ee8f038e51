"""`scripts/test` repeats a few failures; a test that passes then is flaky, and fails the run unless it is listed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.tools import second_look
from scripts.tools.second_look import FlakyTest, known, verdict

ONE, TWO = "tests/test_a.py::test_one", "tests/test_b.py::test_two"
TODAY = dt.date(2026, 11, 22)
Note = Callable[..., object]


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Note:
    """Records failed tests as pytest does."""
    monkeypatch.setattr(second_look, "CACHE", tmp_path)
    file = tmp_path / "v" / "cache" / "lastfailed"
    file.parent.mkdir(parents=True)
    return lambda *names: file.write_text(json.dumps(dict.fromkeys(names, True)))


def alone(monkeypatch: pytest.MonkeyPatch, note: Note, *still: str) -> list[list[str]]:
    """Replaces pytest: these tests fail alone, too. Returns the arguments that it got."""
    given = []

    def run(arguments: list[str]) -> int:
        given.append(arguments)
        note(*still)
        return int(bool(still))

    monkeypatch.setattr(second_look, "alone", run)
    return given


def listed(monkeypatch: pytest.MonkeyPatch, *entries: FlakyTest) -> None:
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
    assert f"flaky: {ONE} fails in the parallel run and passes alone" in said
    assert f"flaky: {TWO}" not in said


@pytest.mark.parametrize(
    ("days", "code"), [(0, 0), (60, 0), (61, 1), (-1, 1)], ids=["today", "60 days ago", "61 days ago", "tomorrow"]
)
def test_a_known_flaky_test_does_not_until_its_entry_expires(days: int, code: int, capsys: pytest.CaptureFixture[str]):
    entry = FlakyTest(ONE, TODAY - dt.timedelta(days=days), "waits for a second")

    assert verdict([ONE], 0, [entry], TODAY) == code

    assert ("known since" in capsys.readouterr().out) == (code == 0)


def test_an_entry_without_a_case_covers_all_cases():
    entry = FlakyTest(ONE, TODAY, "waits for a second")

    assert verdict([f"{ONE}[first]", f"{ONE}[second]"], 0, [entry], TODAY) == 0
    assert verdict([f"{TWO}[first]"], 0, [entry], TODAY) == 1


def test_the_failures_in_another_cache_are_repeated(note: Note, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    note(ONE)
    monkeypatch.setattr(second_look, "CACHE", tmp_path / "of another Python")
    given = alone(monkeypatch, note)
    listed(monkeypatch)

    assert second_look.main(2, ["-o", f"cache_dir={tmp_path}"]) == 1
    assert given == [["-o", f"cache_dir={tmp_path}"]]


def test_a_test_that_fails_alone_fails_the_run_even_if_it_is_known_to_be_flaky(
    note: Note, monkeypatch: pytest.MonkeyPatch
):
    note(ONE)
    alone(monkeypatch, note, ONE)
    listed(monkeypatch, FlakyTest(ONE, dt.datetime.now(tz=dt.UTC).date(), "waits for a second"))

    assert second_look.main(2, []) == 1


def test_a_run_in_which_only_known_tests_were_flaky_passes(note: Note, monkeypatch: pytest.MonkeyPatch):
    note(ONE)
    alone(monkeypatch, note)
    listed(monkeypatch, FlakyTest(ONE, dt.datetime.now(tz=dt.UTC).date(), "waits for a second"))

    assert second_look.main(2, []) == 0


@pytest.mark.parametrize("count", [0, 3])
def test_no_failure_and_many_failures_are_not_repeated(count: int, note: Note, monkeypatch: pytest.MonkeyPatch):
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

    assert [entry.id for entry in known() if not entry.is_current(today)] == [], "fix the test, or renew its reason"
