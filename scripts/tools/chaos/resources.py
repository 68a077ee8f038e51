"""What workers enter and leave: a lifespan per process, and nested dependencies per worker and per attempt.

Each records that it was entered and that it was left, with a number of its own; `promises` judges the records.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from schedq import CurrentJob, Depends, current_job
from scripts.tools.chaos.record import now

WORKER: Final = ""
"""The owner of what lives as long as its process; for an attempt it is the claim token."""
LIFESPAN: Final = "pool"
_FAILURES: Final = 0.02
"""Share of sessions that fail while they are made."""
_numbers = itertools.count(1)


def write(*_fields: Any) -> None:
    """Record a line; replaced by the recorder of a run."""


@contextmanager
def noted(owner: str, name: str) -> Iterator[None]:
    """Record that something is entered and left, however it is left."""
    number = next(_numbers)
    write("entered", now(), number, owner, name)
    try:
        yield
    finally:
        write("left", now(), number)


@asynccontextmanager
async def lifespan() -> AsyncIterator[str]:
    """Both queues share it, so a process enters it once."""
    with noted(WORKER, LIFESPAN):
        yield LIFESPAN


async def cache(pool: str = Depends(lifespan)) -> AsyncIterator[str]:
    """Made when it is needed for the first time, and left with the worker."""
    with noted(WORKER, f"cache of {pool}"):
        await asyncio.sleep(0.01)
        yield "cache"


def connection(pool: str = Depends(lifespan), job: CurrentJob = Depends(current_job)) -> Iterator[str]:
    """Plain: entered and left in a thread."""
    with noted(job.claim_token, f"connection of {pool}"):
        yield "connection"


async def session(
    connection: str = Depends(connection),
    cache: str = Depends(cache, scope="worker"),
    job: CurrentJob = Depends(current_job),
) -> AsyncIterator[str]:
    """On the loop; may fail before it is entered, while the connection is open."""
    await asyncio.sleep(0.005)
    if random.random() < _FAILURES:
        raise RuntimeError("no session this time")
    with noted(job.claim_token, f"session of {connection} and {cache}"):
        yield "session"


Session: Final[Any] = Depends(session)
Connection: Final[Any] = Depends(connection)
