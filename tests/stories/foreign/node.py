"""The Node.js client of `examples/guide/node`, installed once and kept, so that later runs need no network."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "examples" / "guide" / "node"
KEPT = ROOT / ".venv" / "node-clients"
_LISTS = ("package.json", "package-lock.json")
_one_at_a_time = threading.Lock()


def node_path() -> str:
    """A `NODE_PATH` with the client, pinned by the lock file.

    Skips the test where there is no Node.js. With Node.js, a client that can't be installed is a failure: a matrix that
    silently lost half of its cases would stay green forever.
    """
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    folder = KEPT / hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in _LISTS)).hexdigest()[:16]
    with _one_at_a_time:
        complaint = _made(folder)
    assert not complaint, f"npm can't install the Redis client of Node.js: {complaint}"
    return str(folder / "node_modules")


@cache  # a registry that does not respond is asked only once
def _made(folder: Path) -> str:
    """Install it if necessary; returns the problem, or ''."""
    KEPT.mkdir(parents=True, exist_ok=True)
    # Several processes of pytest may start at once; the lock is released when its holder ends, however that happens.
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return "" if (folder / "complete").exists() else _install(folder)


def _install(folder: Path) -> str:
    npm = shutil.which("npm")
    if npm is None:
        return "there is no npm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in _LISTS:
        shutil.copy(SOURCE / name, folder)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "it takes more than two minutes"
    if done.returncode != 0:
        return done.stderr[-2000:] or f"exit code {done.returncode}"
    (folder / "complete").touch()
    return ""
