"""The processes of a run, their server, and the network between them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from scripts.tools.chaos import faketime, orders
from scripts.tools.chaos.app import LIMITED, NAMES, SINGLE, SPARED
from scripts.tools.chaos.network import Network
from scripts.tools.chaos.record import Recorder, now
from scripts.tools.chaos.servertime import Step
from tests.servers import Server

PASSWORD: Final = "chaos"
USER: Final = "chaos"
"""The Redis user of the processes; the director has its own user, to which no fault applies."""
ROOT: Final = Path(__file__).parents[3]
APPS: Final = {name: f"scripts.tools.chaos.app:{name}" for name in NAMES}
WORKERS, PROMOTERS, PRODUCERS = 5, 2, 2
CONCURRENCY: Final = 8
SKEWS: Final = {"worker-2": "+3600", "worker-3": "-3600", "promoter-1": "+86400"}
"""Seconds by which the clocks of some processes are wrong."""
SCHEDULERS: Final = 3
"""Minimum number of workers and promoters left running: each of them can fire schedules."""
_LAST_LINES, _MOST_SHOWN = 4, 400
"""How much of the log of a process that ended unexpectedly is shown: lines, and characters of each."""
_ANSWERS: Final = ('["claimed"', '["settled"', '["renewed"', '["look"')


@dataclass(slots=True)
class Part:
    """A process of the run.

    Attributes:
        name: its name across all its lives, such as `worker-3`.
        life: its serial number among all processes ever started.
        began: instant of its start.
        is_ended: we have killed this life, or asked it to stop.
    """

    name: str
    life: int
    popen: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=now)
    is_ended: bool = False
    is_frozen: bool = False

    @property
    def key(self) -> str:
        """The name of its records."""
        return f"{self.name}-{self.life}"

    @property
    def role(self) -> str:
        return self.name.partition("-")[0]

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def send(self, number: int) -> None:
        self.popen.send_signal(number)

    def described_end(self) -> str:
        """Its unexpected end, with the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        said = f"{self.key} ended unexpectedly, exit code {self.popen.returncode}; the end of its log:"
        return "\n    ".join((said, *(line[:_MOST_SHOWN] for line in lines)))


