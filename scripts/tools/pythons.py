"""Run the quick part of the suite on every installed Python that schedq supports, oldest first.

    scripts/test --pythons all|others|lowest|VERSION[,VERSION...] [arguments for pytest]

`others` means all but the Python that scripts/test itself uses, for a run that has just gone through the whole suite.
`--within=SECONDS` runs the Pythons that probably end in time, the newest first.
`lowest` means the oldest Python with the lowest versions that pyproject.toml allows of everything that users install.

The quick part leaves out the tests marked `processes`, `browser` or `topologies` (see tests/conftest.py), tests/tools,
which tests scripts/, and the tests of types, whose checkers get the version of Python as an option anyway. Each Python
has its own environment, .venv-VERSION, created once with the extra `test`. Failed tests are repeated as in
scripts/test. The exit code is 0 if all tests passed on every version.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)
QUICK = (
    "-m",
    "not processes and not topologies and not browser",
    "--ignore=tests/tools",
    "--ignore-glob=tests/dashboard/test_*browser.py",
    "--ignore=tests/laws/test_typing.py",
)
_FIRST_S = 270.0
"""Seconds that the first Python may take on a busy machine; each other one is expected to take as long as the last."""
MOST_AGAIN = "10"
"""Tests that failed and are run once more, alone: as in scripts/test."""
FOR_DEVELOPERS: Final = {"dev", "docs", "test"}
"""Extras that users do not install."""
_ASK = "import sys, platform; print(platform.python_implementation(), *sys.version_info[:3], sys.version_info[3])"


@dataclass(frozen=True, slots=True)
class Python:
    """A Python interpreter.

    Attributes:
        version: three numbers, such as 3.12.1.
        path: its executable.
        has_lowest: whether it gets the lowest versions of what users install.
    """

    version: str
    path: Path
    has_lowest: bool = False

    @property
    def folder(self) -> Path:
        """The folder of its environment."""
        return ROOT / (".venv-lowest" if self.has_lowest else f".venv-{self.version}")


def main(arguments: list[str]) -> int:
    """Run the tests, print a summary, and return the exit code."""
    found = pythons()
    within_s, arguments = limit(arguments)
    wanted, rest = read(arguments)
    if wanted == ["others"]:
        found, wanted = [python for python in found if python.version != platform.python_version()], []
    elif wanted == ["lowest"]:
        found, wanted = [replace(python, has_lowest=True) for python in found[:1]], []
    chosen = [python for python in found if not wanted or any(fits(python.version, name) for name in wanted)]
    missing = [name for name in wanted if not any(fits(python.version, name) for python in found)]
    if missing or not chosen:
        there = ", ".join(python.version for python in found) or "none"
        print(f"scripts/test: no Python {', '.join(missing) or 'at all'}; found: {there}", file=sys.stderr)
        return 2
    return run_all(chosen, rest, within_s)


def run_all(chosen: list[Python], arguments: list[str], within_s: float) -> int:
    """Run the tests on these Pythons; with a time limit the newest first, and none that would not end in time."""
    said = []
    code, took_s, started = 0, 0.0 if within_s == math.inf else _FIRST_S, time.monotonic()
    for python in chosen if within_s == math.inf else chosen[::-1]:
        began = time.monotonic()
        if began + took_s > started + within_s:
            said.append(f"Python {python.version:<8} left out: no time left")
            continue
        print(f"\n== Python {python.version} ({python.path})", flush=True)
        result = run(python, arguments)
        code = code or result
        took_s = time.monotonic() - began
        said.append(
            f"Python {python.version:<8} {'passed' if not result else f'exit code {result}':<14}{took_s:5.0f} s"
        )
    print("", *said, sep="\n", flush=True)
    return code


def limit(arguments: list[str]) -> tuple[float, list[str]]:
    """The value of `--within=SECONDS`, or infinity, and the other arguments."""
    found = [argument.partition("=")[2] for argument in arguments if argument.startswith("--within=")]
    rest = [argument for argument in arguments if not argument.startswith("--within=")]
    return (float(found[-1]) if found else math.inf), rest


def read(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The requested versions (none for all), and the arguments for pytest."""
    rest = list(arguments)
    at = next(n for n, argument in enumerate(rest) if argument.partition("=")[0] == "--pythons")
    _, mark, value = rest.pop(at).partition("=")
    if not mark:
        value = rest.pop(at) if at < len(rest) else ""
    return [] if value == "all" else value.split(","), rest


