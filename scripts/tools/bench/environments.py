"""Each contestant's own environment: created once, and again when its requirements change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.tools.bench.entries import Contestant

_APPS: Final = Path(__file__).with_name("contestants")
_NODE: Final = ("npm", "node")
PICTURE: Final = ("matplotlib>=3.8",)


class MissingEnvironmentError(Exception):
    """An environment can't be created here; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Environments:
    """The environments in one folder.

    Attributes:
        folder: the folder; each has a subfolder.
        say: called when one is created, which takes a while.
    """

    folder: Path
    say: Callable[[str], None]

    def make(self, contestant: Contestant) -> None:
        """Create a contestant's environment unless it exists.

        Raises:
            MissingEnvironmentError: npm, node or a package is missing.
        """
        self._make(contestant.environment, contestant.requires, is_python=contestant.is_python)

    def make_picture(self) -> Path:
        """The Python of the environment that draws the picture."""
        self._make("picture", PICTURE, is_python=True)
        return self.folder / "picture" / "bin" / "python"

    def command(self, contestant: Contestant) -> list[str]:
        """The command that runs a contestant's file."""
        if contestant.is_python:
            folder = self.folder / contestant.environment
            return [str(folder / "bin" / "python"), str(_APPS / f"{contestant.app}.py")]
        return ["node", str(_APPS / f"{contestant.app}.js")]

    def variables(self, contestant: Contestant) -> dict[str, str]:
        """Environment variables of the processes, without those of the Python that runs the benchmark."""
        folder = self.folder / contestant.environment
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SCHEDQ_"))}
        return kept | {
            "PATH": os.pathsep.join((str(folder / "bin"), os.environ.get("PATH", os.defpath))),
            "NODE_PATH": str(folder / "node_modules"),
            "BENCH_CONTESTANT": contestant.name,
        }

    def versions(self, contestant: Contestant) -> dict[str, str]:
        """Installed versions of the required packages."""
        folder = self.folder / contestant.environment
        names = [word.split("@")[0] if not contestant.is_python else _bare(word) for word in contestant.requires]
        if not contestant.is_python:
            found = {name: folder / "node_modules" / name / "package.json" for name in names}
            return {name: json.loads(path.read_text())["version"] for name, path in found.items()}
        asks = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
        said = _run([str(folder / "bin" / "python"), "-c", asks, *names], folder)
        return dict(zip(names, said.split(), strict=True))

    def _make(self, name: str, requires: Sequence[str], *, is_python: bool) -> None:
        folder = self.folder / name
        made_of = folder / "made-of"
        wanted = "\n".join((str(folder), *requires, ""))
        if made_of.exists() and made_of.read_text() == wanted:
            return
        missing = [] if is_python else [program for program in _NODE if not shutil.which(program)]
        if missing:
            raise MissingEnvironmentError(f"{' and '.join(missing)} not on PATH")
        self.say(f"creating {folder} (once)")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if is_python:
            _run([sys.executable, "-m", "venv", str(folder)], self.folder)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
            _run([*pip, "install", *requires], folder)
        else:
            npm = ["npm", "install", "--loglevel", "error", "--no-audit", "--no-fund", "--prefix", str(folder)]
            _run([*npm, *requires], folder)
        made_of.write_text(wanted)


def _bare(requirement: str) -> str:
    """`redis==8.1.0` without the version."""
    return requirement.partition("=")[0].rstrip(">")


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a command and return its output."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=1200
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingEnvironmentError(f"{command[0]} does not run: {error}") from error
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stderr or error.stdout or "").splitlines() if line.strip()]
        reason = 0 if command[0] == "npm" else -1  # pip prints the reason last
        raise MissingEnvironmentError(lines[reason].strip() if lines else f"exit {error.returncode}") from error
    return done.stdout
