"""What mypy and pyright report about right and wrong calls."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mypy import api

pytestmark = pytest.mark.processes

SNIPPETS = Path(__file__).parent / "typing"
FILES = ("right.py", "wrong.py")


def mypy(cache: Path) -> list[tuple[str, int, str, str]]:
    """File, line, kind and text of everything that mypy reports."""
    files = [str(SNIPPETS / name) for name in FILES]
    out, problem, _ = api.run(
        [*files, "--strict", "--cache-dir", str(cache), "--config-file", "", "--no-error-summary"]
    )
    assert not problem
    parts = (re.match(r"(.+?\.py):(\d+): (error|note): (.*)", line) for line in out.splitlines())
    return [(Path(part[1]).name, int(part[2]), part[3], part[4]) for part in parts if part]


def pyright(_: Path) -> list[tuple[str, int, str, str]]:
    """The same for pyright, where it can run: it needs Node, which it may have to download."""
    files = [str(SNIPPETS / name) for name in FILES]
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *files]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    try:
        found = json.loads(run.stdout)["generalDiagnostics"]
    except (ValueError, KeyError):
        pytest.skip(f"pyright can't be run here: {run.stderr[-200:]}")
    return [
        (
            Path(entry["file"]).name,
            entry["range"]["start"]["line"] + 1,
            entry["severity"],
            re.sub(r'(?s)^Type of ".*" is "(.*)"$', r'Revealed type is "\1"', entry["message"]),
        )
        for entry in found
    ]


@pytest.fixture(scope="module", params=[mypy, pyright], ids=lambda checker: checker.__name__)
def said(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> dict[str, dict[int, list[str]]]:
    """What a type checker reports, by file and line."""
    found: dict[str, dict[int, list[str]]] = {name: {} for name in FILES}
    cache: Any = pytestconfig.cache  # a later run checks only what has changed
    for name, line, kind, text in request.param(cache.mkdir("mypy")):
        if name in found:
            found[name].setdefault(line, []).append(f"{kind}: {text}")
    return found


def marked(name: str, mark: str) -> dict[int, str]:
    lines = (SNIPPETS / name).read_text().splitlines()
    return {n: line.split(f"# {mark}: ")[1] for n, line in enumerate(lines, 1) if f"# {mark}: " in line}


def test_right_calls_pass(said: dict[str, dict[int, list[str]]]):
    errors = {line: texts for line, texts in said["right.py"].items() if any(t.startswith("error") for t in texts)}

    assert errors == {}


def test_results_have_their_types(said: dict[str, dict[int, list[str]]]):
    revealed = {
        line: re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text.split('"')[1])  # without the modules
        for line, texts in said["right.py"].items()
        for text in texts
        if "Revealed type is" in text
    }

    assert revealed == marked("right.py", "R")


def test_wrong_calls_fail_each_for_itself(said: dict[str, dict[int, list[str]]]):
    errors = {line for line, texts in said["wrong.py"].items() if any(t.startswith("error") for t in texts)}

    assert errors == set(marked("wrong.py", "E"))


def test_the_package_is_marked_as_typed():
    import schedq

    assert (Path(schedq.__file__).parent / "py.typed").exists()
