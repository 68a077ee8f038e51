"""The processes of an application of its own under the faults of a run, and what is looked at afterwards."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import redis

from scripts.tools.chaos import logs
from scripts.tools.chaos.stage import Stage
from scripts.tools.chaos.storm import Storm
from tests.state import State

PATIENCE_S: Final = 240.0
LEFT_OUT: Final = ("clock_step", "password_refused", "loop_block", "executor_full")
"""Faults that need handlers, schedules or a clock of their own."""
WORKERS: Final = 5
_CONCURRENCY: Final = 8
_PRODUCER: Final = "producer-0"
_TICK_S: Final = 0.02
_BEGINS_S: Final = 5.0
"""Seconds until a process handles signals."""


@dataclass
class AppStage(Stage):
    """The processes of an application: workers, promoters, and a producer.

    Attributes:
        app: the module with the queue, NAME_app; its producer is NAME_producer.
        queue: the name of its queue.
        second: the name in the module of a second queue, which every other worker serves, too.
    """

    app: str = ""
    queue: str = ""
    second: str = ""

    def start_all(self) -> None:
        for name in (*(f"worker-{n}" for n in range(WORKERS)), "promoter-0", "promoter-1", _PRODUCER):
            self.start(name)

    def _command(self, name: str, url: str, number: int) -> list[str]:
        if name.startswith("worker"):
            options = ["--concurrency", str(_CONCURRENCY), "--grace", "1", "--log-format", "json"]
            options += ["--no-promoter"] if number % 2 else []
            also = [f"{self.app}:{self.second}"] if self.second and not number % 2 else []
            return ["-m", "schedq", "worker", f"{self.app}:queue", *also, *options]
        if name.startswith("promoter"):
            return ["-m", "schedq", "promoter", self.queue, "--redis", url, "--log-format", "json"]
        return ["-m", f"{self.app.removesuffix('_app')}_producer", str(self.rate), str(self.seed)]

    def stop_producer(self, storm: Storm) -> None:
        """Let it end what it has begun; workers that died are replaced meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            while (part := self.parts.pop(_PRODUCER, None)) is None:  # it was killed just now
                storm.turn()
                time.sleep(_TICK_S)
            part.is_ended = True
            part.popen.terminate()
            while part.is_running and time.monotonic() < deadline:
                storm.turn()
                time.sleep(_TICK_S)
            if part.popen.returncode != -signal.SIGTERM:
                break
            self.start(_PRODUCER)  # it had only just begun, and could not handle the signal yet
            time.sleep(_BEGINS_S)
        if part.is_running:
            self.kill(part)


def drain(stage: Stage, storm: Storm, *prefixes: str, is_over: Callable[[redis.Redis], bool] = lambda _: True) -> float:
    """Wait until no job waits or runs, and until `is_over`; returns the seconds it took."""
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE_S:
        storm.turn()
        with suppress(redis.RedisError), stage.server.client(socket_timeout=5) as client:
            kinds = {"pending": client.llen, "processing": client.llen, "held": client.zcard, "delayed": client.zcard}
            left = any(count(f"{prefix}{name}") for prefix in prefixes for name, count in kinds.items())
            if not left and is_over(client):
                break
        time.sleep(0.1)
    return time.monotonic() - began


class Findings(Protocol):
    """What a run has shown."""

    def say(self, kind: str, text: str) -> None:
        """Record a fault."""


def judge_laws(state: State, found: Findings) -> None:
    """The laws of `tests/state.py` at the end."""
    for law, complaints in state.broken_laws().items():
        for complaint in complaints:
            found.say("unlawful", f"{law}: {complaint}")


def look_at_logs(folder: Path, found: Findings) -> None:
    """Errors of schedq itself in the logs of a run."""
    for path in sorted(folder.glob("*-*.log")):
        for line in logs.lines(path):
            if logs.is_schedqs_own(line):
                found.say("tracebacks", f"{path.stem}: {line.text}\n{line.traceback}")
