"""The site has a page for everything, and loads nothing from other hosts; .ci/run builds it."""

from __future__ import annotations

from pathlib import Path

import pytest

import schedq
from schedq import handbook
from scripts.docs import searches, site


def test_every_page_of_the_handbook_is_on_the_site():
    listed = [
        name for section in site.sections() for pages in section.values() for page in pages for name in page.values()
    ]

    assert sorted(["index.md", *listed]) == sorted(path.name for path in handbook.FOLDER.glob("*.md"))


def test_every_public_name_is_in_the_api_reference(tmp_path: Path):
    pages = [page for entry in site.write_reference(tmp_path / "api") for page in entry.values()]

    text = "".join((tmp_path / page).read_text() for page in pages)

    assert [name for name in schedq.__all__ if f"::: schedq.{name}\n" not in text] == ["__version__"]


def test_every_page_that_a_search_should_find_exists():
    assert set(searches.FIRST.values()) <= {topic.name for topic in handbook.topics()}


def test_a_search_that_finds_another_page_first_fails_the_build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(searches, "CHROMIUM", "chromium")
    found = {word: [page] for word, page in searches.FIRST.items()}
    monkeypatch.setattr(searches, "search", lambda _folder, _words: found)
    assert searches.main("site") == 0

    found |= {"chain": ["threat-model", "jobs"], "eager": []}

    assert searches.main("site") == 1
    assert capsys.readouterr().err.splitlines() == [
        "searches: 'eager' finds nothing, not testing",
        "searches: 'chain' finds threat-model, jobs, not batches",
    ]


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("a.html", '<script src="https://cdn.example/a.js">', ["https://cdn.example/a.js"]),
        ("a.html", "<img alt=x src=//cdn.example/a.png>", ["//cdn.example/a.png"]),
        ("a.html", '<link href="https://cdn.example/a.css" rel="stylesheet">', ["https://cdn.example/a.css"]),
        ("a.html", '<a href="https://example.com">link</a><script src="../a.js">', []),
        ("a.css", "@font-face { src: url(https://cdn.example/a.woff2) }", ["https://cdn.example/a.woff2"]),
        ("a.css", "a { background: url(../a.svg) }", []),
    ],
)
def test_files_loaded_from_elsewhere_are_found(file: str, text: str, found: list[str], tmp_path: Path):
    (tmp_path / file).write_text(text)

    assert list(site.loaded_from_elsewhere(tmp_path)) == found


@pytest.mark.parametrize(
    ("text", "code"),
    [("[a](index.md#here)", 0), ("[a](index.md#nowhere)", 1), ("[a](nowhere.md)", 1), ("![a](nowhere.svg)", 1)],
)
def test_a_link_that_leads_nowhere_fails_the_build(
    text: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "handbook"
    folder.mkdir()
    (folder / "index.md").write_text("# Handbook\n\n## Here\n\n- [Page](page.md): A page.\n")
    (folder / "page.md").write_text(f"# Page\n\n{text}\n")
    monkeypatch.setattr(handbook, "FOLDER", folder)
    monkeypatch.setattr(site, "STAGE", tmp_path / "stage")
    monkeypatch.setattr(site, "REFERENCE", {"Names": schedq.__all__})
    monkeypatch.setattr(site, "entry", lambda name: f"\n{name}\n")

    assert site.main(str(tmp_path / "site")) == code
    assert (tmp_path / "site" / "page" / "index.html").exists() or code
