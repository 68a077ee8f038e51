"""The application of `scripts/chaos --limits`: gates of all kinds, and handlers that record their starts and ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from schedq import Fixed, Queue, Rate, RateLimited, Task, Unique, current_job
from scripts.tools.chaos import attempts
from scripts.tools.chaos.attempts import VISIBILITY_MS, now_ms
from scripts.tools.chaos.record import Recorder, now
from scripts.tools.chaos.request_log import RequestLog

NAME: Final = "limits"
LIMITED_S: Final = (0.2, 0.5, 1.2)
"""How long a job that raises `RateLimited` lets others wait."""


queue = Queue(
    NAME,
    redis=os.environ.get("CHAOS_REDIS"),
    visibility_ms=VISIBILITY_MS,
    max_attempts=200,
    backoff=Fixed(0.3),
    completed_history=1_000_000,
    completed_ttl=36_000,
    min_keep=36_000,  # a full Redis deletes no results
    concurrency=14,
    rate=Rate(40, per=1),
)
calls = queue.gate("calls", concurrency=4)
keyed = queue.gate("keyed", concurrency=7, key_concurrency=2, weight=3)
solo = queue.gate("solo", key_concurrency=1)
ledger = queue.gate("ledger", serial=True)
paced = queue.gate("paced", rate=[Rate(8, per=1, burst=3), Rate(400, per=60, burst=60)], key_rate=Rate(3, per=1))

recorder: Recorder | None = None
if "CHAOS_FOLDER" in os.environ and "CHAOS_KEY" in os.environ:  # in the processes of a run
    recorder = Recorder(Path(os.environ["CHAOS_FOLDER"]), os.environ["CHAOS_KEY"])
    recorder.write("clock", now(), now_ms())
    RequestLog(recorder).install()


@contextmanager
def noted(number: int, unique: str = "", limited: tuple[float, str] | None = None) -> Iterator[None]:
    """Record the attempt's start and end. The first attempt of a limited job raises `RateLimited` at its end."""
    job = current_job()
    with attempts.noted(recorder, job.gate, job.key, number, unique) as how:
        yield
        if limited is not None and not _is_noted(job.id):
            how[:] = ["limited", *limited]
            raise RateLimited(after=limited[0], scope=limited[1])  # type: ignore[arg-type]


def _is_noted(job_id: str) -> bool:
    """Whether the job has been limited before; notes that it has now."""
    try:
        (Path(os.environ["CHAOS_FOLDER"]) / f"limited-{job_id}").touch(exist_ok=False)
    except FileExistsError:
        return True
    return False


async def nap(number: int, key: str, seconds: float, limited: tuple[float, str] | None = None) -> None:
    """Waits on the loop; may be limited."""
    with noted(number, limited=limited):
        await asyncio.sleep(seconds)


def doze(number: int, key: str, seconds: float) -> None:
    """Waits in a thread."""
    with noted(number):
        time.sleep(seconds)


async def stumble(number: int, key: str, seconds: float) -> None:
    """Fails in its first attempt."""
    with noted(number):
        await asyncio.sleep(seconds)
        if current_job().attempts == 1:
            raise RuntimeError("not yet")


TASKS: Final[dict[str, Task[..., Any]]] = {}
for gate in (calls, keyed, solo, ledger, paced):
    for handler in (nap, doze, stumble):
        name = f"{handler.__name__}_{gate.name}"
        TASKS[name] = queue.task(name=name, gate=gate, key="key")(handler)


SCHEDULES: Final = ("calls", "keyed", "solo", "paced")
"""Each makes a job a second; like those that imports move, it goes through `pending` into the lane of its key."""
for name in SCHEDULES:
    queue.every(1, id=name, args=[0, "k1", 0.02])(TASKS[f"nap_{name}"])


@queue.task(gate=calls, key="key", unique=Unique("what"))
async def refresh(number: int, key: str, what: str, seconds: float) -> None:
    """One at a time for each `what`."""
    with noted(number, unique=what):
        await asyncio.sleep(seconds)


@queue.task
async def plain(number: int, seconds: float) -> None:
    """Has no gate, but counts for the limits of the queue."""
    with noted(number):
        await asyncio.sleep(seconds)


TASKS.update(refresh=refresh, plain=plain)
