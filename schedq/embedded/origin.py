"""Which server wrote a data folder: Redis and Valkey promise to read their own files, not each other's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
        version: in full.
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
    """The server that wrote the folder's data; None if it holds none, or nothing tells.

    Folders of releases that kept no record are told by the server's log, or by a snapshot that it wrote.
    """
    if not any((folder / name).exists() for name in _DATA):
        return None
    return _recorded(folder) or _logged(folder) or _of_snapshot(folder)


def record(folder: Path, by: Origin) -> None:
    """Note who writes the folder from now on. A full disk or a lost right is no reason not to go on."""
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
    """The last start in the log; the older log counts if the newer one shows none."""
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
