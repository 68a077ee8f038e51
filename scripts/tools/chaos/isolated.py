"""`scripts/chaos --isolated`: crashes, exits, memory hogs and endless loops in child processes, among good jobs.

Workers and child processes are killed meanwhile. Good jobs must complete, and start again only if their own process or
their worker was killed. Nothing may outlive a killed worker by more than a second, or be left at the end.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from schedq import Queue
from tests.servers import Server

ROOT: Final = Path(__file__).parents[3]
WORKERS: Final = 2
MOST_RATE: Final = 10.0
"""Jobs per second: some of them need a new process each."""
BAD_SHARE: Final = 0.08
MEMORY: Final = "200M"
OUTLIVE_S: Final = 1.0
PATIENCE_S: Final = 180.0
_EVERY_S: Final = {"worker": 7.0, "child": 5.0}
"""Average seconds between two kills."""


class Kill(NamedTuple):
    """A process that was killed, and when it was certainly dead, on the monotonic clock."""

    at: float
    pid: int


class Start(NamedTuple):
    """A start of a good job: when, and in which child of which worker."""

    at: float
    pid: int
    worker: int


@dataclass
class Findings:
    """What a run has shown; all of `FAULTS` must be zero.

    Attributes:
        lost: jobs that are gone or have not ended.
        disturbed: good jobs that failed, or started again without a kill of their own process or worker.
        misreported: bad jobs that did not fail, or whose error says something else, without such a kill.
        left: processes that were left when all workers had stopped.
        outlived_max_ms: the longest time for which something outlived a killed worker.
    """

    jobs: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    again: int = 0
    lost: int = 0
    disturbed: int = 0
    misreported: int = 0
    left: int = 0
    outlived_max_ms: int = 0
    outlived: int = 0
    complaints: list[str] = field(default_factory=list)

    def say(self, kind: str, text: str) -> None:
        """Record a fault."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.complaints.append(f"{kind}: {text}")


FAULTS: Final = ("lost", "disturbed", "misreported", "left", "outlived")


def judge(
    jobs: Mapping[str, tuple[str, int]],
    ends: Mapping[str, tuple[str, object, str]],
    starts: Mapping[str, Sequence[Start]],
    kills: Sequence[Kill],
    words: Mapping[str, str],
    found: Findings,
) -> None:
    """Judge how the jobs have ended.

    Args:
        jobs: id → its task and its number.
        ends: id → its status, result and last error; without those that are gone.
        starts: id of a good job → its starts, in order.
        kills: workers and child processes that were killed.
        words: bad task → what its error says.
        found: what is found is added here.
    """
    for job_id, (task, number) in jobs.items():
        found.jobs[task] += 1
        status, result, error = ends.get(job_id, ("gone", None, ""))
        if status not in ("completed", "failed"):
            found.say("lost", f"{task} {job_id} is {status}")
        elif task == "good":
            begun = starts.get(job_id, ())
            if status != "completed" or result != number * 2:
                found.say("disturbed", f"{job_id}: {status}, {result}, {error}")
            for start in begun[:-1]:
                found.again += 1
                if not any(kill.pid in (start.pid, start.worker) and kill.at >= start.at for kill in kills):
                    found.say("disturbed", f"{job_id} started again, and nothing of its own was killed")
        elif status != "failed" or not (words[task] in error or "killed from outside" in error or "lease" in error):
            found.say("misreported", f"{task} {job_id}: {status}, {error}")


class Crew:
    """The workers of a run; each has a mark in its environment, which all its processes inherit."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self._count = 0
        self.workers: list[tuple[subprocess.Popen[bytes], str]] = []

    def start(self) -> None:
        """Start a worker."""
        self._count += 1
        mark = f"CHAOS_MARK={self._folder.name}.{self._count}."
        command = [sys.executable, "-m", "schedq", "worker", "scripts.tools.chaos.isolated_app:queue"]
        options = ["--concurrency", "3", "--memory-limit", MEMORY, "--kill-after", "0.5", "--grace", "5"]
        name, _, value = mark.partition("=")
        facts = {name: value, "CHAOS_REDIS": self._url, "CHAOS_FOLDER": str(self._folder), "PYTHONPATH": str(ROOT)}
        with (self._folder / "log").open("ab") as log:
            worker = subprocess.Popen(
                [*command, *options], cwd=ROOT, env=os.environ | facts, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.workers.append((worker, mark))

    def kill_worker(self, draw: random.Random, found: Findings) -> Kill:
        """Kill a worker, wait until all its processes have ended, and start another one."""
        worker, mark = self.workers.pop(draw.randrange(len(self.workers)))
        worker.kill()
        worker.wait()
        since = time.monotonic()
        while (left := marked(mark)) and time.monotonic() - since < 60:
            time.sleep(0.005)
        kill = Kill(time.monotonic(), worker.pid)  # until now its children may have begun jobs
        took = kill.at - since
        found.outlived_max_ms = max(found.outlived_max_ms, round(took * 1000))
        if took > OUTLIVE_S:
            found.say("outlived", f"processes of worker {worker.pid} outlived it by {took:.1f} s: {left or 'gone now'}")
        self.start()
        return kill

    def kill_child(self, draw: random.Random) -> Kill | None:
        """Kill a process of a worker, whatever it does."""
        worker, mark = draw.choice(self.workers)
        pids = [pid for pid in marked(mark) if pid != worker.pid]
        if not pids:
            return None
        pid = draw.choice(pids)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while pid in marked(mark):
            time.sleep(0.001)
        return Kill(time.monotonic(), pid)

    def stop(self, found: Findings) -> None:
        """Stop all workers gracefully, and count what is left of them."""
        for worker, _ in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker, mark in self.workers:
            try:
                code = worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()
                code = worker.wait()
            if code:
                found.say("left", f"worker {worker.pid} ended with {code}")
            for pid in marked(mark):
                found.say("left", f"process {pid} of worker {worker.pid}")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.workers.clear()


def marked(mark: str) -> list[int]:
    """The living processes with this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"\0{mark}\0".encode() in b"\0" + path.read_bytes():
                found.append(int(path.parent.name))
    return found


