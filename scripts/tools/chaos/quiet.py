"""After the storm: all processes resume work, and all jobs finish."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from schedq import Queue
from schedq.errors import SchedqError
from scripts.tools.chaos.app import NAMES, made
from scripts.tools.chaos.record import now
from scripts.tools.chaos.stage import CONCURRENCY, WORKERS, Stage
from scripts.tools.chaos.storm import Storm
from scripts.tools.chaos.timetable import Timetable

PATIENCE_S: Final = 60.0
"""Seconds without progress after which the remaining jobs count as stuck."""
_PAGE: Final = 1000


class Quiet:
    """After the storm: all processes resume work, and all jobs finish."""

    def __init__(self, stage: Stage, storm: Storm, timetable: Timetable) -> None:
        self._stage = stage
        self._timetable = timetable
        self._storm = storm
        self._queues = [made(name, stage.server.url) for name in NAMES]
        self._numbers = 0

    def settle(self) -> list[str]:
        """Wait until all jobs have finished; returns the processes that did not resume work."""
        stage = self._stage
        for part in stage.having("producer"):
            part.is_ended = True
            part.send(signal.SIGTERM)
        for part in [part for part in stage.parts.values() if part.role == "producer"]:
            with suppress(Exception):
                part.popen.wait(60)
            stage.parts.pop(part.name, None)
        self._end_schedules()
        since, tasks = now(), 0
        jobs, names = _Progress(), _Progress()
        while True:
            self._storm.turn()
            signs = _signs(stage, since)
            waiting, totals = self._look()
            silent = [part.key for part in stage.parts.values() if part.key not in signs]
            if not waiting and not silent:
                break
            if (waiting and jobs.is_stuck(totals)) or (silent and names.is_stuck(len(silent))):
                break
            if silent and waiting < WORKERS * CONCURRENCY:
                tasks += 1
                self._give_work(tasks)
            time.sleep(0.25)
        for queue in self._queues:
            queue.close()
        return [f"{key} did not resume work after the faults" for key in silent]

    def _end_schedules(self) -> None:
        until = now() + PATIENCE_S
        while not self._timetable.close() and now() < until:
            self._storm.turn()
            time.sleep(0.25)

    def _look(self) -> tuple[int, Any]:
        """Number of unfinished jobs, and a value that changes while there is progress."""
        waiting, state = 0, []
        for queue in self._queues:
            try:
                stats = queue.stats()
                self._hurry(queue)
            except SchedqError:
                waiting += 1  # keep waiting if the state is unknown
                continue
            waiting += stats["pending_depth"] + stats["delayed_depth"] + stats["processing_depth"]
            state.append((stats["completed_total"], stats["failed_total"], stats["promoted_total"]))
        return waiting, state

    def _hurry(self, queue: Queue) -> None:
        """Run distant jobs now: the server's clock was elsewhere, or the operator that would cancel them is gone."""
        for job in queue.list_delayed(limit=_PAGE)[::-1]:
            if job.run_at_ms > time.time() * 1000 + 15_000:  # deferred jobs become due before that
                self._do("reschedule", job.id, lambda job_id=job.id: queue.run_now(job_id))  # type: ignore[misc]

    def _give_work(self, number: int) -> None:
        """Enqueue more than some workers can run at a time, so that every worker gets jobs."""
        for queue in self._queues:
            for n in range(WORKERS * CONCURRENCY // 2):
                tag = f"quiet-{queue.name}-{number}-{n}"
                self._do("enqueue", tag, lambda tag=tag, queue=queue: queue.enqueue(_nap(tag), job_id=tag))  # type: ignore[misc]

    def _do(self, verb: str, what: str, act: Callable[[], Any]) -> None:
        self._numbers += 1
        entry = [what, None, "nap", None] if verb == "enqueue" else [what, 0]
        self._stage.recorder.write("do", now(), self._numbers, verb, [entry])
        try:
            reply = act()
        except SchedqError:
            reply = None
        self._stage.recorder.write(
            "did", now(), self._numbers, [reply] if verb == "enqueue" and reply is not None else reply
        )


class _Progress:
    """Whether something still changes."""

    def __init__(self) -> None:
        self._last: Any = None
        self._until = now() + PATIENCE_S

    def is_stuck(self, value: Any) -> bool:
        if value != self._last:
            self._last, self._until = value, now() + PATIENCE_S
        return now() > self._until


def _nap(tag: str) -> dict[str, Any]:
    return {"task": "nap", "args": [tag, 0.4]}


def _signs(stage: Stage, since: float) -> set[str]:
    """Processes that have worked since then, according to the end of their records."""
    found = set()
    for part in stage.parts.values():
        path = stage.folder / f"{part.key}.jsonl"
        with suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 20_000))
            text = file.read().decode(errors="replace")
            word = '["start",' if part.role == "worker" else '["look",'
            instants = [line[len(word) :].partition(",")[0] for line in text.splitlines() if line.startswith(word)]
            if any(float(instant) > since for instant in instants):
                found.add(part.key)
    return found
