"""A server of its own with real workers and promoters, and the records of what they did."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, TypeVar

from schedq import JobRecord
from tests.servers import Server, environment_now
from tests.state import State
from tests.stories.processes import app
from tests.stories.processes.forkserver import Fork, fork_server
from tests.waiting import until

ROOT = Path(__file__).parents[3]
APP = "tests.stories.processes.app:queue"
POLL_S = 0.01
FRESH: Final = (sys.executable, "-m", "schedq")
"""The command for a process that starts with a new interpreter."""
LONG_GOODBYES: Final = {"APP_LONG_GOODBYES": "1"}
"""Lets a worker deregister when it stops, however busy the machine is."""
Case = TypeVar("Case")
Found = TypeVar("Found")
_FAILURES: Final = re.compile(
    r"^.*(?:job \S+: \S+ failed(?: for good)?, attempt|a task or callback of the application) .*\n(?:    .*\n)*",
    re.MULTILINE,
)
"""Failures of the application's code in a log, each with its traceback."""


@dataclass(frozen=True)
class Note:
    """A handler's record: `start` or `end`, with attempt, process and time (ms since the epoch)."""

    word: str
    id: str
    attempt: int
    pid: int
    at_ms: float


class Process:
    """A `python -m schedq …` in its own process group; `log` is its output.

    It is a fork of a process that has imported schedq, unless the command or the folder differs. One for each folder
    and environment of Python and of the system does the forking.

    Args:
        is_fork: for a folder with another `schedq`; the command is then empty, `-c` and a program, or a Python file.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        folder: Path,
        number: int,
        environment: dict[str, str],
        command: Sequence[str] = (),
        cwd: Path = ROOT,
        *,
        is_fork: bool | None = None,
    ) -> None:
        if is_fork is None:
            is_fork = not command and cwd == ROOT
        self.arguments = arguments
        self._file = folder / f"log-{number}"
        self._output = folder / f"output-{number}"
        self._popen: Fork | subprocess.Popen[bytes]
        with self._file.open("wb") as log, self._output.open("wb") as output:
            if is_fork:
                server = fork_server(cwd, system_of(environment))
                self._popen = server.start([*command, *arguments], environment, output, log)
            else:
                self._popen = subprocess.Popen(
                    [*(command or FRESH), *arguments],
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=log,
                    start_new_session=True,
                )
        self.pid = self._popen.pid

    def __repr__(self) -> str:
        return f"schedq {' '.join(self.arguments)} (pid {self.pid}, code {self._popen.poll()}):\n{self.log}"

    @property
    def log(self) -> str:
        return self._file.read_text(errors="replace")  # the end of the last line may be missing

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def worker_ids(self) -> list[str]:
        """The worker ids that it or its children reported when they were ready."""
        words = [line.partition(" INFO    worker ")[2].split(": ready for") for line in self.log.splitlines()]
        return [found[0] for found in words if len(found) == 2]

    @property
    def children(self) -> set[int]:
        """Pids of its running child processes."""
        return {pid for pid, parent, _ in living() if parent == self.pid}

    @property
    def cpu_s(self) -> float:
        """CPU time used so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def send(self, number: int) -> None:
        self._popen.send_signal(number)

    def send_group(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, and wait."""
        self.send(signal.SIGKILL)
        self._popen.wait(60)

    def code(self, within: float = 90) -> int:
        """Wait for its exit code."""
        try:
            return self._popen.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within} s: {self!r}") from None

    def end(self) -> None:
        """Kill it and all its remaining processes."""
        if self.is_running or not self.leaves_nothing():
            self.send_group(signal.SIGKILL)
        self._popen.wait(60)

    def leaves_nothing(self) -> bool:
        """Whether its process group is empty.

        The id of a process that has ended may belong to another one soon, such as a test's server, which then
        leads a group of its own.
        """
        group = [pid for pid, _, group in living() if group == self.pid]
        return not group or (self.pid in group and not self.is_running)


def system_of(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that are neither the test's nor schedq's."""
    ours = ("APP_", "SCHEDQ_", "REDIS_", "PYTEST_")
    return tuple(sorted((name, value) for name, value in environment.items() if not name.startswith(ours)))


class Scene:
    """One queue on a server of its own.

    Args:
        server: not started yet.
        settings: the queue's settings; `backoff` in seconds.
    """

    def __init__(self, server: Server, settings: dict[str, Any]) -> None:
        self.server = server
        self.folder = Path(tempfile.mkdtemp(prefix="schedq-scene-"))
        self.settings = settings
        self.processes: list[Process] = []
        server.start()
        self.queue = app.made(server.url, settings)
        self.client = server.client()

    # -- actions

    def start(self, *arguments: str, how: Mapping[str, Any] | None = None, **environment: str) -> Process:
        """Run `schedq …`; `how` may replace the command `python -m schedq` and the folder, which is the checkout."""
        known = {
            key: value for key, value in environment_now().items() if not key.startswith(("APP_", "SCHEDQ_", "REDIS_"))
        }
        ours = {
            "APP_FOLDER": str(self.folder),
            "APP_SETTINGS": json.dumps(self.settings),
            "SCHEDQ_REDIS_URL": self.server.url,
        }
        made = Process(arguments, self.folder, len(self.processes), known | ours | environment, **how or {})
        self.processes.append(made)
        return made

    def worker(self, *options: str, **environment: str) -> Process:
        """A worker that may not be ready yet."""
        return self.start("worker", APP, *options, how=None, **environment)

    def ready_worker(self, *options: str, **environment: str) -> Process:
        """A worker that has found no jobs and is waiting."""
        waiting = self.waiting()
        worker = self.worker(*options, **environment)
        self.until(lambda: self.is_alive(worker) and self.waiting() > waiting)
        return worker

    def waiting(self) -> int:
        """Number of workers that block until there is something to do."""
        return int(self.client.info("clients")["blocked_clients"])

    def is_alive(self, worker: Process, count: int = 1) -> bool:
        """Whether the queue lists the worker, or `count` workers of a multi-process one."""
        known = self.client.zrange(self.queue.settings.keys.workers, 0, -1)
        return sum(worker_id in known for worker_id in worker.worker_ids) >= count

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def add(self, task: str, *args: object, **options: Any) -> str:
        """Enqueue a call; returns its id."""
        return self.queue.enqueue(call(task, *args), **options)

    def until(self, condition: Callable[[], object], within: float = 90) -> None:
        """Wait until the condition holds."""
        until(condition, within, failing=lambda: f"{self.places()}\n{self.notes()}\n{self.processes}")

    # -- observations

    def now_ms(self) -> float:
        """Redis's clock."""
        seconds, micros = self.client.time()
        return float(seconds * 1000 + micros / 1000)

    def notes(self, word: str = "") -> list[Note]:
        """The handlers' records, in order; `word` selects some."""
        with suppress(FileNotFoundError):
            text = (self.folder / app.NOTES).read_text()
            lines = text[: text.rfind("\n") + 1].splitlines()  # the last line may be incomplete
            return [note for note in (Note(**json.loads(line)) for line in lines) if word in ("", note.word)]
        return []

    def starts(self) -> dict[str, list[Note]]:
        """Job id → its starts, in order."""
        found: dict[str, list[Note]] = defaultdict(list)
        for note in self.notes("start"):
            found[note.id].append(note)
        return found

    def job(self, job_id: str) -> JobRecord:
        record = self.queue.get_job(job_id)
        assert record is not None
        return record

    def has_started(self, *ids: str) -> bool:
        return set(ids) <= self.starts().keys()

    def is_completed(self, *ids: str) -> bool:
        return all(self.job(job_id).status == "completed" for job_id in ids)

    def state(self) -> State:
        return State.of(self.client, self.queue.settings.keys)

    def places(self) -> dict[str, list[str]]:
        return self.state().places() if self.server.is_running else {}

    def close(self) -> dict[str, list[str]]:
        """End the scene: every process that is still running must stop gracefully. Returns the broken laws.

        Raises:
            AssertionError: a process failed to stop, logged a traceback, or left something behind.
        """
        try:
            running = [process for process in self.processes if process.is_running]
            for process in running:
                process.send_group(signal.SIGCONT)
                process.send(signal.SIGTERM)
            for process in running:
                assert process.code() == 0, repr(process)
            for process in self.processes:
                assert "Traceback" not in _FAILURES.sub("", process.log), repr(process)
                # The resource tracker of `multiprocessing` ends when it sees that its process has ended.
                until(process.leaves_nothing, failing=partial(repr, process))
            return self.state().broken_laws() if self.server.is_running else {}
        finally:
            for process in self.processes:
                process.end()
            self.queue.close()
            self.client.close()
            self.server.stop()
            rmtree(self.folder)


def living() -> Iterator[tuple[int, int, int]]:
    """All processes: pid, parent, group. Zombies don't count."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, group = file.read_text().rpartition(")")[2].split()[:3]
            if state != "Z":
                yield int(file.parent.name), int(parent), int(group)


def each(cases: Iterable[Case], act: Callable[[Case], Found]) -> list[Found]:
    """Run it for all cases concurrently, and return what it finds in each; fails if any case fails."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        under_way = {pool.submit(act, case): case for case in cases}
    for future, case in under_way.items():
        if error := future.exception():
            raise AssertionError(f"in the case of {case}") from error
    return [future.result() for future in under_way]


def call(task: str, *args: object) -> dict[str, object]:
    """The payload that calls a task."""
    return {"task": task, "args": list(args)}
