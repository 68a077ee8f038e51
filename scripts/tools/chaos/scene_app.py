"""The application of the scenes: one queue, named by the environment, and handlers that do or don't block the loop.

Old releases import it, too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from schedq import Fixed, Queue


def made(name: str, **options: Any) -> Queue:
    """A queue of the scene."""
    return Queue(
        name,
        redis=os.environ["SCENE_REDIS"],
        visibility_ms=int(os.environ["SCENE_VISIBILITY_MS"]),
        max_attempts=5,
        backoff=Fixed(0.2),
        **options,
    )


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    """Record that it is entered and left."""
    path = Path(os.environ["SCENE_RESOURCES"])
    path.write_text("entered")
    try:
        yield
    finally:
        path.write_text("left")


@contextmanager
def refused() -> Iterator[None]:
    """Never entered."""
    raise ConnectionError("the database refuses connections")
    yield


if "SCENE_RESOURCES" in os.environ:
    queue = made(os.environ["SCENE_QUEUE"], lifespan=opened)
    refusing = made(f"{os.environ['SCENE_QUEUE']}-refused", lifespan=refused)
    refusing.handler(lambda payload: payload)
else:
    queue = made(os.environ["SCENE_QUEUE"])


@queue.task
async def hold(seconds: float) -> None:
    """Wait without blocking the loop."""
    await asyncio.sleep(seconds)


@queue.task
async def block(seconds: float) -> None:
    """Wait and block the loop, which handlers must not do."""
    time.sleep(seconds)


@queue.task
def note(number: int) -> int:
    """Do almost nothing."""
    return number


@queue.every(float(os.environ["SCENE_EVERY_S"]), id="tick", version=int(os.environ["SCENE_VERSION"]))
def tick() -> None:
    """The job of a slot."""
