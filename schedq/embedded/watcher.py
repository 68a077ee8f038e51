"""The watcher of one embedded server: starts it, and stops it when it is no longer used.

Redis and Valkey have no option to exit when idle, so this process does it. It is run by its path in the data folder, as
`python -I -S watcher.py SOCKET IDLE_S BINARY OPTION…`, detaches from its parent at once, and lives as long as the
server. It imports only the standard library, so that it starts fast and uses few megabytes.

Locks show which processes are alive, because the kernel releases them when their holder exits. A pid in a file would
not: another process may have the same pid by now.

    start.lock     held briefly: shared by users of the server, exclusive for starting or stopping it
    watcher.lock   held by the watcher
    server.lock    held by the server itself (an inherited descriptor) and by its child that rewrites the AOF
    server.json    where the server listens; written by the watcher, removed at a graceful stop
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from io import FileIO
from pathlib import Path

START_LOCK = "start.lock"
WATCHER_LOCK = "watcher.lock"
SERVER_LOCK = "server.lock"
RECORD = "server.json"

TAKEN = 75
"""Exit code: another watcher, or a server that can't be reached, holds the folder (EX_TEMPFAIL of sysexits.h)."""

LONGEST_LOOK_S = 5.0


class InlineConnection:
    """A minimal connection to the server: inline commands, one reply each.

    Raises:
        OSError: from every method, if the server can't be reached, closes the connection, or does not reply within
            `timeout_s`.
    """

    def __init__(self, path: str, timeout_s: float = 1.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._replies = self._socket.makefile("rb")

    def ask(self, command: str) -> str:
        """Return the reply with its leading type character; of a bulk string, only the text."""
        self._socket.sendall(command.encode() + b"\r\n")
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError(f"{command}: the server closed the connection")
        if line.startswith(b"$"):
            line = self._replies.read(int(line[1:]) + 2)
        return line.decode(errors="replace").rstrip("\r\n")

    def hangs_up_within(self, seconds: float) -> bool:
        """Wait until the server closes the connection or sends data; return False if time is up first."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        """Close the connection."""
        self._replies.close()
        self._socket.close()


def try_lock(path: str | os.PathLike[str], how: int) -> FileIO | None:
    """Lock the file at `path` with `fcntl.LOCK_SH` or `LOCK_EX`; return it, or None if another process holds the lock.

    An exception of a signal handler, such as that of Ctrl-C, leaves no lock behind.
    """
    # A file object instead of a descriptor: if an exception arrives between two steps, it is collected and closed.
    lock = FileIO(os.fspath(path), "a+", opener=_opened_for_us)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except BaseException:
        lock.close()
        raise
    return lock


def unlock(lock: FileIO) -> None:
    """Undo `try_lock`."""
    # Closing alone does not release the lock while a forked child has a copy of the descriptor.
    fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()


def _opened_for_us(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def ping(path: str) -> str:
    """Send PING to the server at `path` and return its reply; '' if it does not reply."""
    try:
        with closing(InlineConnection(path)) as connection:
            return connection.ask("PING")
    except OSError:
        return ""


def read_record(folder: Path) -> dict[str, object]:
    """Return `socket` and `pid` of the folder's server and the pid of its `watcher`; {} if it stopped gracefully."""
    try:
        found = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def recorded_socket(folder: Path) -> str:
    """Return the socket of the folder's server, which may have died since; '' if it is unknown."""
    return str(read_record(folder).get("socket", ""))


def main(path: str, idle_s: float, command: list[str]) -> int:
    """Start the server of the working folder, or adopt it if its watcher was killed, and watch it until it exits.

    The process that was called exits as soon as it has locked the folder; its child does the rest.
    """
    watcher_lock = try_lock(WATCHER_LOCK, fcntl.LOCK_EX)  # held until this process exits
    if watcher_lock is None:
        return TAKEN
    lives_at = recorded_socket(Path())
    if lives_at and ping(lives_at):
        _daemonize()
        _record(lives_at, read_record(Path()).get("pid"))
        _watch(lives_at, idle_s, None)
        return 0
    server_lock = try_lock(SERVER_LOCK, fcntl.LOCK_EX)
    if server_lock is None:
        return TAKEN
    _daemonize()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = _start(command, path, server_lock)
    try:
        _watch(path, idle_s, server)
    finally:
        server.terminate()
        server.wait()
        for name in (path, RECORD):
            with suppress(OSError):
                os.unlink(name)
    return 0


def _daemonize() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _start(command: list[str], path: str, server_lock: FileIO) -> subprocess.Popen[bytes]:
    with suppress(FileNotFoundError):
        os.unlink(path)
    server = subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.DEVNULL, pass_fds=(server_lock.fileno(),), preexec_fn=_ending_with_parent()
    )
    server_lock.close()
    _record(path, server.pid)
    return server


