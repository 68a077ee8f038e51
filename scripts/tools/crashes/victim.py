"""A worker or promoter that counts the lines it runs and kills itself at one of them; started by `lines.py`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

import schedq
from schedq import Fixed, Queue, Snooze, current_job
from schedq.inspect import stats
from schedq.worker import Worker
from schedq.worker.process import run_promoters, run_worker

ROOT: Final = Path(schedq.__file__).parent
WATCHED: Final = {
    str(path): str(path.relative_to(ROOT))
    for path in [
        *sorted((ROOT / "worker").glob("*.py")),
        ROOT / "promoter.py",
        ROOT / "reclaimer.py",
        ROOT / "link.py",
        ROOT / "service.py",
        ROOT / "connection" / "async_connection.py",
    ]
}
"""The files at whose lines it may be killed, and their short names."""


def application(name: str, url: str, notes: Path, **settings: Any) -> Queue:
    """The queue and its tasks; each run appends a line to `notes`."""
    queue = Queue(name, redis=url, visibility_ms=1000, backoff=Fixed(0.05), **settings)
    snoozed: set[str] = set()

    def note() -> None:
        job = current_job()
        with notes.open("a") as file:
            file.write(f"{job.id} {job.attempts}\n")

    @queue.task
    def plain() -> None:
        note()

    @queue.task(name="async")
    async def asynchronous() -> None:
        note()
        await asyncio.sleep(0.01)

    @queue.task(max_attempts=2)
    def failing() -> None:
        note()
        raise RuntimeError("always fails")

    @queue.task
    def snoozing() -> None:
        note()
        if current_job().id not in snoozed:
            snoozed.add(current_job().id)
            raise Snooze(0.05)

    return queue


class Trace:
    """Counts how often each watched line runs, and kills the process at the target.

    Args:
        target: file, line, and number of the run; None to survive.
    """

    def __init__(self, target: tuple[str, int, int] | None) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self._target = target

    def start(self) -> None:
        """Watch this thread and those that it starts."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename in WATCHED else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            line = (WATCHED[frame.f_code.co_filename], frame.f_lineno)
            self.counts[line] += 1
            if self._target is not None and (*line, self.counts[line]) == self._target:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


async def promote(queue: Queue) -> None:
    """Act as a promoter until no job is delayed or held."""
    role = asyncio.create_task(run_promoters([queue]))
    while not role.done():
        await asyncio.sleep(0.02)
        depths = await queue.aio._ask(stats.stats(queue.settings))
        if not depths["delayed_depth"] and not depths["processing_depth"]:
            os.kill(os.getpid(), signal.SIGTERM)
            break
    await role
    await queue.aio.aclose()


def main() -> None:
    """Run as the argument says, and write down which lines were run."""
    told = json.loads(sys.argv[1])
    queue = application(told["queue"], told["url"], Path(told["notes"]))
    target = told["target"] and tuple(told["target"])
    trace = Trace(target)
    trace.start()
    if told["role"] == "worker":
        asyncio.run(run_worker(Worker([queue], concurrency=4, burst=True, grace=1)))
    else:
        asyncio.run(promote(queue))
    sys.settrace(None)
    print(json.dumps(sorted([*line, count] for line, count in trace.counts.items())))


if __name__ == "__main__":
    main()
