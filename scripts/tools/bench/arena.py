"""Runs one measurement: a fresh server, a file of marks, and one contestant's processes."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import redis

from scripts.tools.bench import processes
from scripts.tools.bench.entries import Contestant
from scripts.tools.bench.environments import Environments
from scripts.tools.bench.tap import Tap
from tests.servers import Server

APPS: Final = Path(__file__).with_name("contestants")
ROOT: Final = Path(__file__).parents[3]
_RECORD: Final = struct.Struct("<qddq")
closing: Final = threading.Event()
"""Set when the benchmark is being stopped: all waits give up."""


class TroubleError(Exception):
    """A contestant did not do what was requested in time; the text says what, with the end of its log."""


class Mark(NamedTuple):
    """The start of a handler.

    Attributes:
        reference: Unix seconds; the instant from which it is measured.
        at: Unix seconds.
    """

    number: int
    reference: float
    at: float
    pid: int


@dataclass(frozen=True, slots=True)
class Used:
    """Resources used so far, or between two moments.

    Attributes:
        cpu_s: CPU seconds of all processes in the contestant's worker trees.
        redis_cpu_s: CPU seconds of Redis.
        machine_cpu_s: CPU seconds of all processes on this machine.
        commands: commands executed by Redis, including those inside scripts.
    """

    at: float
    cpu_s: float
    redis_cpu_s: float
    machine_cpu_s: float
    commands: int

    def since(self, before: Used) -> Used:
        """The difference to an earlier moment."""
        return Used(
            self.at - before.at,
            self.cpu_s - before.cpu_s,
            self.redis_cpu_s - before.redis_cpu_s,
            self.machine_cpu_s - before.machine_cpu_s,
            self.commands - before.commands,
        )


class Arena:
    """The environment of one measurement; everything in it has ended on exit."""

    def __init__(
        self, contestant: Contestant, environments: Environments, binary: Path | None, setting: str = ""
    ) -> None:
        self.contestant = contestant
        self.server = Server(binary, topology="single")
        self.workers: list[subprocess.Popen[bytes]] = []
        self._environments = environments
        self._folder = Path(tempfile.mkdtemp(prefix="schedq-bench-", dir="/tmp"))
        self._marks = self._folder / "marks"
        self._marks.touch()
        self._log = self._folder / "log"
        self._setting = setting

    def __enter__(self) -> Self:
        self.server.start()
        self.store: redis.Redis = self.server.client()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            processes.end(self.workers)
            self.store.close()
        finally:
            self.server.stop()
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _environment(self) -> dict[str, str]:
        return self._environments.variables(self.contestant) | {
            "BENCH_REDIS": self.server.url,
            "BENCH_MARKS": str(self._marks),
            "BENCH_SETTING": self._setting,
            "PYTHONPATH": os.pathsep.join(map(str, (APPS, ROOT))),
            "PYTHONUNBUFFERED": "1",
        }

    def produce(self, *words: object) -> dict[str, Any]:
        """Let a producer do something (see contestants/producing.py); returns what it reports."""
        command = [*self._environments.command(self.contestant), *map(str, words)]
        with tempfile.TemporaryFile("w+b", dir=self._folder) as said, self._log.open("ab") as log:
            process = subprocess.Popen(
                command,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                start_new_session=True,
            )
            try:
                self._wait(lambda: process.poll() is not None, 600, f"producing {words}")
            finally:
                processes.end([process])
            said.seek(0)
            lines = said.read().decode().splitlines()
        if process.returncode or not lines:
            raise TroubleError(f"{self.contestant.name}: producing {words} ended with {process.returncode}{self.log()}")
        answer: dict[str, Any] = json.loads(lines[-1])
        if "error" in answer:
            raise TroubleError(f"{self.contestant.name}: {answer['error']}{self.log()}")
        return answer

    def start(self, kind: str, count: int = 1) -> subprocess.Popen[bytes]:
        """Start a worker of `count` processes; the first also starts the scheduler, if the engine has one."""
        if count > 1 and not self.contestant.forks:
            return [self.start(kind) for _ in range(count)][-1]
        command = self._environments.command(self.contestant)
        if self.contestant.has_scheduler and not self.workers:
            self._start([*command, "scheduler"])
        return self.start_one(kind, count)

    def start_one(self, kind: str, count: int) -> subprocess.Popen[bytes]:
        """Start one worker, which gets this count."""
        return self._start([*self._environments.command(self.contestant), "worker", kind, str(count)])

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self.workers.append(processes.start(command, self._environment, self._folder, self._log))
        return self.workers[-1]

    def warm_up(self, kind: str, jobs: int = 20) -> None:
        """Make sure that the workers run jobs."""
        before = self.marked()
        self.produce("fill", kind, jobs)
        self.wait_for(before + jobs, 60)
        self.pause(0.5)
        self.forget()

    def forget(self) -> None:
        """Remove all marks."""
        self._marks.write_bytes(b"")

    def marked(self) -> int:
        """Number of handlers that have started."""
        return self._marks.stat().st_size // _RECORD.size

    def wait_for(self, count: int, patience_s: float) -> None:
        """Wait until `count` handlers have started; gives up if none has started for `patience_s`."""
        seen = -1
        while seen < count:
            self._wait(lambda so_far=seen: self.marked() > so_far, patience_s, f"a job after {max(seen, 0)} of {count}")  # type: ignore[misc]
            seen = self.marked()
            if seen < count:
                time.sleep(0.01)

    def wait_for_all(self, count: int, most: int, patience_s: float) -> None:
        """Wait until `count` processes have each started a job, or `most` jobs have started in total."""
        self._wait(
            lambda: self.marked() > most or len({mark.pid for mark in self.marks()}) >= count,
            patience_s,
            f"a job in each of {count} processes",
        )

    def wait_quiet(self, quiet_s: float, patience_s: float = 90) -> None:
        """Wait until the workers are connected and no connection has been opened or closed for `quiet_s`."""
        until, since, clients = time.monotonic() + patience_s, time.monotonic(), -1
        while time.monotonic() - since < quiet_s:
            now = int(self.store.info("clients")["connected_clients"])
            if now != clients or now < 2:
                clients, since = now, time.monotonic()
            if time.monotonic() > until or closing.wait(0.25):
                raise TroubleError(
                    f"{self.contestant.name}: its workers keep opening or closing connections{self.log()}"
                )

    def pause(self, seconds: float) -> None:
        """Sleep, unless the benchmark is being stopped."""
        if closing.wait(seconds):
            raise TroubleError(f"{self.contestant.name}: stopped")

    def _wait(self, is_so: Callable[[], bool], patience_s: float, what: str) -> None:
        until = time.monotonic() + patience_s
        while not is_so():
            if time.monotonic() > until or closing.is_set():
                raise TroubleError(f"{self.contestant.name}: waited {patience_s:.0f} s for {what}{self.log()}")
            time.sleep(0.002)

    def marks(self) -> list[Mark]:
        """All marks of measured jobs, in the order in which the handlers started."""
        found = (Mark(*fields) for fields in _RECORD.iter_unpack(self._marks.read_bytes()))
        return sorted((mark for mark in found if mark.number >= 0), key=lambda mark: mark.at)

    def pids(self) -> list[int]:
        """The workers' processes."""
        return [pid for worker in self.workers for pid in processes.tree(worker.pid)]

    def used(self) -> Used:
        """Resources used up to now."""
        info = self.store.info("all")
        return Used(
            time.monotonic(),
            processes.cpu_s(self.pids()),
            info["used_cpu_user"] + info["used_cpu_sys"],
            processes.machine_cpu_s(),
            info["total_commands_processed"],
        )

    def tap(self) -> Tap:
        """Count requests while it is open."""
        return Tap(self.server.port)

    def log(self) -> str:
        """The end of the processes' output, on lines of its own."""
        text = self._log.read_text(errors="replace").strip() if self._log.exists() else ""
        return "\n    " + "\n    ".join(text.splitlines()[-8:]) if text else ""