def run(seconds: float, seed: int, rate: float) -> tuple[dict[str, Any], list[str]]:
    """Run; return the result and a sentence for each fault."""
    found, draw = Findings(), random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="schedq-isolated-", dir="/tmp"))
    with Server(topology="single") as server:
        os.environ |= {"CHAOS_REDIS": server.url, "CHAOS_FOLDER": str(folder)}
        from scripts.tools.chaos import isolated_app  # it needs the variables

        crew = Crew(folder, server.url)
        try:
            for _ in range(WORKERS):
                crew.start()
            jobs, kills = storm(crew, seconds, rate, draw, found)
            settled(isolated_app.queue)
        finally:
            crew.stop(found)
        judge(jobs, ended(isolated_app.queue, jobs), recorded(folder), kills, isolated_app.BAD, found)
    if not found.complaints:
        shutil.rmtree(folder)
    else:
        found.complaints.append(f"the workers' log is in {folder}")
    facts = {name: getattr(found, name) for name in (*FAULTS, "again", "outlived_max_ms")}
    counts = {"jobs": dict(found.jobs), "kills": dict(found.kills)}
    return {"seed": seed, "seconds": seconds, **counts, **facts}, found.complaints


def storm(
    crew: Crew, seconds: float, rate: float, draw: random.Random, found: Findings
) -> tuple[dict[str, tuple[str, int]], list[Kill]]:
    """Enqueue jobs at this rate, and kill processes meanwhile; return the jobs and the kills."""
    from scripts.tools.chaos import isolated_app as app

    jobs: dict[str, tuple[str, int]] = {}
    kills: list[Kill] = []
    began = now = time.monotonic()
    acts: dict[str, Callable[[], Kill | None]] = {
        "worker": lambda: crew.kill_worker(draw, found),
        "child": lambda: crew.kill_child(draw),
    }
    due = {kind: now + draw.expovariate(1 / every) for kind, every in _EVERY_S.items()}
    while (now := time.monotonic()) < began + seconds:
        for kind, act in acts.items():
            if now >= due[kind]:
                due[kind] = now + draw.expovariate(1 / _EVERY_S[kind])
                if (kill := act()) is not None:
                    kills.append(kill)
                    found.kills[kind] += 1
        if len(jobs) < (now - began) * rate:
            task = draw.choice(list(app.BAD)) if draw.random() < BAD_SHARE else "good"
            arguments = [len(jobs)] if task == "good" else []
            jobs[getattr(app, task).enqueue(*arguments).id] = (task, len(jobs))
        else:
            time.sleep(0.01)
    return jobs, kills


def settled(queue: Queue) -> None:
    """Wait until no job is waiting or running, within a limit."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        counts = queue.stats()
        if not counts["pending_depth"] + counts["delayed_depth"] + counts["processing_depth"]:
            return
        time.sleep(0.2)


def ended(queue: Queue, jobs: Mapping[str, object]) -> dict[str, tuple[str, object, str]]:
    """How the jobs have ended: id → status, result and last error."""
    found: dict[str, tuple[str, object, str]] = {}
    for job_id in jobs:
        if (record := queue.get_job(job_id)) is not None:
            found[job_id] = (record.status, record.result, record.last_error or "")
    return found


def recorded(folder: Path) -> dict[str, list[Start]]:
    """The starts that good jobs have recorded."""
    found: dict[str, list[Start]] = {}
    for line in (folder / "record").read_text().splitlines():
        event, at, job_id, pid, worker = line.split()
        if event == "start":
            found.setdefault(job_id, []).append(Start(float(at), int(pid), int(worker)))
    return found
