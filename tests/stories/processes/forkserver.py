"""Runs `schedq` commands in forks of a process that has imported the package already.

An interpreter spends 0.2 s of processor time on these imports, and the stories start some three hundred processes. What
depends on how a process starts is tested with new interpreters: see `FRESH` in scene.py.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

_MOST_BYTES: Final = 200_000
_IMPORTED: Final = (
    "ctypes",
    "multiprocessing",
    "schedq.cli.enqueue",
    "schedq.cli.job_actions",
    "schedq.cli.jobs",
    "schedq.cli.servers",
    "schedq.cli.stats",
    "schedq.cli.top",
    "schedq.cli.worker",
)


class Fork:
    """A running command; like `subprocess.Popen` as far as tests use it."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self._lock = threading.Lock()  # of two threads, one notices the end; no signal goes to a pid after that
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with self._lock:
            if self.returncode is None:
                self.returncode = self._server.ask({"wait": self.pid})
            return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("schedq", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """The process that imports the package, and forks."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self.close)

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: IO[bytes],
        log: IO[bytes],
        folder: Path | None = None,
    ) -> Fork:
        """Run `schedq …`, or `-c PROGRAM …` or `FILE.py …` as Python does, in a session of its own.

        Args:
            output: its standard output; a terminal becomes its own, from which it reads and to which it logs, too.
            folder: where it runs and finds modules first; the server's own unless given.
        """
        request = {"start": list(arguments), "environment": dict(environment), "folder": str(folder or "")}
        return Fork(self, self.ask(request, [output.fileno(), log.fileno()]))

    def ask(self, request: dict[str, Any], fds: Sequence[int] = ()) -> Any:
        """Send a request, and return the response."""
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], fds)
            return json.loads(self._control.recv(_MOST_BYTES))

    def close(self) -> None:
        """End the process."""
        self._control.close()
        self._process.wait(60)


@functools.cache
def fork_server(folder: Path, environment: tuple[tuple[str, str], ...]) -> ForkServer:
    """Return the fork server for processes with this environment."""
    return ForkServer(folder, dict(environment))


def _serve(control: socket.socket) -> list[str] | None:
    """Fork until the tests have ended. Returns the arguments in each fork, and None in the server."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, _MOST_BYTES, 2)
        if not message:
            return None
        request = json.loads(message)
        if "wait" in request:
            pid, status = os.waitpid(request["wait"], os.WNOHANG)
            response = os.waitstatus_to_exitcode(status) if pid else None
        elif response := os.fork():
            for fd in fds:
                os.close(fd)
        else:
            if os.isatty(fds[0]):
                os.close(fds[1])
                os.login_tty(fds[0])
                # Those of the server belong to a file, and have its place in it.
                sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", 1), open(2, "w", 1)  # noqa: SIM115
            else:
                os.setsid()
                for fd, standard in zip(fds, (1, 2), strict=True):
                    os.dup2(fd, standard)
                    os.close(fd)
            os.environ.clear()
            os.environ.update(request["environment"])
            if request["folder"]:
                os.chdir(request["folder"])
                sys.path.insert(0, request["folder"])
            arguments: list[str] = request["start"]
            return arguments
        control.send(json.dumps(response).encode())


def _main(fd: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in _IMPORTED:
        with suppress(ModuleNotFoundError):  # another release may have others
            importlib.import_module(name)
    gc.freeze()
    with socket.socket(fileno=fd) as control:
        arguments = _serve(control)
    if arguments and arguments[0] == "-c":
        sys.argv[:] = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    elif arguments and arguments[0].endswith(".py"):
        sys.argv[:] = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
    elif arguments is not None:
        sys.orig_argv[:] = [sys.executable, "-m", "schedq", *arguments]
        sys.argv[:] = ["schedq", *arguments]
        runpy.run_module("schedq", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
