"""The application of `scripts/chaos --cluster`: two queues on each node, and handlers that record what happens."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from redis.crc import key_slot

from schedq import Fixed, Queue, current_job
from scripts.tools.chaos.attempts import VISIBILITY_MS
from scripts.tools.chaos.record import Recorder, now
from scripts.tools.chaos.request_log import RequestLog
from tests.stories.topologies.cluster import SLOTS

PRIMARIES: Final = 4
PER_NODE: Final = 2
"""Queues on each node at first. They share connections."""


def _names_at(node: int) -> Iterator[str]:
    """Names whose slots are on a primary of a new cluster."""
    return (name for n in itertools.count() if key_slot((name := f"q{n}").encode()) * PRIMARIES // SLOTS == node)


NAMES: Final = tuple(name for node in range(PRIMARIES) for name in itertools.islice(_names_at(node), PER_NODE))
"""Names whose slots are on the first, the second, … primary of a new cluster."""

recorder: Recorder | None = None
if "CHAOS_FOLDER" in os.environ and "CHAOS_KEY" in os.environ:  # in the processes of a run
    recorder = Recorder(Path(os.environ["CHAOS_FOLDER"]), os.environ["CHAOS_KEY"])
    recorder.watch_for_gaps()
    RequestLog(recorder).install()


def made(name: str, url: str | None) -> Queue:
    """A queue of the run, which keeps all jobs; a new job is on the replica, too, when it is accepted."""
    return Queue(
        name,
        redis=url,
        visibility_ms=VISIBILITY_MS,
        max_attempts=200,
        backoff=Fixed(0.3),
        completed_history=1_000_000,
        completed_ttl=36_000,
        min_keep=36_000,
        durability="replicated",
        replicas=1,
    )


@contextmanager
def noted(tag: str) -> Iterator[None]:
    """Record the start and the end of an attempt."""
    assert recorder is not None
    job, how = current_job(), "raised"
    recorder.write("start", now(), job.id, job.attempts, job.claim_token, tag, round(time.time(), 3))
    try:
        yield
        how = "done"
    finally:
        recorder.write("end", now(), job.id, job.attempts, job.claim_token, how)


async def nap(tag: str, seconds: float) -> None:
    """Waits on the loop."""
    with noted(tag):
        await asyncio.sleep(seconds)


def doze(tag: str, seconds: float) -> None:
    """Waits in a thread."""
    with noted(tag):
        time.sleep(seconds)


async def stumble(tag: str, times: int) -> None:
    """Fails in its first attempts."""
    with noted(tag):
        if current_job().attempts <= times:
            raise RuntimeError("not yet")


OBJECTS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
queues: Final = {name: made(name, os.environ.get("CHAOS_REDIS")) for name in NAMES}
for queue in queues.values():
    for handler in (nap, doze, stumble):
        queue.task(handler)
first, second, third, fourth, fifth, sixth, seventh, eighth = queues.values()
