"""A pytest plugin that runs test files in several processes: `-n COUNT`.

Collecting all tests takes seconds of processor time. It is done once: the processes are forks of the one that has
collected. Each takes the next file, in the order of the collection, until none is left, and sends its reports. Only the
collecting process prints them and knows which tests failed.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import struct
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

Files = Sequence[list[pytest.Item]]

_NUMBER: Final = struct.Struct("!H")
_LOOK_S: Final = 1.0
"""Seconds of silence after which the processes are looked for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `-n`; as it is in lower case, not with `addoption`, which keeps those letters for pytest."""
    parser.getgroup("parallel")._addoption(
        "-n", dest="processes", type=int, default=0, metavar="COUNT", help="run test files in this many processes"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the files in several processes, unless one suffices."""
    option = session.config.option
    files = [list(items) for _, items in itertools.groupby(session.items, key=lambda item: item.path)]
    count = min(option.processes, len(files))
    has_failed = session.testsfailed and not option.continue_on_collection_errors
    if count < 2 or option.collectonly or option.usepdb or has_failed:
        return None
    assert threading.active_count() == 1, f"a fork has none of these threads: {threading.enumerate()}"
    if terminal := session.config.pluginmanager.get_plugin("terminalreporter"):
        terminal.showfspath = False  # the files' results are mixed
        terminal.flush()
    run = _Run(session, files)
    try:
        run.start(count)
        run.gather()
    finally:
        run.end()
    return True


class _Process:
    """A fork, as the collecting process knows it.

    Attributes:
        reports: brings the number of each file that it begins, the reports of each test, and None at the end.
        left: what it has yet to run of its file.
    """

    def __init__(self, pid: int, reports: Connection) -> None:
        self.pid, self.reports = pid, reports
        self.left: list[pytest.Item] = []

    def has_ended(self) -> bool:
        """Whether it is gone and all it has sent is read. A process started by a test may keep its pipe open."""
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0 and not self.reports.poll()


class _Run:
    """All processes, and what is left for them to do."""

    def __init__(self, session: pytest.Session, files: Files) -> None:
        self._session, self._files = session, files
        self._hook = session.config.hook
        self._queue, end = os.pipe()  # the numbers of files; reading two bytes is atomic
        os.write(end, b"".join(_NUMBER.pack(number) for number in range(len(files))))
        os.close(end)
        self._running: list[_Process] = []
        self._pids: list[int] = []

    def start(self, count: int) -> None:
        """Fork the processes."""
        folder: Path = self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        for number in range(count):
            reports, end = Pipe(duplex=False)
            pid = os.fork()
            if not pid:
                for other in (reports, *(process.reports for process in self._running)):
                    other.close()
                _Work(self._session, self._files, self._queue, end).do(folder / f"fork-{number}")
            end.close()
            self._pids.append(pid)
            self._running.append(_Process(pid, reports))

    def gather(self) -> None:
        """Pass on the reports until all processes have ended.

        Raises:
            pytest.Session.Failed, pytest.Session.Interrupted: the options end the run after this many failures.
        """
        while self._running:
            ready = wait([process.reports for process in self._running], _LOOK_S)
            for process in list(self._running):
                if process.reports in ready:
                    self._receive(process)
                elif not ready and process.has_ended():
                    self._lose(process)
            if self._session.shouldfail:
                raise self._session.Failed(self._session.shouldfail)
            if self._session.shouldstop:
                raise self._session.Interrupted(self._session.shouldstop)
        for number in iter(self._next, None):
            self._fail(self._files[number], "every process had ended before")

    def _receive(self, process: _Process) -> None:
        try:
            message = pickle.loads(process.reports.recv_bytes())
        except EOFError:
            return self._lose(process)
        if message is None:
            self._running.remove(process)
        elif isinstance(message, int):
            process.left = list(self._files[message])
        else:
            if process.left:
                process.left.pop(0)
            for name, values in message:
                if name == "pytest_runtest_logreport":
                    values = {
                        "report": self._hook.pytest_report_from_serializable(config=self._session.config, **values)
                    }
                getattr(self._hook, name)(**values)
        return None

    def _lose(self, process: _Process) -> None:
        self._running.remove(process)
        assert process.left, "a process of the tests ended between two files"
        self._fail(process.left[:1], "the process ended during this test")
        self._fail(process.left[1:], "the process ended during a test before this one")

    def _fail(self, items: Sequence[pytest.Item], reason: str) -> None:
        for item in items:
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, "call")
            self._hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            self._hook.pytest_runtest_logreport(report=report)
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _next(self) -> int | None:
        return _next(self._queue)

    def end(self) -> None:
        """Let each process that is still there end after its test, and wait for it."""
        for _ in iter(self._next, None):
            pass
        for process in self._running:
            process.reports.close()
        for pid in self._pids:
            with suppress(ChildProcessError):  # it was known to be gone
                os.waitpid(pid, 0)
        os.close(self._queue)


def _next(queue: int) -> int | None:
    number = os.read(queue, _NUMBER.size)
    return int(_NUMBER.unpack(number)[0]) if number else None


class _Work:
    """What a fork does. It is a plugin that sends what the tests report."""

    def __init__(self, session: pytest.Session, files: Files, queue: int, reports: Connection) -> None:
        self._session, self._files, self._queue, self._reports = session, files, queue, reports
        self._config = session.config
        self._found: list[tuple[str, dict[str, Any]]] = []

    def do(self, folder: Path) -> None:
        """Run files until none is left, and end the process."""
        code = 1
        try:
            self._prepare(folder)
            self._run_files()
            self._send(None)
            code = 0
        except (KeyboardInterrupt, BrokenPipeError):
            pass  # the collecting process says it, or has stopped
        except BaseException:
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            os._exit(code)

    def _prepare(self, folder: Path) -> None:
        """Share no folder, no file of captured output and no terminal with the other forks."""
        plugins = self._config.pluginmanager
        folder.mkdir(0o700)
        self._config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        capture = plugins.get_plugin("capturemanager")
        assert capture is not None
        if capture.is_globally_capturing():
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture(in_=False)
        if terminal := plugins.get_plugin("terminalreporter"):
            plugins.unregister(terminal)
            plugins.register(SimpleNamespace(_tw=terminal._tw), "terminalreporter")  # for stacks at a time-out
        plugins.register(self)

    def _run_files(self) -> None:
        item = None
        try:
            for number in iter(lambda: _next(self._queue), None):
                self._send(number)
                items = self._files[number]
                for item, following in itertools.zip_longest(items, items[1:]):
                    # What has the whole session as its scope outlives a file.
                    nextitem = following or self._session
                    self._config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
                    if self._session.shouldfail or self._session.shouldstop:
                        return
        finally:
            if item is not None:
                call = pytest.CallInfo.from_call(lambda: self._session._setupstate.teardown_exact(None), "teardown")
                report = self._config.hook.pytest_runtest_makereport(item=item, call=call)
                if report.failed:
                    self.pytest_runtest_logreport(report)
                    self._send_found()

    def _send(self, message: object) -> None:
        self._reports.send_bytes(pickle.dumps(message))

    def _send_found(self) -> None:
        found, self._found = self._found, []
        self._send(found)

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Note that a test begins."""
        self._found.append(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a part of a test ended."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._found.append(("pytest_runtest_logreport", {"data": data}))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Send what was noted of a test."""
        self._found.append(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))
        self._send_found()
