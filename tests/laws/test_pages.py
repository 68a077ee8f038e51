"""The README and the handbook are correct: their code runs, their names and links exist."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from schedq import Queue, embedded
from schedq.handbook import FOLDER
from scripts.tools.handbook import CodeBlock, all_blocks, blocks
from tests.cases import for_each
from tests.pages import PAGES, ROOT, page
from tests.servers import Server

PYTHON = {name: found for name, text in PAGES.items() if (found := blocks(text, "python"))}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
RUN_ALL = """
import runpy, sys, traceback
for name in sys.argv[1:]:
    try:
        runpy.run_path(name, run_name="__main__" if name.startswith("block-") else "saved")
    except BaseException:
        print(name, traceback.format_exc(limit=-1), sep=": ")
"""


@pytest.fixture(scope="module")
def durable() -> Iterator[Server]:
    with Server(appendonly=True, appendfsync="always") as server:
        yield server


@pytest.mark.processes
def test_every_block_of_the_readme_runs_as_pasted(durable: Server, tmp_path: Path) -> None:
    """Runs next to the files that it says to save. scripts.tools.pages runs the handbook, workers and all."""
    paths = []
    for number, block in enumerate(PYTHON["README.md"]):
        paths.append(block.path or f"block-{number}.py")
        (tmp_path / paths[-1]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / paths[-1]).write_text(block.code)
    path = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "examples")))
    settings = {"PYTHONPATH": path}
    try:
        said = subprocess.run(
            [sys.executable, "-c", RUN_ALL, *paths],
            cwd=tmp_path,
            env=os.environ | settings | {"SCHEDQ_REDIS_URL": durable.unix_url},
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        embedded.stop_server(tmp_path / "data")

    assert (said.stdout, said.returncode) == ("", 0), said.stdout + said.stderr


@for_each(PAGES)
def test_every_row_belongs_to_a_table(name: str) -> None:
    lines = ["", *FENCED.sub("", PAGES[name]).splitlines(), ""]
    tables = [n for n, line in enumerate(lines) if line.startswith("|") and not lines[n - 1].startswith("|")]

    assert [lines[n] for n in tables if not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", lines[n + 1])] == []


@for_each((block for found in PYTHON.values() for block in found), name=lambda block: repr(block.code))
def test_every_name_that_the_code_uses_exists(block: CodeBlock) -> None:
    tree = ast.parse(block.code)

    imported = [
        (str(node.module), name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("schedq", "schedq.dashboard")
        for name in node.names
    ]
    verbs = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "queue"
    ]

    assert [name for module, name in imported if name not in importlib.import_module(module).__all__] == []
    assert [verb for verb in verbs if not hasattr(Queue, verb)] == []


def test_every_verb_in_the_text_exists() -> None:
    ours = (text for name, text in PAGES.items() if "/from-" not in name)  # pages about others name theirs
    verbs = {verb for text in ours for verb in re.findall(r"`(?:job = )?queue\.(\w+)\(", text)}

    assert {"fail", "snooze", "requeue"} <= verbs
    assert {verb for verb in verbs if not hasattr(Queue, verb)} == set()


@for_each(PAGES)
def test_every_block_names_its_language(name: str) -> None:
    unnamed = [block.code for block in all_blocks(PAGES[name]) if not block.language]

    assert len(unnamed) == (name == "README.md")  # the diagram of a job's life cycle


@for_each(PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    """Resolved as on GitHub: to a file of the checkout, and to a heading in it."""
    broken = []
    for link in LINK.findall(without_code(PAGES[name])):
        target, _, anchor = link.partition("#")
        path = (ROOT / name).parent / target if target else ROOT / name
        if "://" in link:
            continue
        if not path.is_file() or (anchor and anchor not in anchors(path.read_text())):
            broken.append(link)

    assert broken == []


@for_each([name for name in PAGES if name != "README.md"])
def test_a_page_of_the_handbook_links_to_pages_of_it_only(name: str) -> None:
    """So that pages look the same on GitHub, on the site, in the terminal and in the dashboard."""
    linked = {link.partition("#")[0] for link in LINK.findall(without_code(PAGES[name])) if "://" not in link}

    assert {link for link in linked - {""} if "/" in link or not link.endswith((".md", ".svg"))} == set()


@for_each([name for name in PAGES if name != "README.md"])
def test_a_page_of_the_handbook_has_no_html_but_comments(name: str) -> None:
    assert re.findall(r"<(?!!--)/?\w[^>]*>", without_code(PAGES[name])) == []


@for_each([name for name in PAGES if name != "README.md"])
def test_lists_are_written_as_every_reader_of_markdown_wants_them(name: str) -> None:
    """After an empty line and indented by four: otherwise Python-Markdown, which builds the site, sees no list."""
    lines = FENCED.sub("", PAGES[name]).splitlines()
    item = re.compile(r"( *)(?:[-*+]|1\.) \S")

    wrong = [
        line
        for before, line in pairwise(lines)
        if (found := item.match(line))
        and (len(found[1]) % 4 or (before.strip() and not item.match(before) and not before.startswith("  ")))
    ]

    assert wrong == []


def without_code(text: str) -> str:
    """The text without fenced blocks and inline code."""
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    found: Counter[str] = Counter()
    names = set()
    for title in re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def test_the_index_lists_every_page_once_by_its_title() -> None:
    listed = re.findall(r"^- \[(.+)\]\((.+)\): .+\.$", page("index.md"), re.MULTILINE)

    assert sorted(name for _, name in listed) == sorted(
        path.name for path in FOLDER.glob("*.md") if path.stem != "index"
    )
    assert [(title, name) for title, name in listed if not page(name).startswith(f"# {title}\n")] == []
