"""The Node.js client of `examples/guide/node`, installed once and kept: the second time needs no network."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "guide" / "node"
KEPT = ROOT / ".venv" / "node-clients"
_LISTS = ("package.json", "package-lock.json")


@cache
def node_path() -> str:
    """A `NODE_PATH` that has the client, pinned by the lock file.

    Skips the test where there is no Node.js. Where there is one, a client that can't be installed is a failure: a
    matrix that is silently half as large would look green for ever.
    """
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    folder = KEPT / hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in _LISTS)).hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    # Several processes of pytest may start at once; the lock falls with its holder, however that ends.
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(folder)
    return str(folder / "node_modules")


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in _LISTS:
        shutil.copy(SOURCE / name, folder)
    npm = shutil.which("npm")
    assert npm, "Node.js is here, but not npm, which installs its Redis client once"
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"npm can't install the Redis client of Node.js:\n{done.stderr[-2000:]}"
    (folder / "complete").touch()
