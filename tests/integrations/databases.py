"""Databases for tests: SQLite, and PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.waiting import until

POSTGRES = pytest.param("postgres", marks=pytest.mark.processes)


def postgres_folder() -> Path | None:
    """Where the programs of PostgreSQL are, or None."""
    found = shutil.which("initdb") or max(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), default=None)
    return None if found is None else Path(found).parent


class Postgres:
    """A PostgreSQL server on a socket in a temporary folder, as an unprivileged user. It may be killed and restarted.

    Attributes:
        url: for SQLAlchemy.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = "nobody" if os.getuid() == 0 else None  # it refuses to run as root
        self._folder = Path(tempfile.mkdtemp(prefix="schedq-pg-"))
        self._server: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql+psycopg://app@/postgres?host={self._folder}"

    def __enter__(self) -> Self:
        if self._user:
            shutil.chown(self._folder, self._user)
        options = ["-U", "app", "-A", "trust", "--no-sync", "--no-instructions", "--locale=C", "-E", "UTF8"]
        subprocess.run(
            [self._programs / "initdb", "-D", self._folder / "data", *options],
            user=self._user,
            cwd=self._folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(60)
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Start it. Connections are refused until it has recovered."""
        options = ["-k", str(self._folder), "-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off"]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", *options],
                user=self._user,
                cwd=self._folder,
                stderr=log,
                stdout=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Send SIGKILL to all its processes; what was committed stays."""
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()
        self._server = None


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """A PostgreSQL server; yields its URL."""
    with Postgres(programs) as server:
        yield server.url


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
