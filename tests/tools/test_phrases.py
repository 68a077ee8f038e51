"""Phrases that a native writer would not print are found where people read, and their number may only fall."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.tools import phrases


@pytest.mark.parametrize(
    ("phrase", "example"),
    [(each, text) for each in phrases.PHRASES for text in each.finds],
    ids=lambda value: str(value)[:40],
)
def test_a_phrase_is_found(phrase: phrases.Phrase, example: str) -> None:
    assert phrase.pattern.search(example)


@pytest.mark.parametrize(
    ("phrase", "example"),
    [(each, text) for each in phrases.PHRASES for text in each.leaves],
    ids=lambda value: str(value)[:40],
)
def test_plain_sentences_are_accepted(phrase: phrases.Phrase, example: str) -> None:
    assert not phrase.pattern.search(example)


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        (
            "code.py",
            '"""First.\n\nIt is written anew."""\nanew = 1  # done anew\nsay("made anew")\nx = "anew"\n',
            [3, 4, 5],
        ),
        ("move.lua", "--[[\nIt is written\nanew.\n]]\nlocal anew = 1 -- anew\n--@include anew\n", [3, 5]),
        ("page.md", "Made anew.\n\n```python\n# anew\n```\n\n`anew` and anew\n", [1, 7]),
        ("page.html", "<p class='anew'>{{ anew }} made anew</p>\n", [1]),
        ("config.toml", 'a = "anew" # made anew\n', [1]),
    ],
)
def test_prose_is_what_people_read(
    name: str, text: str, lines: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phrases, "ROOT", tmp_path)
    (tmp_path / name).write_text(text)

    assert sorted({found.line for found in phrases.find(name)}) == lines


def test_both_more_and_fewer_lines_than_allowed_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(phrases, "LEFT", tmp_path / "left.toml")
    monkeypatch.setattr(phrases, "find_all", lambda: [phrases.Found("a.py", 7, "anew", "again")])
    assert phrases.main(["--accept"]) == 0
    assert phrases.main([]) == 0

    monkeypatch.setattr(phrases, "find_all", lambda: [phrases.Found("a.py", n, "anew", "again") for n in (7, 9)])
    assert phrases.main([]) == 1
    assert "a.py:9: 'anew': again" in capsys.readouterr().err

    monkeypatch.setattr(phrases, "find_all", list)
    assert phrases.main([]) == 1
    assert "a.py got better" in capsys.readouterr().err
