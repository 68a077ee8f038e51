"""Where one measurement happens: a fresh server, a file of marks, and one contestant's processes."""

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
"""The bench is being stopped: whoever waits for something gives up."""


class TroubleError(Exception):
    """A contestant did not do what was asked of it in time; the text says what, and what it wrote last."""


class Mark(NamedTuple):
    """A handler has started.

    Attributes:
        reference: Unix seconds, the instant that it is measured from.
        at: Unix seconds.
    """

    number: int
    reference: float
    at: float
    pid: int


@dataclass(frozen=True, slots=True)
class Used:
    """What has been used since a moment before.

    Attributes:
        cpu_s: per process of the contestant's worker trees, all together.
        redis_cpu_s: by Redis.
        machine_cpu_s: by everybody on this machine.
        commands: commands that Redis carried out, those inside scripts too.
    """

    at: float
    cpu_s: float
    redis_cpu_s: float
    machine_cpu_s: float
    commands: int

    def since(self, before: Used) -> Used:
        """The difference."""
        return Used(
            self.at - before.at,
            self.cpu_s - before.cpu_s,
            self.redis_cpu_s - before.redis_cpu_s,
            self.machine_cpu_s - before.machine_cpu_s,
            self.commands - before.commands,
        )


class Arena:
    """One measurement's place; everything in it has ended when it is left."""

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
        """Let a producer do something, see contestants/producing.py; what it says of it."""
        command = [*self._environments.command(self.contestant), *map(str, words)]
        with (self._folder / "said").open("w+b") as said, self._log.open("ab") as log:
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
        """Start a worker of `count` processes; the first brings the scheduler along, if there is such a thing."""
        if count > 1 and not self.contestant.forks:
            return [self.start(kind) for _ in range(count)][-1]
        command = self._environments.command(self.contestant)
        if self.contestant.has_scheduler and not self.workers:
            self._start([*command, "scheduler"])
        return self._start([*command, "worker", kind, str(count)])

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self.workers.append(processes.start(command, self._environment, self._folder, self._log))
        return self.workers[-1]

    def warm_up(self, kind: str, jobs: int = 20) -> None:
        """See that the workers run jobs."""
        before = self.marked()
        self.produce("fill", kind, jobs)
        self.wait_for(before + jobs, 60)
        self.pause(0.5)
        self._marks.write_bytes(b"")

    def marked(self) -> int:
        """How many handlers have started."""
        return self._marks.stat().st_size // _RECORD.size

    def wait_for(self, count: int, patience_s: float) -> None:
        """Wait until that many handlers have started; gives up when none has started for so long."""
        seen = -1
        while seen < count:
            self._wait(lambda so_far=seen: self.marked() > so_far, patience_s, f"a job after {max(seen, 0)} of {count}")  # type: ignore[misc]
            seen = self.marked()
            if seen < count:
                time.sleep(0.01)

    def wait_for_all(self, count: int, most: int, patience_s: float) -> None:
        """Wait until `count` processes have each started a job, or `most` jobs have been started in all."""
        self._wait(
            lambda: self.marked() > most or len({mark.pid for mark in self.marks()}) >= count,
            patience_s,
            f"a job in each of {count} processes",
        )

    def wait_quiet(self, quiet_s: float, patience_s: float = 90) -> None:
        """Wait until the workers have been connected, and no other has come or gone, for a while."""
        until, since, clients = time.monotonic() + patience_s, time.monotonic(), -1
        while time.monotonic() - since < quiet_s:
            now = int(self.store.info("clients")["connected_clients"])
            if now != clients or now < 2:
                clients, since = now, time.monotonic()
            if time.monotonic() > until or closing.wait(0.25):
                raise TroubleError(f"{self.contestant.name}: its workers do not come to rest{self.log()}")

    def pause(self, seconds: float) -> None:
        """Let time pass."""
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
        """Up to now."""
        info = self.store.info("all")
        return Used(
            time.monotonic(),
            processes.cpu_s(self.pids()),
            info["used_cpu_user"] + info["used_cpu_sys"],
            processes.machine_cpu_s(),
            info["total_commands_processed"],
        )

    def tap(self) -> Tap:
        """Count requests as long as it is open."""
        return Tap(self.server.port)

    def log(self) -> str:
        """The end of what the processes wrote, on lines of its own."""
        text = self._log.read_text(errors="replace").strip() if self._log.exists() else ""
        return "\n    " + "\n    ".join(text.splitlines()[-8:]) if text else ""
