"""Databases for tests: SQLite, and PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import until

POSTGRES = pytest.param("postgres", marks=pytest.mark.processes)


def postgres_folder() -> Path | None:
    """Where the programs of PostgreSQL are, or None."""
    found = shutil.which("initdb") or max(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), default=None)
    return None if found is None else Path(found).parent


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """A PostgreSQL server on a socket in a temporary folder, as an unprivileged user; yields its URL."""
    user = "nobody" if os.getuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory(prefix="schedq-pg-") as name:
        folder = Path(name)
        if user:
            shutil.chown(folder, user)
        data = folder / "data"
        subprocess.run(
            [
                programs / "initdb",
                "-D",
                data,
                "-U",
                "app",
                "-A",
                "trust",
                "--no-sync",
                "--no-instructions",
                "--locale=C",
                "-E",
                "UTF8",
            ],
            user=user,
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        options = ["-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, *options], user=user, cwd=folder, stderr=log, stdout=log
            )
        try:
            yield f"postgresql+psycopg://app@/postgres?host={folder}"
        finally:
            server.terminate()
            server.wait(60)


def mariadb_program() -> str | None:
    """The server of MariaDB, or None."""
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def mariadb(program: str) -> Iterator[str]:
    """A MariaDB server in a temporary folder, as an unprivileged user; yields the path of its socket."""
    user = "nobody" if os.getuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory(prefix="schedq-maria-") as name:
        folder = Path(name)
        if user:
            shutil.chown(folder, user)
        base, data = Path(program).parents[1], folder / "data"
        install = [f"{base}/bin/mariadb-install-db", "--no-defaults", f"--basedir={base}", f"--datadir={data}"]
        own = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        start = folder / "start.sql"
        start.write_text("CREATE USER app@localhost;\nGRANT ALL ON *.* TO app@localhost;\n")
        start.chmod(0o644)
        with (folder / "log").open("wb") as log:
            subprocess.run([*install, *own], user=user, cwd=folder, check=True, stdout=log, stderr=log)
            options = ["--no-defaults", f"--basedir={base}", f"--datadir={data}", f"--tmpdir={folder}"]
            options += ["--innodb-flush-log-at-trx-commit=0", "--character-set-server=utf8mb4"]
            served = [
                f"--socket={folder}/sock",
                "--skip-networking",
                f"--init-file={start}",
                f"--pid-file={folder}/pid",
            ]
            server = subprocess.Popen([program, *options, *served], user=user, cwd=folder, stderr=log, stdout=log)
        try:
            until(lambda: _listens(folder / "sock"))
            yield f"{folder}/sock"
        finally:
            server.terminate()
            server.wait(60)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
