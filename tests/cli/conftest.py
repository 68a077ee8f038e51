"""The command line in this process: its output, and how it ends."""

from __future__ import annotations

import io
import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from schedq import Queue
from schedq.cli import main
from tests.servers import Server
from tests.state import State


@dataclass(frozen=True)
class Said:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one JSON object."""
        assert self.err == ""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[str]:
        """What it wrote for people, done without a complaint."""
        assert (self.code, self.err) == (0, ""), self
        return self.out.splitlines()

    @property
    def complaint(self) -> str:
        """Its one line on stderr."""
        (line,) = self.err.splitlines()
        assert "Traceback" not in line
        return line


Run = Callable[..., Said]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` need not wait for a process that takes over, as none does here."""
    monkeypatch.setattr("schedq.doctor.examination._HANDOVER_S", 0)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands that run on set up the logging of their process, which here is that of the tests."""
    root, ours = logging.getLogger(), logging.getLogger("schedq")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """They also handle signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def desk() -> Iterator[Server]:
    """A server whose queues are those of one test."""
    with Server() as server:
        yield server


@pytest.fixture(autouse=True)
def place(desk: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty Redis in the environment, and a local time that is not UTC."""
    desk.lasting_client.flushall()
    monkeypatch.setenv("SCHEDQ_REDIS_URL", desk.unix_url)
    monkeypatch.delenv("SCHEDQ_QUEUE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line; `stdin` is its standard input, which is not a terminal."""

    def run(*words: str, stdin: str | bytes = b"") -> Said:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int | None)
        return Said(ended.value.code or 0, out, err)

    return run


@pytest.fixture
def make_queue(desk: Server) -> Iterator[Callable[..., Queue]]:
    """Makes queues as an application does."""
    made: list[Queue] = []

    def make(name: str = "mail", **settings: Any) -> Queue:
        made.append(Queue(name, redis=desk.own_url, **settings))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


@pytest.fixture
def queue(make_queue: Callable[..., Queue]) -> Queue:
    """The one queue there is, once it is used."""
    return make_queue()


@pytest.fixture
def state(desk: Server, queue: Queue) -> Iterator[Callable[[], State]]:
    """Returns the state of that queue in Redis; at the end of a test the state must satisfy the laws."""

    def look() -> State:
        return State.of(desk.lasting_client, queue.settings.keys)

    yield look
    assert look().broken_laws() == {}
