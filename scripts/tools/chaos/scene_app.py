"""The application of the scenes: one queue, named by the environment, and handlers that do or don't block the loop.

Old releases import it, too.
"""

from __future__ import annotations

import asyncio
import os
import time

from schedq import Fixed, Queue

queue = Queue(
    os.environ["SCENE_QUEUE"],
    redis=os.environ["SCENE_REDIS"],
    visibility_ms=int(os.environ["SCENE_VISIBILITY_MS"]),
    max_attempts=5,
    backoff=Fixed(0.2),
)


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