@dataclass
class Stage:
    """The environment of a run. Leaves nothing behind.

    Args:
        rate: jobs per second, all producers together.
        seed: for the producers' choices.
        faketime: the library that fakes a process's time; None if it is not available.
        also: another checkout; every second worker runs its schedq.
        keeps: keep the folder with records and logs.
    """

    rate: float
    seed: int
    faketime: Path | None = None
    also: Path | None = None
    keeps: bool = False
    folder: Path = field(init=False)
    parts: dict[str, Part] = field(default_factory=dict)
    lives: list[Part] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="schedq-chaos-"))
        self.recorder = Recorder(self.folder, "director")
        self.recorder.watch_for_gaps()
        self.server = Server(
            topology="single", appendonly=True, appendfsync="always", user=f"{USER} on >{PASSWORD} ~* &* +@all"
        )
        self._clock = self.folder / "server-clock"
        if self.faketime is not None:
            self._clock.write_text("+0\n")
            self.server.environment = self._faked(FAKETIME_TIMESTAMP_FILE=str(self._clock), FAKETIME_CACHE_DURATION="1")
        if self.also is not None:
            (self.folder / "also").mkdir()
            (self.folder / "also" / "schedq").symlink_to(self.also.resolve() / "schedq")
        self.server.start()
        self.network = Network(self.server.port)
        self.network.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self.parts.values():
            with suppress(ProcessLookupError):
                part.send(signal.SIGKILL)
            part.popen.wait(30)
        self.network.__exit__()
        if self.server.is_running:
            self.server.thaw()
            self.kill_server()
        self.server.stop()
        for part in self.lives:
            faketime.forget(part.popen.pid)
        if not self.keeps:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_all(self) -> None:
        """Start every process, without waiting until it is ready."""
        for role, count in (("worker", WORKERS), ("promoter", PROMOTERS), ("producer", PRODUCERS)):
            for number in range(count):
                self.start(f"{role}-{number}")

    def start(self, name: str) -> Part:
        """Start a process, or start it again."""
        number, life = int(name.partition("-")[2]), len(self.lives) + 1
        paths = [str(ROOT)]
        if self.also is not None and name.startswith("worker") and number % 2:
            paths.insert(0, str(self.folder / "also"))
        url = self._url(name)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SCHEDQ_", "REDIS_"))}
        environment |= {
            "CHAOS_FOLDER": str(self.folder),
            "CHAOS_NAME": name,
            "CHAOS_KEY": f"{name}-{life}",
            "CHAOS_REDIS": url,
            "PYTHONPATH": os.pathsep.join(paths),
        }
        if self.faketime is not None and name in SKEWS:
            environment |= self._faked(FAKETIME=SKEWS[name])
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            popen = subprocess.Popen(
                [sys.executable, *self._command(name, url, number)],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        part = self.parts[name] = Part(name, life, popen, log)
        self.lives.append(part)
        return part

    def order(self, part: Part, **what: float) -> None:
        """Make a worker act on itself once it has started; see `orders`."""
        if orders.is_obeyed(self.folder, part.key):
            orders.give(self.folder, part.key, **what)
            part.send(orders.SIGNAL)

    def let_in(self, *, is_let_in: bool) -> None:
        """Accept the password of the processes, or reject it and disconnect them.

        Raises:
            RedisError: the server can't be reached at the moment.
        """
        with self.server.client() as client:
            client.execute_command("ACL", "SETUSER", USER, "resetpass", f">{PASSWORD if is_let_in else 'another'}")
            if not is_let_in:
                client.execute_command("CLIENT", "KILL", "USER", USER)

    def last_word(self, part: Part) -> float:
        """When a process last wrote a record. One that kills itself records that beforehand."""
        try:
            written = (self.folder / f"{part.key}.jsonl").stat().st_mtime
        except FileNotFoundError:
            return now()
        return now() - (time.time() - written)

    def has_got_through(self, part: Part) -> bool:
        """Whether a process that records its requests has had a reply from the server."""
        with suppress(FileNotFoundError), (self.folder / f"{part.key}.jsonl").open() as lines:
            return any(line.startswith(_ANSWERS) for line in lines)
        return False

    def _url(self, name: str) -> str:
        """Where a process finds Redis."""
        # By name, because the lookup of a host is a part of connecting that can fail, too.
        return self.network.url(name).replace("//127.0.0.1", f"//{USER}:{PASSWORD}@localhost")

    def _command(self, name: str, url: str, number: int) -> list[str]:
        if name.startswith("worker"):
            how = ["--concurrency", str(CONCURRENCY), "--grace", "1", "--log-format", "json"]
            way, tasks = LIMITED.get(name, ("", ()))
            how += [word for task in tasks for word in (way, task)]
            apps = [APPS[SINGLE[name]]] if name in SINGLE else APPS.values()
            return ["-m", "schedq", "worker", *apps, *how, *(["--no-promoter"] if number % 2 else [])]
        if name.startswith("promoter"):
            return ["-m", "scripts.tools.chaos.promoter", "promoter", *NAMES, "--redis", url, "--log-format", "json"]
        return ["-m", "scripts.tools.chaos.producer", name, url, str(self.rate / PRODUCERS), str(self.seed)]

    def having(self, role: str, *, spared: bool = True) -> list[Part]:
        """The running processes of a role, except for those that are frozen by a fault."""
        return [
            part
            for part in self.parts.values()
            if part.role == role
            and part.is_running
            and not (part.is_ended or part.is_frozen)
            and (spared or part.name not in SPARED)
        ]

    @property
    def can_spare_one(self) -> bool:
        """Whether enough schedulers remain if one of them is stopped or frozen."""
        return len(self.having("worker")) + len(self.having("promoter")) > SCHEDULERS

    def kill(self, part: Part) -> None:
        """SIGKILL."""
        part.is_ended = True
        part.send(signal.SIGKILL)
        part.popen.wait(30)
        faketime.forget(part.popen.pid)

    def kill_server(self) -> None:
        """SIGKILL."""
        pid = self.server.pid
        self.server.kill()
        faketime.forget(pid)

    def set_clock(self, offset_s: int) -> Step:
        """Set the total offset of the server's clock, and wait until the server shows it."""
        asked = now()
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}\n")
        fresh.replace(self._clock)
        deadline = time.monotonic() + 30
        with self.server.client() as client:
            while abs(_offset_s(client.time()) - offset_s) > 60:
                assert time.monotonic() < deadline, "the server does not show the time that was set"
                time.sleep(0.02)
        step = Step(asked, now(), offset_s * 1000.0)
        self.steps.append(step)
        return step

    def _faked(self, **how: str) -> dict[str, str]:
        assert self.faketime is not None
        return {**faketime.preloaded(self.faketime), **how}


def _offset_s(shown: tuple[int, int]) -> float:
    return shown[0] + shown[1] / 1e6 - time.time()
