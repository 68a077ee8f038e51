"""SIGKILL at the lines of workers and promoters, one line per process; others must finish whatever was interrupted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schedq import NewJob, Queue
from schedq.model.keys import QueueKeys
from schedq.transitions import Operation
from scripts.tools.crashes.recovery import lost, recover
from scripts.tools.crashes.victim import application
from tests.doors import Clock
from tests.servers import Server
from tests.state import State

ROLES: Final = ("worker", "promoter")
_MOST_RUNS: Final = 40
"""A line that runs often is hit in one of its first runs, up to this number."""

Line = tuple[str, int, int]
"""File, line, and how often it ran."""


@dataclass(frozen=True)
class Death:
    """The result of one kill.

    Attributes:
        role: worker or promoter.
        target: file, line, and number of the run.
        is_dead: it reached the line; a line that depends on chance may run less often than before.
        wrong: problems found; should be empty.
    """

    role: str
    target: Line
    is_dead: bool
    wrong: list[str]

    def __str__(self) -> str:
        file, line, run = self.target
        return f"{self.role} killed at {file}:{line}, run {run}: {'; '.join(self.wrong) or 'repaired'}"


class Killer:
    """Starts victims, each with its own queue.

    Args:
        tamper: called after each death; any damage that it does must be detected.
    """

    def __init__(self, server: Server, tamper: Callable[[Any, QueueKeys], object] | None = None) -> None:
        self._server = server
        self._tamper = tamper
        self._count = 0

    def lines(self, role: str) -> list[Line]:
        """The lines that a role runs when it is not killed."""
        with tempfile.TemporaryDirectory(prefix="schedq-") as folder:
            code, output, wrong = self._run(role, None, Path(folder))
        assert code == 0 and not wrong, (code, wrong, output)
        return [(file, line, count) for file, line, count in json.loads(output)]

    def kill(self, role: str, target: Line) -> Death:
        """Kill one process at a line."""
        with tempfile.TemporaryDirectory(prefix="schedq-") as folder:
            code, output, wrong = self._run(role, target, Path(folder))
        if code not in (0, -signal.SIGKILL):
            wrong.append(f"it ended with {code}: {output}")
        return Death(role, target, code == -signal.SIGKILL, wrong)

    def _run(self, role: str, target: Line | None, folder: Path) -> tuple[int, str, list[str]]:
        self._count += 1
        name, notes = f"crash-line-{self._count}-{time.monotonic_ns()}", folder / "notes"
        notes.touch()
        with application(name, self._server.unix_url, notes) as queue:
            accepted = _programme(queue, role)
            told = {
                "role": role,
                "target": target,
                "queue": name,
                "url": self._server.unix_url,
                "notes": str(notes),
            }
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "scripts.tools.crashes.victim", json.dumps(told)],
                cwd=Path(__file__).parents[3],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            output = done.stdout or done.stderr[-2000:]
        return done.returncode, output, self._after(name, accepted, notes)

    def _after(self, name: str, accepted: set[str], notes: Path) -> list[str]:
        """A minute later another worker finishes the remaining jobs."""
        starts = Counter(line.split()[0] for line in notes.read_text().splitlines())
        clock = Clock(time.time() + 60)
        with application(name, self._server.unix_url, notes, clock=clock) as queue, self._server.client() as client:
            if self._tamper is not None:
                self._tamper(client, queue.settings.keys)
            ends = {job_id: _ends(State.of(client, queue.settings.keys), job_id) for job_id in accepted}
            ran = recover(queue, clock)
            state = State.of(client, queue.settings.keys)
            wrong = lost(state, accepted)
            wrong += [f"{law}: {complaint}" for law, found in state.broken_laws().items() for complaint in found]
            for job_id in accepted:
                if starts[job_id] > ends[job_id] + 1:
                    wrong.append(f"{job_id} was started {starts[job_id]} times and ended {ends[job_id]} times")
                if ran.count(job_id) > 1:
                    wrong.append(f"{job_id} ran {ran.count(job_id)} times afterwards")
                if int(state.job(job_id).get("crashes", 0)) > 2:
                    wrong.append(f"{job_id} has lost more leases than processes died")
            if names := client.keys(queue.settings.keys.prefix + "*"):
                client.unlink(*names)
        return wrong


def _ends(state: State, job_id: str) -> int:
    """Number of its attempts that were settled by their worker."""
    history = [json.loads(line) for line in state.job(job_id).get("history", "").splitlines()]
    return sum(entry["outcome"] != "lost" for entry in history)


def _programme(queue: Queue, role: str) -> set[str]:
    """Twenty jobs of all kinds, and one whose worker has already died."""
    queue.enqueue({"task": "plain"}, job_id="orphan")
    queue.claim(0)
    keys = queue.settings.keys
    _command(queue, "ZADD", keys.leases, 1, "orphan")
    kinds = ["plain"] * 8 + ["async"] * 4 + ["failing"] * 3 + ["snoozing"] * 2
    jobs = [NewJob({"task": kind}) for kind in kinds] if role == "worker" else []
    jobs += [NewJob({"task": "plain"}, delay=wait / 10) for wait in range(1, 4)]
    return {"orphan", *queue.enqueue_many(jobs)}


def _command(queue: Queue, *words: str | int) -> Any:
    return queue._ask(Operation("a test's own", None, (), words, lambda reply: reply))


def sample(lines: Sequence[Line], count: int | None, seed: int) -> list[Line]:
    """The lines to hit, with the number of the run; every line once if `count` is None."""
    draw = random.Random(seed)
    chosen = draw.sample(list(lines), min(count, len(lines))) if count is not None else list(lines)
    return [(file, line, draw.randint(1, min(runs, _MOST_RUNS))) for file, line, runs in chosen]
