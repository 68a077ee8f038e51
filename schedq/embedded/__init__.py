"""`embedded://`: a real Redis or Valkey server, one per data folder, started by the first process that uses it.

A server belongs to its folder and not to a process. A separate process, the `watcher`, starts it and stops it after it
has been idle for a minute (or `SCHEDQ_EMBEDDED_IDLE` seconds). The server may therefore be gone whenever a client
connects, so every attempt to connect begins with `ensure_server`.
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
    # Store commands instead of a binary snapshot, because every newer server can read them.
    *("--aof-use-rdb-preamble", "no"),
    *("--maxmemory-policy", "noeviction"),
)

SERVER_ENVIRONMENT = {
    # Redis 7.2 and later refuse to start under a locale that is not installed.
    "LC_ALL": "C",
    # With glibc's allocator, return the memory of each large value as it is freed. By default hundreds of megabytes are
    # returned at once when the last of them is freed, which blocks all clients for tens of milliseconds.
    "MALLOC_MMAP_THRESHOLD_": "131072",
}


def ensure_server(url: str | Path) -> str:
    """Return the path of the socket of the folder's server; start the server first if it is not running.

    This is cheap if the server is running, and safe to call from any number of processes and threads at once.

    Args:
        url: an `embedded://` URL, or the data folder itself.

    Raises:
        UsageError: the URL is invalid, or the folder can't be created or written.
        StoreUnavailable: there is no server program, or the server does not start.
    """
    folder = prepared(url if isinstance(url, Path) else data_directory(url))
    idle_s = _idle_s()
    for _ in range(2):  # another process may stop or kill it while it starts
        path = _holding(partial(_start_lock, folder, fcntl.LOCK_SH), partial(_running_at, folder))
        if not path:
            path = _holding(
                partial(_start_lock, folder, fcntl.LOCK_EX),
                lambda: _running_at(folder) or _started_at(folder, idle_s),
            )
        if path and _has_loaded(folder, path):
            return path
    raise StoreUnavailable(f"the embedded server of {folder} does not start; its log ends: {_end_of_log(folder)}")


def stop_server(directory: str | Path) -> bool:
    """Stop the server of a data folder gracefully and wait until it has exited; return False if none was running.

    Raises:
        UsageError: the folder can't be written.
        StoreUnavailable: the server does not stop.
    """
    folder = Path(directory)
    if not (folder / watcher.SERVER_LOCK).exists():
        return False
    return bool(_holding(partial(_start_lock, folder, fcntl.LOCK_EX), partial(_ended, folder)))


def _ended(folder: Path) -> bool:
    """Stop the folder's server; return False if none was running. The caller holds the start lock exclusively."""
    if _is_free(folder / watcher.SERVER_LOCK):
        return False
    until = monotonic() + PATIENCE_S
    refusal = ""
    while not (_is_free(folder / watcher.SERVER_LOCK) and _is_free(folder / watcher.WATCHER_LOCK)):
        # Repeated, because a server whose start was interrupted may not be listening yet.
        refusal = _shut_down(watcher.recorded_socket(folder))
        if monotonic() > until:
            raise StoreUnavailable(f"{_named(folder)} does not stop: {refusal or 'it does not respond'}")
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
    """Call `act` while holding a lock; return None if the lock can't be taken.

    This is not a context manager, because Ctrl-C could interrupt the context manager's own code before it releases the
    lock. The lock would then stay held for as long as the exception exists, which an interactive interpreter keeps.
    """
    lock: FileIO | None = None
    try:
        lock = take()
        return act() if lock else None
    finally:
        if lock is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing alone does not release it while forked children have a copy
            finally:
                lock.close()


def _start_lock(folder: Path, how: int) -> FileIO:
    """Take the start lock: shared (`fcntl.LOCK_SH`) for using the server, exclusive (`LOCK_EX`) to start or stop it."""
    until = monotonic() + 2 * PATIENCE_S
    while True:
        try:
            lock = watcher.try_lock(folder / watcher.START_LOCK, how)
        except OSError as error:
            raise UsageError(f"the data folder {folder} can't be written ({error}); name another one") from error
        if lock is not None:
            return lock
        if monotonic() > until:
            raise StoreUnavailable(f"another process takes too long to start {_named(folder)}")
        sleep(0.003)


def _is_free(lock: Path) -> bool:
    return bool(_holding(partial(watcher.try_lock, lock, fcntl.LOCK_SH), lambda: True))


def _running_at(folder: Path) -> str:
    """Return the socket of the folder's server; '' if the server does not respond or has no watcher."""
    path = watcher.recorded_socket(folder)
    watched = bool(path) and not _is_free(folder / watcher.WATCHER_LOCK)
    return path if watched and watcher.ping(path) else ""


def _started_at(folder: Path, idle_s: float) -> str:
    """Start the watcher and the server; return what `_came_up_at` does. The caller holds the start lock exclusively."""
    path = socket_path(folder)
    program = _program(folder)
    command = [sys.executable, "-I", "-S", watcher.__file__, path, str(idle_s)]
    command += [str(program.path), *OPTIONS, "--unixsocket", path]
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        # A server that is shutting down may still hold the folder.
        if _spawn(command, folder) != watcher.TAKEN:
            if came_up_at := _came_up_at(folder):
                record(folder, Origin(program.kind, program.version))
            return came_up_at
        sleep(0.02)
        if found := _running_at(folder):
            return found
    raise StoreUnavailable(f"{_named(folder)} is running, but can't be reached from here or doesn't respond")


def _program(folder: Path) -> Program:
    """Return the program for this folder. If the folder holds data, it is of the kind that wrote them."""
    if written_by := origin(folder):
        return program_for(folder, written_by)
    # Redis before 7 ignores this folder, which later releases write, and would start empty.
    return server_program((7, 0)) if (folder / "appendonlydir").exists() else server_program()


def _spawn(command: list[str], folder: Path) -> int:
    log = folder / LOG
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(f"{log}.old")
    with suppress(OSError):  # there is no older log
        os.chmod(f"{log}.old", 0o600)  # earlier releases left it readable by everyone
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
    """Open a log so that only its owner may read it, even if an earlier release left it readable by everyone."""
    descriptor = os.open(path, flags, 0o600)
    with suppress(OSError):  # the file of another user, in a shared folder
        os.fchmod(descriptor, 0o600)
    return descriptor


def _came_up_at(folder: Path) -> str:
    """Wait for a server that was just started and return its socket; '' if the server has exited."""
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        if path := _running_at(folder):
            return path
        if _is_free(folder / watcher.WATCHER_LOCK):
            break
        sleep(0.002)
    return ""


def _has_loaded(folder: Path, path: str) -> bool:
    """Wait while the server loads its data; return False if it exits or stops responding."""
    until = monotonic() + PATIENCE_S
    while not (reply := watcher.ping(path)) or reply.startswith("-LOADING"):
        if reply:
            until = monotonic() + PATIENCE_S
        if monotonic() > until or _is_free(folder / watcher.SERVER_LOCK):
            return False
        sleep(0.01)
    return True


def _shut_down(path: str) -> str:
    """Shut the server down; return why it failed, or ''."""
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
