"""The application of the scenes: one queue, named by the environment, and handlers that are good or bad to the loop.

It is imported by old releases, too.
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
    """A while on the loop."""
    await asyncio.sleep(seconds)


@queue.task
async def block(seconds: float) -> None:
    """The same in the way in which it must not be done: nothing else on the loop goes on."""
    time.sleep(seconds)


@queue.task
def note(number: int) -> int:
    """Next to nothing."""
    return number


@queue.every(float(os.environ["SCENE_EVERY_S"]), id="tick", version=int(os.environ["SCENE_VERSION"]))
def tick() -> None:
    """The job of a slot."""
