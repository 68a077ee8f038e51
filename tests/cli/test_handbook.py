"""`schedq help` shows the handbook's pages."""

from __future__ import annotations

import re

import pytest

from schedq import handbook
from scripts.tools.handbook import all_blocks
from tests.cli.conftest import Run

NAMES = [topic.name for topic in handbook.topics()]


def test_without_a_topic_every_page_is_listed(run: Run):
    said = run("help")

    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines() if re.match(r"  \S", line)] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_page_is_shown(name: str, run: Run):
    said = run("help", name)

    assert said.code == 0
    assert handbook.read(name).partition("\n")[0].removeprefix("# ") in said.out
    assert "<!--" not in said.out
    assert ".md)" not in said.out


@pytest.mark.parametrize("name", NAMES)
def test_code_is_shown_so_that_a_copy_of_it_runs(name: str, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = [line.rstrip() for block in all_blocks(handbook.read(name)) for line in block.code.splitlines()]

    said = run("help", name).out.splitlines()

    assert [line for line in lines if line not in said] == []


@pytest.mark.parametrize("name", [name for name in NAMES if "](#" in handbook.read(name)])
def test_a_link_within_the_page_is_its_text(name: str, run: Run):
    assert "(#" not in run("help", name).out


def test_a_line_separates_blocks_that_have_no_text_between_them(run: Run):
    shown = run("help", "progress").out

    assert re.search(r"job\.update_meta\(last_page=page\)\n\s+[-─]+\n\s+from app import convert", shown)


def test_a_link_is_the_command_that_shows_the_page(run: Run):
    link = re.search(r"\[([^`\]]+)\]\(([\w-]+)\.md\)", handbook.read("operations"))
    assert link

    assert f"{link[1]} (schedq help {link[2]})" in " ".join(run("help", "operations").out.split())


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("retry", "did you mean retries?"),
        ("failed", "did you mean retries, "),
        ("noeviction", "did you mean operations"),
        ("worker", "schedq worker --help explains the command; did you mean first-worker, workers?"),
        ("cron", "schedq cron --help explains the command; did you mean schedules"),
        ("zzzz", "schedq help lists all"),
        ("../README", "schedq help lists all"),
    ],
)
def test_an_unknown_topic_gets_a_hint(asked: str, hint: str, run: Run):
    said = run("help", asked)

    assert (said.code, said.out) == (2, "")
    assert hint in said.err
