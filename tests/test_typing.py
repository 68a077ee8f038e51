"""What a type checker says to right and to wrong calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

SNIPPETS = Path(__file__).parent / "typing"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, list[str]]]:
    """Per file and line, what mypy says."""
    cache = tmp_path_factory.mktemp("mypy")
    files = [str(SNIPPETS / name) for name in ("right.py", "wrong.py")]
    out, problem, _ = api.run(
        [*files, "--strict", "--cache-dir", str(cache), "--config-file", "", "--no-error-summary"]
    )
    assert not problem
    found: dict[str, dict[int, list[str]]] = {"right.py": {}, "wrong.py": {}}
    for line in out.splitlines():
        part = re.match(r"(?P<file>.+?\.py):(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)", line)
        if part and Path(part["file"]).name in found:
            found[Path(part["file"]).name].setdefault(int(part["line"]), []).append(f"{part['kind']}: {part['text']}")
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


def test_the_package_says_that_it_is_typed():
    import schedq

    assert (Path(schedq.__file__).parent / "py.typed").exists()
