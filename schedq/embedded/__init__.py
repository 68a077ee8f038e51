"""`embedded://`: a real Redis or Valkey server, one per data folder, started by the first process to name it.

A server belongs to its folder and to no process: its `watcher` starts it apart from us and ends it when it
has been idle for a minute (or `SCHEDQ_EMBEDDED_IDLE` seconds). So a connection may find it gone at any time,
and every attempt to connect begins with `ensure_server`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TypeVar

from schedq.embedded import watcher
from schedq.embedded.paths import data_directory, prepared, socket_path
from schedq.embedded.program import LOG, Origin, Program, origin, program_for, record, server_binary, server_program
from schedq.errors import StoreUnavailable, UsageError
from schedq.model.times import monotonic, sleep

__all__ = ["SERVER_ENVIRONMENT", "data_directory", "ensure_server", "server_binary", "stop_server"]

T = TypeVar("T")

PATIENCE_S = 15.0

LOG_LIMIT_BYTES = 1_000_000

OPTIONS = (
    *("--port", "0", "--unixsocketperm", "700", "--daemonize", "no", "--logfile", "", "--save", ""),
    *("--appendonly", "yes", "--appendfsync", "everysec", "--aof-load-truncated", "yes"),
    # Commands and no binary snapshot: every newer server reads them.
    *("--aof-use-rdb-preamble", "no"),
    *("--maxmemory-policy", "noeviction"),
)

SERVER_ENVIRONMENT = {
    # Redis 7.2 and later refuse to start under a locale that is not installed.
    "LC_ALL": "C",
    # A server that uses glibc's allocator gives large values back one by one, and not hundreds of megabytes at once
    # when the last of them goes, which holds up everybody for tens of milliseconds.
    "MALLOC_MMAP_THRESHOLD_": "131072",
}


def ensure_server(url: str | Path) -> str:
    """The path of the socket of the folder's server, which is started first if it does not run.

    Cheap when it runs already, safe in any number of processes and threads at once.

    Args:
        url: an `embedded://` URL, or the data folder itself.

    Raises:
        UsageError: the URL is wrong, or the folder can't be made or written.
        StoreUnavailable: there is no server program, or the server does not come up.
    """
    folder = prepared(url if isinstance(url, Path) else data_directory(url))
    idle_s = _idle_s()
    for _ in range(2):  # it may be ended, or killed, while we watch it start
        path = _holding(partial(_start_lock, folder, fcntl.LOCK_SH), partial(_running_at, folder))
        if not path:
            path = _holding(
                partial(_start_lock, folder, fcntl.LOCK_EX),
                lambda: _running_at(folder) or _started_at(folder, idle_s),
            )
        if path and _has_loaded(folder, path):
            return path
    raise StoreUnavailable(f"the embedded server of {folder} does not come up; its log ends: {_end_of_log(folder)}")


def stop_server(directory: str | Path) -> bool:
    """End the server of a data folder gracefully and wait until it is gone; False if none was running.

    Raises:
        UsageError: the folder can't be written.
        StoreUnavailable: the server does not end.
    """
    folder = Path(directory)
    if not (folder / watcher.SERVER_LOCK).exists():
        return False
    return bool(_holding(partial(_start_lock, folder, fcntl.LOCK_EX), partial(_ended, folder)))


def _ended(folder: Path) -> bool:
    """End the folder's server, the caller holding the start lock alone; False if none was running."""
    if _is_free(folder / watcher.SERVER_LOCK):
        return False
    until = monotonic() + PATIENCE_S
    refusal = ""
    while not (_is_free(folder / watcher.SERVER_LOCK) and _is_free(folder / watcher.WATCHER_LOCK)):
        # Asked again: one whose start was interrupted may not listen yet.
        refusal = _shut_down(watcher.recorded_socket(folder))
        if monotonic() > until:
            raise StoreUnavailable(f"{_named(folder)} does not end: {refusal or 'it says nothing'}")
        sleep(0.01)
    return True


def _idle_s() -> float:
    text = os.environ.get("SCHEDQ_EMBEDDED_IDLE") or "60"
    try:
        idle_s = float(text)
    except ValueError:
        idle_s = -1.0
    if not idle_s > 0:
        raise UsageError(f"SCHEDQ_EMBEDDED_IDLE must be a number of seconds above 0, got {text!r}")
    return idle_s


def _holding(take: Callable[[], FileIO | None], act: Callable[[], T]) -> T | None:
    """Do something while a lock is held; None if it can't be taken.

    The lock is set free here, and not by a context manager, whose own code a Ctrl-C could interrupt: it would stay
    locked for as long as somebody keeps the exception, as an interactive interpreter does.
    """
    lock: FileIO | None = None
    try:
        lock = take()
        return act() if lock else None
    finally:
        if lock is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing alone would leave it with copies that forks have made
            finally:
                lock.close()


