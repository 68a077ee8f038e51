"""Faults that need their own server or fleet, played in turn and repeatedly in parallel with the storm.

blocked_workers  a worker is killed while all others' event loops are blocked, repeatedly
fleet_kill       forty candidates are started together, and the promoter is killed, twice
old_release      workers of an old release with an older schedule start and stop while a new one runs
old_application  the same with an older schedule and today's schedq
empty_store      Redis comes back empty: by FLUSHALL, and after a kill
failed_start     a worker can't open one of its two resources: it leaves the other, claims nothing, and exits with 1
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schedq import Queue, SchedqError
from scripts.tools.chaos.evidence import Verdict
from scripts.tools.chaos.faults import SCENES
from scripts.tools.chaos.record import now
from scripts.tools.chaos.stage import ROOT
from tests.releases import unpack
from tests.servers import Server

OLD: Final = "28b2da2"
"""The commit used as the old release."""
APP: Final = "scripts.tools.chaos.scene_app:queue"
VISIBILITY_MS: Final = 2000
RECLAIM_S: Final = VISIBILITY_MS / 1000 + 2.0
TAKEOVER_S: Final = 4.0
RESTORED_S: Final = 15.0
SETTLED_S: Final = 20.0
STARTED_S: Final = 10.0
"""Seconds that a process may need to start, or to find out that it can't."""
_SECOND_MS, _HOUR_MS = 1000, 3_600_000
_CANDIDATES, _KILLS = 40, 2
_BETWEEN_KILLS_S: Final = 4.0
"""Time for replacing the killed processes: the promise covers one death at a time."""
_PATIENCE_S: Final = 60.0
_TICK_S: Final = 0.02
_LATE_S: Final = 0.1
Condition = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Found:
    """How long something took, and the limit in seconds."""

    kind: str
    took_s: float
    allowed_s: float
    text: str


