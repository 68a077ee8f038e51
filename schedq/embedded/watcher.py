"""The watcher of one embedded server: starts it, and ends it when it is no longer used.

Redis and Valkey have no option that ends them when idle, hence this process. It is run by its path, in the
data folder, as `python -I -S watcher.py SOCKET IDLE_S BINARY OPTION…`, leaves its starter at once and lives
as long as the server; it imports only the standard library, so that it starts fast and costs few megabytes.

Locks show who is alive, as the kernel drops them with their holder; a pid in a file proves nothing:

    start.lock     held for moments: shared by its users, exclusive for starting or ending the server
    watcher.lock   held by the watcher
    server.lock    held by the server itself (an inherited descriptor) and its rewriting child
    server.json    where the server listens; written by the watcher, removed at a graceful end
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
"""Exit code: another watcher or an unreachable server holds the folder (EX_TEMPFAIL of sysexits.h)."""

LONGEST_LOOK_S = 5.0


class InlineConnection:
    """A bare connection to the server: inline commands, one reply each.

    Raises:
        OSError: from every method, when the server is not there, hangs up, or is silent for `timeout_s`.
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
        """The reply, with its leading type character; the text alone if it is a bulk string."""
        self._socket.sendall(command.encode() + b"\r\n")
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError(f"{command}: the server hung up")
        if line.startswith(b"$"):
            line = self._replies.read(int(line[1:]) + 2)
        return line.decode(errors="replace").rstrip("\r\n")

    def hangs_up_within(self, seconds: float) -> bool:
        """Wait until the server hangs up, or says something unasked; False when time is up first."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        """Hang up."""
        self._replies.close()
        self._socket.close()


def try_lock(path: str | os.PathLike[str], how: int) -> FileIO | None:
    """The file at `path`, now locked as `fcntl.LOCK_SH` or `LOCK_EX`; None if it is held.

    An exception of a signal handler, such as a Ctrl-C's, leaves no lock behind.
    """
    # An object and not a bare descriptor: an exception that comes between two steps drops and so closes it.
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
    # Closing alone would leave the lock with a copy of the descriptor that a fork has made.
    fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()


def _opened_for_us(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def ping(path: str) -> str:
    """What the server at `path` says to a PING; empty when it says nothing."""
    try:
        with closing(InlineConnection(path)) as connection:
            return connection.ask("PING")
    except OSError:
        return ""


def read_record(folder: Path) -> dict[str, object]:
    """`socket` and `pid` of the folder's server, and its `watcher`'s pid; empty if it ended gracefully."""
    try:
        found = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def recorded_socket(folder: Path) -> str:
    """Where the folder's server listens, or did before it died; empty when that is not known."""
    return str(read_record(folder).get("socket", ""))


def main(path: str, idle_s: float, command: list[str]) -> int:
    """Start the server of the working folder, or adopt it if its watcher was killed, and watch it to its end.

    The process that was called ends as soon as the folder is taken; the rest happens in its child.
    """
    watcher_lock = try_lock(WATCHER_LOCK, fcntl.LOCK_EX)  # ours until this process ends
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
    """What makes the server end gracefully when this process is killed; Linux only.

    Elsewhere the next process that names the folder starts a watcher, which adopts the server.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes  # not in every build of Python

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
    """Look at the server now and then, until it is gone, also by our own doing."""
    idle_timer = IdleTimer()
    while connection := _connected(path, server):
        # On an error it died, or is too busy to reply: connecting again shows which.
        with closing(connection), suppress(OSError):
            while not connection.hangs_up_within(min(LONGEST_LOOK_S, idle_s / 4)):
                idle_timer.update(connection)
                # Nobody finds a server without record or socket: its folder was removed, or /tmp swept.
                if recorded_socket(Path()) != path or not os.path.exists(path):
                    connection.ask("SHUTDOWN")
                elif idle_timer.idle_for_s() >= idle_s:
                    _end_if_alone(connection, idle_timer, idle_s)


def _connected(path: str, server: subprocess.Popen[bytes] | None) -> InlineConnection | None:
    """A connection, once the server is up and not too busy to answer; None when it is gone.

    Our own child has ten seconds to open its socket. One that we adopted shows its death only by a refusal.
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
                time.sleep(1)  # it has no connection left for us
            return connection
        connection.close()
        time.sleep(0.005)
    return None


class IdleTimer:
    """Tells how long no client but the watcher has used the server."""

    def __init__(self) -> None:
        self._connections = -1
        self._last_seen = time.monotonic()

    def update(self, connection: InlineConnection) -> None:
        """Note who is connected now, and whether a client came and went since the last update."""
        info = dict(line.split(":", 1) for line in connection.ask("INFO").split("\r\n") if ":" in line)
        connections = int(info.get("total_connections_received", -1))
        if connections != self._connections or info.get("connected_clients") != "1":
            self._last_seen = time.monotonic()
        self._connections = connections

    def idle_for_s(self) -> float:
        """Seconds since a client was seen."""
        return time.monotonic() - self._last_seen


def _end_if_alone(connection: InlineConnection, idle_timer: IdleTimer, idle_s: float) -> None:
    """Shut the server down, unless somebody came at the last moment.

    A process that asks for the server then waits for our lock and starts it again.
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
