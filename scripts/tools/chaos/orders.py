"""Orders from the director to a worker, such as blocking its own loop: written to a file, announced by a signal."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from scripts.tools.chaos.record import Recorder, now

SIGNAL: Final = signal.SIGUSR2
_blocks: deque[float] = deque()


def path(folder: Path, key: str) -> Path:
    """The file with the orders for the process with that key."""
    return folder / f"{key}.order"


def give(folder: Path, key: str, **order: Any) -> None:
    """Write an order: `block` or `fill`, in seconds. The caller also sends the signal."""
    fresh = path(folder, key).with_suffix(".new")
    fresh.write_text(json.dumps(order))
    fresh.replace(path(folder, key))


def obey(folder: Path, key: str) -> None:
    """Follow orders from now on."""

    def hear(*_: object) -> None:
        order = json.loads(path(folder, key).read_text())
        if "block" in order:
            _blocks.append(order["block"])
        if "fill" in order:
            with suppress(RuntimeError):  # no loop is running during startup and shutdown
                loop = asyncio.get_running_loop()
                loop.call_soon_threadsafe(_fill, loop, order["fill"])

    signal.signal(SIGNAL, hear)
    path(folder, key).touch()


def is_obeyed(folder: Path, key: str) -> bool:
    """Whether that process follows orders yet; before it does, the signal would kill it."""
    return path(folder, key).exists()


def block_if_asked(recorder: Recorder) -> None:
    """Block the event loop, like an async handler that makes blocking calls, and record when."""
    if _blocks:
        since = now()
        time.sleep(_blocks.popleft())
        recorder.write("block", since, now())


def _fill(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Occupy all threads of the loop's default executor, as handlers do that use `asyncio.to_thread`."""
    for _ in range(40):  # it has at most 32 threads; the rest wait in its queue
        loop.run_in_executor(None, time.sleep, seconds)