class Scenes(threading.Thread):
    """Plays scenes until stopped, each at least once.

    Attributes:
        counts: how often each was played.
        found: the measurements to judge.
        complaints: other failures.
    """

    def __init__(self, folder: Path, left_out: Sequence[str] = ()) -> None:
        super().__init__(name="chaos-scenes", daemon=True)
        self.counts: Counter[str] = Counter(dict.fromkeys(SCENES, 0))
        self.found: list[Found] = []
        self.complaints: list[str] = []
        self.left_out = set(left_out)
        self._folder = folder
        self._stopping = threading.Event()
        self._numbers = 0
        if "old_release" not in self.left_out and not unpack(OLD, folder / "old"):
            print(f"old releases are not tested: commit {OLD} is not in this repository", file=sys.stderr)
            self.left_out.add("old_release")

    def stop(self) -> None:
        """Finish this round, then end."""
        self._stopping.set()

    def run(self) -> None:
        """Play."""
        with Server(topology="single") as server:
            self._server = server
            while not self.left_out >= set(SCENES):
                for kind in SCENES:
                    if kind not in self.left_out and (not self._stopping.is_set() or not self.counts[kind]):
                        self._play(kind)
                if self._stopping.is_set():
                    return

    def judge(self, verdict: Verdict) -> None:
        """Judge the measurements."""
        for found in self.found:
            verdict.hold(found.kind, found.took_s, found.allowed_s, found.text)
        for complaint in self.complaints:
            verdict.say("broken", complaint)

    def _play(self, kind: str) -> None:
        try:
            getattr(self, f"_{kind}")()
        except Exception as error:
            self.complaints.append(f"{kind}: {type(error).__name__}: {error}")
        self.counts[kind] += 1

    # -- the scenes

    def _blocked_workers(self) -> None:
        queue = self._queue("blocked")
        with self._worker(queue) as victim, self._worker(queue):
            self._until("two workers", lambda: len(queue.list_workers()) == 2)
            mine = next(worker.id for worker in queue.list_workers() if worker.pid == victim.pid)
            queue.enqueue_many([{"task": "block", "args": [2.7]}] * 16)

            def held() -> set[str]:
                return {job.id for job in queue.list_processing() if job.worker == mine}

            self._until("both hold jobs", lambda: len({job.worker for job in queue.list_processing()}) == 2 and held())
            taken = held()
            victim.kill()
            self._judge("blocked_workers", RECLAIM_S, "to take jobs back", lambda: not held() & taken)
        self._leave(queue)

    def _fleet_kill(self) -> None:
        queue = self._queue("fleet")
        ids = self._folder / f"{queue.name}.ids"
        ids.touch()
        fleet = self._start(
            ["-m", "scripts.tools.chaos.fleet", self._server.url, queue.name, str(_CANDIDATES), str(ids)], {}
        )
        try:
            self._until("the fleet", lambda: len(queue.list_workers()) == _CANDIDATES)
            for number in range(_KILLS):
                time.sleep(_BETWEEN_KILLS_S if number else 0.0)
                holder = self._until("a promoter", lambda: self._holder(queue))
                pids = dict(line.split() for line in ids.read_text().splitlines())
                os.kill(int(pids[holder]), signal.SIGKILL)
                self._judge(
                    "fleet_kill",
                    TAKEOVER_S,
                    "the takeover",
                    lambda holder=holder: self._holder(queue) not in ("", holder),  # type: ignore[misc]
                )
        finally:
            os.killpg(fleet.pid, signal.SIGKILL)
            fleet.wait(30)
        self._leave(queue)

    def _old_release(self) -> None:
        queue, accepted = self._queue("release"), []
        with self._worker(queue, version=2):
            self._until("a slot", lambda: queue.stats()["completed_total"])
            for how in ("kill", "terminate"):
                with self._worker(queue, version=1, every_s=3600, is_old=True) as old:
                    self._until("the old one", lambda old=old: old.pid in {w.pid for w in queue.list_workers()})  # type: ignore[misc]
                    for number in range(30):
                        accepted.append(queue.enqueue({"task": "note", "args": [number]}))
                        time.sleep(_TICK_S)
                    getattr(old, how)()
                    old.wait(20)
            self._judge(
                "old_release",
                SETTLED_S,
                "the jobs enqueued meanwhile",
                lambda: all(_is_done(queue, one) for one in accepted),
            )
            self._judge("old_release", RESTORED_S, "the new schedule", lambda: _every_ms(queue) == _SECOND_MS)
            before = queue.stats()["completed_total"]
            self._judge("old_release", 3.0, "the next slot", lambda: queue.stats()["completed_total"] > before)
        self._leave(queue)

    def _old_application(self) -> None:
        queue = self._queue("application")
        with self._worker(queue, every_s=3600) as before:
            self._until("the old schedule", lambda: _every_ms(queue) == _HOUR_MS)
            with self._worker(queue):
                self._until("the new schedule", lambda: _every_ms(queue) == _SECOND_MS)
                before.kill()
                with self._worker(queue, every_s=3600) as old:
                    self._until("the old one", lambda: old.pid in {each.pid for each in queue.list_workers()})
                    runs = _runs(queue)
                    self._judge("old_application", 4.0, "two slots", lambda: _runs(queue) >= runs + 2)
                    self._judge("old_application", 0.5, "the new schedule", lambda: _every_ms(queue) == _SECOND_MS)
        self._leave(queue)

    def _empty_store(self) -> None:
        queue = self._queue("empty")
        with self._worker(queue) as worker:
            for how in (self._flush, self._kill_server):
                self._until("a slot", lambda: queue.stats()["completed_total"])
                queue.enqueue({"task": "hold", "args": [3.0]})
                self._until("a running job", lambda: queue.stats()["processing_depth"])
                how()
                job_id: list[str] = []
                self._judge("empty_store", RESTORED_S, "the schedule", lambda: _every_ms(queue) == _SECOND_MS)
                self._judge("empty_store", RESTORED_S, "the queue's name", lambda: queue.name in queue.list_queues())
                self._judge("empty_store", 3.0, "the next slot", lambda: queue.stats()["completed_total"])
                job_id.append(queue.enqueue({"task": "note", "args": [1]}))
                self._judge("empty_store", 3.0, "a new job", lambda job_id=job_id: _is_done(queue, job_id[0]))  # type: ignore[misc]
            assert worker.poll() is None, "the worker ended"
        self._leave(queue)

    def _failed_start(self) -> None:
        queue = self._queue("start")
        opened = self._folder / f"{queue.name}.opened"
        job_id = queue.enqueue({"task": "note", "args": [1]})
        apps = [APP, f"{APP.partition(':')[0]}:refusing"]
        with self._worker(queue, apps=apps, SCENE_RESOURCES=str(opened)) as worker:
            self._judge("failed_start", STARTED_S, "the end of the worker", lambda: worker.poll() is not None)
            assert worker.poll() == 1, f"the worker ended with {worker.poll()}"
        job = queue.get_job(job_id)
        assert job is not None
        assert (job.status, job.attempts) == ("pending", 0), f"the worker claimed the job: {job}"
        assert opened.read_text() == "left", "the worker did not leave what it had entered"
        self._leave(queue)

    def _flush(self) -> None:
        with self._server.client() as client:
            client.flushall()

    def _kill_server(self) -> None:
        self._server.kill()
        self._server.start()

    # -- building blocks

    def _queue(self, name: str) -> Queue:
        self._numbers += 1
        return Queue(f"{name}-{self._numbers}", redis=self._server.url, visibility_ms=VISIBILITY_MS, retry_for=20)

    def _leave(self, queue: Queue) -> None:
        queue.close()
        with self._server.client() as client:
            client.flushall()

    @contextmanager
    def _worker(
        self,
        queue: Queue,
        *,
        version: int = 0,
        every_s: float = 1,
        is_old: bool = False,
        apps: Sequence[str] = (APP,),
        **more: str,
    ) -> Iterator[subprocess.Popen[bytes]]:
        environment = {
            "SCENE_QUEUE": queue.name,
            "SCENE_REDIS": self._server.url,
            "SCENE_VISIBILITY_MS": str(VISIBILITY_MS),
            "SCENE_EVERY_S": str(every_s),
            "SCENE_VERSION": str(version),
            **more,
        }
        how = ["--concurrency", "4", "--grace", "1"]
        process = self._start(["-m", "schedq", "worker", *apps, *how], environment, is_old=is_old)
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    def _start(
        self, arguments: Sequence[str], environment: dict[str, str], *, is_old: bool = False
    ) -> subprocess.Popen[bytes]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SCHEDQ_", "REDIS_"))}
        paths = [str(self._folder / "old"), str(ROOT)] if is_old else [str(ROOT)]
        with (self._folder / "scenes.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self._folder,
                env=kept | environment | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _holder(self, queue: Queue) -> str:
        with self._server.client() as client:
            found: Any = client.get(queue.settings.keys.promoter)
        return found or ""

    def _until(self, what: str, condition: Condition) -> Any:
        """The value of a condition once it is true.

        Raises:
            AssertionError: it stays false for too long.
        """
        took_s, _, reply = _wait(condition, _PATIENCE_S)
        assert reply, f"{what}: not within {took_s:.0f} s"
        return reply

    def _judge(self, kind: str, allowed_s: float, text: str, condition: Condition) -> None:
        """Measure the time until it is true; waits beyond the limit to report the actual time."""
        took_s, late_s, _ = _wait(condition, allowed_s + _PATIENCE_S)
        self.found.append(Found(kind, took_s, allowed_s + late_s, text))


def _wait(condition: Condition, most_s: float) -> tuple[float, float, Any]:
    """The time it took, the part of it caused by a slow machine, and the last value."""
    began = last = now()
    late_s, reply = 0.0, None
    while now() - began < most_s:
        with suppress(SchedqError, OSError):
            reply = condition()
        if reply:
            break
        time.sleep(_TICK_S)
        late_s += max(0.0, now() - last - _LATE_S)
        last = now()
    return now() - began, late_s, reply


def _is_done(queue: Queue, job_id: str) -> bool:
    record = queue.get_job(job_id)
    return record is not None and record.status == "completed"


def _every_ms(queue: Queue) -> int | None:
    record = queue.schedules.get("tick")
    return None if record is None else record.every_ms


def _runs(queue: Queue) -> int:
    record = queue.schedules.get("tick")
    return 0 if record is None else record.runs
