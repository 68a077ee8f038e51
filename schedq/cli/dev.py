"""`schedq dev`: the embedded server, a worker that restarts when code changes, and the dashboard, in one terminal."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

import click

from schedq import embedded
from schedq.cli import output
from schedq.cli.params import UNDER_DEV, port_option
from schedq.isolation import parent_death

_LOOK_S: Final = 0.5
"""Seconds between two looks at the files."""
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_GRACE_S: Final = 5
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@click.command(epilog="Example:  schedq dev app:queue", no_args_is_help=True)
@click.argument("apps", metavar="APP...", nargs=-1, required=True)
@click.option(
    "--redis",
    "redis_url",
    metavar="URL",
    envvar=["SCHEDQ_REDIS_URL", "REDIS_URL"],
    default="embedded://.schedq",
    help="URL of Redis, for the dashboard and for queues that do not set one; default: SCHEDQ_REDIS_URL, else "
    "REDIS_URL, else embedded://.schedq.",
)
@click.option(
    "--app-dir",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="The folder in which APP is searched first, and whose Python files are watched.",
)
@port_option(8090, "The port of the dashboard; 0: any free one.")
def dev(apps: tuple[str, ...], redis_url: str, app_dir: str, port: int) -> None:
    """Start the embedded server, a worker that restarts when a Python file changes, and the dashboard.

    For development, on this machine only. Ctrl-C stops the worker and the dashboard; the server's data stays.
    Jobs that run when a file changes have 5 s to finish, and are released after that.
    """
    if redis_url.startswith("embedded:"):
        embedded.ensure_server(redis_url)
    os.environ.update({"SCHEDQ_REDIS_URL": redis_url, UNDER_DEV: "1"})
    stop = _stopped_by_signals()
    files = _all_files([Path(app_dir)])  # as the worker finds them, or older
    worker = ["worker", *apps, "--app-dir", app_dir, "--grace", str(_GRACE_S)]
    started = [_Process("worker", worker)]
    if importlib.util.find_spec("starlette") and importlib.util.find_spec("uvicorn"):
        started.append(_Process("dashboard", ["dashboard", "--port", str(port)]))
    else:
        output.line("schedq dev: no dashboard, because it needs: pip install 'schedq[dashboard]'")
    try:
        _restart_on_change(started[0], [Path(app_dir)], files, stop)
    finally:
        for process in started:
            process.ask_to_stop()
        for process in started:
            process.wait()


def restarting(command: Sequence[str], folders: Sequence[Path], name: str, grace: float) -> None:
    """Run a worker, and start it again when a Python file in the folders changes, until SIGTERM or Ctrl-C.

    Args:
        command: the arguments of the interpreter.
        folders: where the site's code is.
        name: what messages call this program.
        grace: seconds that the worker's jobs have to finish.
    """
    stop = _stopped_by_signals()
    files = _all_files(folders)
    worker = _Process("worker", command, program=(), grace=grace)
    try:
        _restart_on_change(worker, folders, files, stop, name)
    finally:
        worker.ask_to_stop()
        worker.wait()


def _stopped_by_signals() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in _STOP_SIGNALS:
        signal.signal(number, ask_to_stop)
    return stop


class _Process:
    """A command in a process of its own, which Ctrl-C in the terminal does not reach.

    On Linux it gets SIGTERM when this process is gone, even by SIGKILL.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], *, program: Sequence[str] = ("-m", "schedq"), grace: float = _GRACE_S
    ) -> None:
        self.name = name
        self._grace = grace
        self._arguments = [sys.executable, *program, *arguments]
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        read_end, self._life = os.pipe()
        try:
            started = subprocess.Popen(self._arguments, start_new_session=True, pass_fds=[read_end])  # noqa: S603
            parent_death.end_starting(read_end, started.pid, signal.SIGTERM)
        finally:
            os.close(read_end)
        return started

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ask_to_stop(self) -> None:
        if not self.has_ended:
            self._process.terminate()

    def wait(self) -> None:
        """Wait until it has exited; kill it if it takes longer than running jobs may."""
        try:
            self._process.wait(self._grace + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._life)

    def restart(self, changed: Iterable[str]) -> None:
        """Stop it and start it with the new text of these files.

        Python takes a file's bytecode for current if size and second of the last change are the same.
        """
        self.ask_to_stop()
        self.wait()
        for path in changed:
            with suppress(OSError, NotImplementedError):  # there is none
                os.unlink(importlib.util.cache_from_source(path))
        self._process = self._started()


def _restart_on_change(
    worker: _Process,
    folders: Sequence[Path],
    seen: dict[str, int],
    stop: threading.Event,
    name: str = "schedq dev",
) -> None:
    """Restart the worker whenever a file changes, until `stop` is set. A worker that has ended waits for a change."""
    was_running = True
    while not stop.wait(_LOOK_S):
        now = _all_files(folders)
        if changed := sorted({path for path, _ in seen.items() ^ now.items()}):
            output.line(f"{name}: {changed[0]} has changed, restarting the worker")
            worker.restart(changed)
            was_running = True
        elif was_running and worker.has_ended:
            output.line(f"{name}: the worker has ended; it starts again when a file changes")
            was_running = False
        seen = now


def _all_files(folders: Sequence[Path]) -> dict[str, int]:
    return {path: at_ns for folder in folders for path, at_ns in _files(folder)}


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield each Python file below the folder with the instant of its last change, in ns."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # deleted since it was found, or not readable
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED and not entry.name.startswith("."):
                yield from _files(Path(entry.path))
        elif entry.name.endswith(".py"):
            with suppress(OSError):  # deleted since the folder was read
                yield entry.path, entry.stat().st_mtime_ns