def _start_lock(folder: Path, how: int) -> FileIO:
    """The lock for using the server with others (`fcntl.LOCK_SH`), or for starting or ending it (`LOCK_EX`)."""
    until = monotonic() + 2 * PATIENCE_S
    while True:
        try:
            lock = watcher.try_lock(folder / watcher.START_LOCK, how)
        except OSError as error:
            raise UsageError(f"the data folder {folder} can't be written ({error}); name another one") from error
        if lock is not None:
            return lock
        if monotonic() > until:
            raise StoreUnavailable(f"{_named(folder)} has been started by another process for too long")
        sleep(0.003)


def _is_free(lock: Path) -> bool:
    return bool(_holding(partial(watcher.try_lock, lock, fcntl.LOCK_SH), lambda: True))


def _running_at(folder: Path) -> str:
    """The socket of the folder's server; empty when it does not answer, or nobody watches it."""
    path = watcher.recorded_socket(folder)
    watched = bool(path) and not _is_free(folder / watcher.WATCHER_LOCK)
    return path if watched and watcher.ping(path) else ""


def _started_at(folder: Path, idle_s: float) -> str:
    """Start watcher and server, the caller holding the start lock alone; returns as `_came_up_at`."""
    path = socket_path(folder)
    program = _program(folder)
    command = [sys.executable, "-I", "-S", watcher.__file__, path, str(idle_s)]
    command += [str(program.path), *OPTIONS, "--unixsocket", path]
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        # The folder may still be taken by a server that is on its way down.
        if _spawn(command, folder) != watcher.TAKEN:
            if came_up_at := _came_up_at(folder):
                record(folder, Origin(program.kind, program.version))
            return came_up_at
        sleep(0.02)
        if found := _running_at(folder):
            return found
    raise StoreUnavailable(f"{_named(folder)} is running, but can't be reached from here or doesn't answer")


def _program(folder: Path) -> Program:
    """The program for this folder: of the kind that wrote it, if it holds data."""
    if written_by := origin(folder):
        return program_for(folder, written_by)
    # A server before Redis 7 would overlook what a later one keeps in this folder, and begin empty.
    return server_program((7, 0)) if (folder / "appendonlydir").exists() else server_program()


def _spawn(command: list[str], folder: Path) -> int:
    log = folder / LOG
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(f"{log}.old")
    with suppress(OSError):  # there is none
        os.chmod(f"{log}.old", 0o600)  # of an earlier release, too
    with open(log, "ab", opener=_opened_for_us) as output:
        return subprocess.run(  # noqa: S603 - our own command
            command,
            cwd=folder,
            env=os.environ | SERVER_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            check=False,
        ).returncode


def _opened_for_us(path: str, flags: int) -> int:
    """Open a log that only its owner may read, also one that earlier releases left open to all."""
    descriptor = os.open(path, flags, 0o600)
    with suppress(OSError):  # another user's file, in a folder that we share
        os.fchmod(descriptor, 0o600)
    return descriptor


def _came_up_at(folder: Path) -> str:
    """The socket at which a server that was just started replies; empty when it ended instead."""
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        if path := _running_at(folder):
            return path
        if _is_free(folder / watcher.WATCHER_LOCK):
            break
        sleep(0.002)
    return ""


def _has_loaded(folder: Path, path: str) -> bool:
    """Wait while the server reads its data, for as long as it shows signs of life; False if it ended."""
    until = monotonic() + PATIENCE_S
    while not (reply := watcher.ping(path)) or reply.startswith("-LOADING"):
        if reply:
            until = monotonic() + PATIENCE_S
        if monotonic() > until or _is_free(folder / watcher.SERVER_LOCK):
            return False
        sleep(0.01)
    return True


def _shut_down(path: str) -> str:
    """Shut the server down; returns its objection, or nothing."""
    try:
        connection = watcher.InlineConnection(path, timeout_s=PATIENCE_S)
    except OSError as error:
        return f"{path or 'no socket'}: {error}"
    with closing(connection):
        try:
            return connection.ask("SHUTDOWN")
        except ConnectionError:
            return ""
        except OSError as error:
            return str(error)


def _named(folder: Path) -> str:
    pid = watcher.read_record(folder).get("pid")
    return f"the embedded server of {folder}" + (f" (pid {pid})" if pid else "")


def _end_of_log(folder: Path) -> str:
    try:
        with (folder / LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError as error:
        return str(error)
    return " | ".join([line.strip() for line in lines if line.strip()][-5:])