def fits(version: str, name: str) -> bool:
    """Whether `name` (3.12 or 3.12.1) matches the version 3.12.1."""
    return f"{version}.".startswith(f"{name}.")


def pythons() -> list[Python]:
    """One interpreter per version, oldest first, from PATH, pyenv and the system's folders."""
    found: dict[str, Python] = {}
    for path in candidates():
        if version := supported(path):
            found.setdefault(version, Python(version, path))
    return sorted(found.values(), key=lambda python: [int(part) for part in python.version.split(".")])


def candidates() -> Iterator[Path]:
    """Executables that may be a Python; each is asked for its version."""
    names = re.compile(r"python3(\.\d+)?")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob("versions/*/bin/python3"))
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin", "/usr/local/bin"]:
        if folder and Path(folder).is_dir() and not Path(folder).is_relative_to(ROOT):
            yield from sorted(path for path in Path(folder).glob("python3*") if names.fullmatch(path.name))


def supported(path: Path) -> str:
    """Its version, or '' if it does not run, is not supported, or belongs to a virtual environment."""
    try:
        done = subprocess.run([str(path), "-I", "-c", _ASK], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""  # for example a shim for a version that is not installed
    name, major, minor, micro, level = done.stdout.split()
    good = name == "CPython" and (int(major), int(minor)) >= OLDEST and level == "final"
    return f"{major}.{minor}.{micro}" if good else ""


def run(python: Python, arguments: list[str]) -> int:
    """Run the quick part on one Python and return pytest's exit code."""
    prepared = prepare(python)
    if prepared:
        return prepared
    program = [str(python.folder / "bin" / "python"), "-m"]
    tests = ["-q", *QUICK, "-o", f"cache_dir={python.folder / 'pytest'}", *arguments]
    command = [*program, "pytest", "-n", "6", *tests]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code != 1:
        return code
    return subprocess.run([*program, "scripts.tools.second_look", MOST_AGAIN, *tests], cwd=ROOT, check=False).returncode


def prepare(python: Python) -> int:
    """Create its environment unless it matches this pyproject.toml; returns the exit code of the step that failed."""
    made_for = python.folder / "made-for"
    wanted = f"{python.path}\n{(ROOT / 'pyproject.toml').read_text()}"
    if made_for.exists() and made_for.read_text() == wanted:
        return 0
    shutil.rmtree(python.folder, ignore_errors=True)
    pip = [str(python.folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    install = [*pip, "install", "--no-compile", "--editable", ".[test]"]
    if python.has_lowest:
        install[-1] = f".[test,{','.join(sorted(user_extras()))}]"
        install += ["--constraint", str(python.folder / "lowest.txt")]
    python.folder.mkdir()
    (python.folder / "lowest.txt").write_text("\n".join(lowest_versions()))
    for command in ([str(python.path), "-m", "venv", str(python.folder)], install):
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            return done.returncode
    made_for.write_text(wanted)
    return 0


def user_extras() -> dict[str, list[str]]:
    """The extras that users install, with their requirements."""
    extras: dict[str, list[str]] = _project()["optional-dependencies"]
    return {name: brings for name, brings in extras.items() if name not in FOR_DEVELOPERS}


def lowest_versions() -> list[str]:
    """The lowest version that pyproject.toml allows of each package that users install, as constraints for pip."""
    found = []
    for text in [*_project()["dependencies"], *(text for brings in user_extras().values() for text in brings)]:
        requirement = Requirement(text)
        bounds = [each.version for each in requirement.specifier if each.operator in (">=", "==", "~=")]
        found += [f"{requirement.name}=={bound}" for bound in bounds]
    return found


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