def _record(path: str, pid: object) -> None:
    fresh = f"{RECORD}.new"
    Path(fresh).write_text(json.dumps({"socket": path, "pid": pid, "watcher": os.getpid()}) + "\n")
    os.replace(fresh, RECORD)


def _ending_with_parent() -> Callable[[], None] | None:
    """Return a function that lets the server stop gracefully when this process is killed; None if not on Linux.

    On other systems the next process that uses the folder starts a watcher, which adopts the server.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes  # missing in some builds of Python

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    watcher = os.getpid()

    def request_signal() -> None:
        prctl(1, int(signal.SIGTERM), 0, 0, 0)  # PR_SET_PDEATHSIG of linux/prctl.h
        if os.getppid() != watcher:
            os._exit(1)

    return request_signal


def _watch(path: str, idle_s: float, server: subprocess.Popen[bytes] | None) -> None:
    """Check the server from time to time until it has exited, and shut it down if it is idle or can't be found."""
    idle_timer = IdleTimer()
    while connection := _connected(path, server):
        # After an error, connecting again shows whether the server died or was too busy to reply.
        with closing(connection), suppress(OSError):
            while not connection.hangs_up_within(min(LONGEST_LOOK_S, idle_s / 4)):
                idle_timer.update(connection)
                # No client can find a server without its record or socket: its folder was removed, or /tmp cleaned.
                if recorded_socket(Path()) != path or not os.path.exists(path):
                    connection.ask("SHUTDOWN")
                elif idle_timer.idle_for_s() >= idle_s:
                    _end_if_alone(connection, idle_timer, idle_s)


def _connected(path: str, server: subprocess.Popen[bytes] | None) -> InlineConnection | None:
    """Connect once the server is running and not too busy to reply; return None if it has exited.

    A server that this process started has ten seconds to open its socket. An adopted server is not a child of this
    process, so its exit shows only in a refused connection.
    """
    may_refuse_until = time.monotonic() + (10 if server else 0)
    while server is None or server.poll() is None:
        try:
            connection = InlineConnection(path, timeout_s=30)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() >= may_refuse_until:
                return None
            time.sleep(0.005)
            continue
        with suppress(OSError):
            if connection.ask("CLIENT SETNAME schedq-watcher").startswith("-"):
                time.sleep(1)  # the server has reached its limit of clients
            return connection
        connection.close()
        time.sleep(0.005)
    return None


class IdleTimer:
    """Measures how long no client except the watcher has used the server."""

    def __init__(self) -> None:
        self._connections = -1
        self._last_seen = time.monotonic()

    def update(self, connection: InlineConnection) -> None:
        """Check whether a client is connected now, or was since the last update."""
        info = dict(line.split(":", 1) for line in connection.ask("INFO").split("\r\n") if ":" in line)
        connections = int(info.get("total_connections_received", -1))
        if connections != self._connections or info.get("connected_clients") != "1":
            self._last_seen = time.monotonic()
        self._connections = connections

    def idle_for_s(self) -> float:
        """Seconds since a client was seen."""
        return time.monotonic() - self._last_seen


def _end_if_alone(connection: InlineConnection, idle_timer: IdleTimer, idle_s: float) -> None:
    """Shut the server down, unless a client connected at the last moment.

    A process that wants to use the server meanwhile waits for the start lock and then starts the server again.
    """
    start_lock = try_lock(START_LOCK, fcntl.LOCK_EX)
    if start_lock is None:
        return
    try:
        idle_timer.update(connection)
        if idle_timer.idle_for_s() >= idle_s:
            connection.ask("SHUTDOWN")
    finally:
        unlock(start_lock)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
