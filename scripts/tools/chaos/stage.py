"""The processes of a run, their server, and the network in between."""

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
from scripts.tools.chaos.app import NAMES, SPARED
from scripts.tools.chaos.network import Network
from scripts.tools.chaos.record import Recorder, now
from scripts.tools.chaos.servertime import Step
from tests.servers import Server

PASSWORD: Final = "chaos"
USER: Final = "chaos"
"""Whom the processes of the run log in as; the director has a user of its own, which nothing is done to."""
ROOT: Final = Path(__file__).parents[3]
APPS: Final = tuple(f"scripts.tools.chaos.app:{name}" for name in NAMES)
WORKERS, PROMOTERS, PRODUCERS = 5, 2, 2
CONCURRENCY: Final = 8
SKEWS: Final = {"worker-2": "+3600", "worker-3": "-3600", "promoter-1": "+86400"}
"""Seconds by which the clocks of some processes are wrong."""
SCHEDULERS: Final = 3
"""Workers and promoters that are left running whatever is done to the others: each can fire schedules."""
_ANSWERS: Final = ('["claimed"', '["settled"', '["renewed"', '["look"')


@dataclass(slots=True)
class Part:
    """A process of the run.

    Attributes:
        name: what it is, over all its lives, such as `worker-3`.
        life: of all processes that were ever started, the how-manieth.
        began: instant.
        is_ended: we have ended this life, or told it to end.
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
        """What its records are named."""
        return f"{self.name}-{self.life}"

    @property
    def role(self) -> str:
        return self.name.partition("-")[0]

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def send(self, number: int) -> None:
        self.popen.send_signal(number)


@dataclass
class Stage:
    """All of a run. Leaves nothing behind.

    Args:
        rate: jobs per second, all producers together.
        seed: of what the producers choose.
        faketime: the library that makes processes see another time; None if it can't be had.
        also: another checkout, whose schedq every second worker runs.
        keeps: leave the folder with records and logs.
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
        """Start every process; they are waited for by nobody."""
        for role, count in (("worker", WORKERS), ("promoter", PROMOTERS), ("producer", PRODUCERS)):
            for number in range(count):
                self.start(f"{role}-{number}")

    def start(self, name: str) -> Part:
        """Start a process, again too."""
        number, life = int(name.partition("-")[2]), len(self.lives) + 1
        paths = [str(ROOT)]
        if self.also is not None and name.startswith("worker") and number % 2:
            paths.insert(0, str(self.folder / "also"))
        # By name: to look a host up is a part of connecting that can be kept from happening, too.
        url = self.network.url(name).replace("//127.0.0.1", f"//{USER}:{PASSWORD}@localhost")
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
        """Have a worker do something to itself, if it has come up; see `orders`."""
        if orders.is_obeyed(self.folder, part.key):
            orders.give(self.folder, part.key, **what)
            part.send(orders.SIGNAL)

    def let_in(self, *, is_let_in: bool) -> None:
        """Take the password of the processes, or no longer; those that are connected are cut off.

        Raises:
            RedisError: the server can't be asked just now.
        """
        with self.server.client() as client:
            client.execute_command("ACL", "SETUSER", USER, "resetpass", f">{PASSWORD if is_let_in else 'another'}")
            if not is_let_in:
                client.execute_command("CLIENT", "KILL", "USER", USER)

    def last_word(self, part: Part) -> float:
        """When a process last wrote something down. One that kills itself does that before."""
        try:
            written = (self.folder / f"{part.key}.jsonl").stat().st_mtime
        except FileNotFoundError:
            return now()
        return now() - (time.time() - written)

    def has_got_through(self, part: Part) -> bool:
        """Whether the server has answered a process that writes down what it asks."""
        with suppress(FileNotFoundError), (self.folder / f"{part.key}.jsonl").open() as lines:
            return any(line.startswith(_ANSWERS) for line in lines)
        return False

    def _command(self, name: str, url: str, number: int) -> list[str]:
        if name.startswith("worker"):
            how = ["--concurrency", str(CONCURRENCY), "--grace", "1", "--log-format", "json"]
            return ["-m", "schedq", "worker", *APPS, *how, *(["--no-promoter"] if number % 2 else [])]
        if name.startswith("promoter"):
            return ["-m", "scripts.tools.chaos.promoter", "promoter", *NAMES, "--redis", url, "--log-format", "json"]
        return ["-m", "scripts.tools.chaos.producer", name, url, str(self.rate / PRODUCERS), str(self.seed)]

    def having(self, role: str, *, spared: bool = True) -> list[Part]:
        """The processes of a role that run, and stand still for no fault of ours."""
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
        """Whether enough schedulers are left if one of them is ended, or stands still."""
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
        """Let the server's clock be off by so much in all, and wait until it shows that."""
        asked = now()
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}\n")
        fresh.replace(self._clock)
        deadline = time.monotonic() + 30
        with self.server.client() as client:
            while abs(_offset_s(client.time()) - offset_s) > 60:
                assert time.monotonic() < deadline, "the server does not go by the clock that we made"
                time.sleep(0.02)
        step = Step(asked, now(), offset_s * 1000.0)
        self.steps.append(step)
        return step

    def _faked(self, **how: str) -> dict[str, str]:
        assert self.faketime is not None
        return {**faketime.preloaded(self.faketime), **how}


def _offset_s(shown: tuple[int, int]) -> float:
    return shown[0] + shown[1] / 1e6 - time.time()
