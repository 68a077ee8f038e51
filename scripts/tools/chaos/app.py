"""The application whose workers are killed: two queues, and handlers that record what really happens."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from schedq import Discard, Fixed, Queue, Snooze, current_job
from scripts.tools.chaos import orders, resources
from scripts.tools.chaos.attempts import VISIBILITY_MS
from scripts.tools.chaos.record import Recorder, now
from scripts.tools.chaos.request_log import RequestLog
from scripts.tools.chaos.resources import Connection, Session

MAX_ATTEMPTS: Final = 10
NAMES: Final = ("first", "second")
POLICIES: Final[dict[str, Literal["latest", "all"]]] = {"first": "latest", "second": "all"}
"""Each queue has one schedule in the code; its `catch_up` is also its id."""
SLOT_S: Final = 1
OVERRUN_S, OVERRUN_TIMEOUT_S = 2.0, 0.5
IGNORANT: Final = ("worker-1", "worker-3")
"""Workers that lack the task `newcomer`, as in the middle of a deploy."""
LIMITED: Final = {
    "worker-2": ("--only", ("brief", "quick", "nap", "doze", "fails")),
    "worker-4": ("--except", ("overrun", "hopeless", "single", "tick")),
}
"""Workers that take some tasks only."""
SINGLE: Final = {"worker-1": "first", "worker-3": "second"}
"""Workers of one queue. They send their claims behind their waits."""
SPARED: Final = ("worker-0", "promoter-0")
"""Processes that are never killed: their memory is watched for growth."""


def made(name: str, redis: str | None) -> Queue:
    """A queue of the run. Its histories are short, so that a long run does not grow, but outlast repeated requests."""
    return Queue(
        name,
        redis=redis,
        visibility_ms=VISIBILITY_MS,
        max_attempts=MAX_ATTEMPTS,
        backoff=Fixed(0.3),
        completed_ttl=7200,
        completed_history=4000,
        failed_history=400,
        min_keep=30,
        log_size=20_000,
        unknown_for=timedelta(hours=3),  # measured by a clock that we set an hour ahead
        lifespan=resources.lifespan,
    )


def is_taken(worker: str, task: str) -> bool:
    """Whether a worker takes the jobs of a task."""
    way, tasks = LIMITED.get(worker, ("--except", ()))
    return (task in tasks) == (way == "--only")


first = made("first", os.environ.get("CHAOS_REDIS"))
second = made("second", os.environ.get("CHAOS_REDIS"))

recorder: Recorder | None = None
if "CHAOS_FOLDER" in os.environ:  # true in processes of a run, not where only the names are needed
    recorder = Recorder(Path(os.environ["CHAOS_FOLDER"]), os.environ["CHAOS_KEY"])
    recorder.watch_for_gaps()
    RequestLog(recorder).install()
    resources.write = recorder.write
    orders.obey(Path(os.environ["CHAOS_FOLDER"]), os.environ["CHAOS_KEY"])


@contextmanager
def noted(tag: str) -> Iterator[None]:
    """Record the job's start and end, before and after anything else."""
    assert recorder is not None
    job = current_job()
    recorder.write("start", now(), job.id, job.attempts, job.claim_token, tag, round(time.time(), 3))
    how = "done"
    try:
        yield
    except Snooze:
        how = "snoozed"
        raise
    except Exception:
        how = "raised"
        raise
    except BaseException:
        how = "stopped"
        raise
    finally:
        recorder.write("end", now(), job.id, job.attempts, job.claim_token, how)


async def brief(tag: str) -> None:
    """Does nothing, on the loop; blocks the loop if ordered to."""
    with noted(tag):
        if recorder is not None:
            orders.block_if_asked(recorder)


def quick(tag: str) -> None:
    """Does nothing, in a thread."""
    with noted(tag):
        pass


async def nap(tag: str, seconds: float, *, session: str = Session) -> None:
    """Waits on the loop; possibly for longer than a lease."""
    with noted(tag):
        await asyncio.sleep(seconds)


def doze(tag: str, seconds: float, *, connection: str = Connection) -> None:
    """The same in a thread."""
    with noted(tag):
        time.sleep(seconds)


def overrun(tag: str, *, connection: str = Connection) -> None:
    """Occupies its thread for longer than its timeout."""
    with noted(tag):
        time.sleep(OVERRUN_S)


async def newcomer(tag: str) -> None:
    """A task that some workers do not have."""
    with noted(tag):
        pass


async def single(tag: str, seconds: float, *, session: str = Session) -> None:
    """Waits, with a single attempt: if its worker dies, the job has failed."""
    with noted(tag):
        await asyncio.sleep(seconds)


async def fails(tag: str, times: int, *, session: str = Session) -> None:
    """Fails `times` times before it succeeds."""
    with noted(tag):
        if current_job().attempts <= times:
            raise RuntimeError("not yet")


def hopeless(tag: str, *, connection: str = Connection) -> None:
    """Never succeeds."""
    with noted(tag):
        raise RuntimeError("always fails")


async def refused(tag: str) -> None:
    """Fails for good at once."""
    with noted(tag):
        raise Discard("not this one")


async def sleepy(tag: str) -> None:
    """Snoozes, most likely not forever."""
    with noted(tag):
        if random.random() < 0.5:
            raise Snooze(random.choice((0.1, 0.4)))


async def tick() -> None:
    """The job of a slot."""
    with noted(current_job().id):
        pass


def poison(tag: str) -> None:
    """Kills its worker, unless that worker is spared."""
    with noted(tag):
        if os.environ["CHAOS_NAME"] in SPARED:
            raise RuntimeError("not here")
        os.kill(os.getpid(), signal.SIGKILL)


HANDLERS: Final[tuple[Callable[..., Any], ...]] = (
    brief, quick, nap, doze, single, fails, hopeless, refused, sleepy, poison,
)  # fmt: skip
for queue in (first, second):
    for handler in HANDLERS:
        queue.task(handler)
    queue.task(timeout=OVERRUN_TIMEOUT_S)(overrun)
    if os.environ.get("CHAOS_NAME") not in IGNORANT:
        queue.task(newcomer)
    queue.every(SLOT_S, id=POLICIES[queue.name], catch_up=POLICIES[queue.name])(tick)
