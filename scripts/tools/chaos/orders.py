"""What the director has a worker of the run do to itself: written to a file, announced by a signal."""

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
    """Where the process of that key finds its orders."""
    return folder / f"{key}.order"


def give(folder: Path, key: str, **order: Any) -> None:
    """Write an order down: `block` or `fill`, seconds. Who gives it sends the signal, too."""
    fresh = path(folder, key).with_suffix(".new")
    fresh.write_text(json.dumps(order))
    fresh.replace(path(folder, key))


def obey(folder: Path, key: str) -> None:
    """From now on, follow orders."""

    def hear(*_: object) -> None:
        order = json.loads(path(folder, key).read_text())
        if "block" in order:
            _blocks.append(order["block"])
        if "fill" in order:
            with suppress(RuntimeError):  # no loop is running: it begins, or ends
                loop = asyncio.get_running_loop()
                loop.call_soon_threadsafe(_fill, loop, order["fill"])

    signal.signal(SIGNAL, hear)
    path(folder, key).touch()


def is_obeyed(folder: Path, key: str) -> bool:
    """Whether that process follows orders; before it does, the signal would end it."""
    return path(folder, key).exists()


def block_if_asked(recorder: Recorder) -> None:
    """Let the event loop stand still, as a handler does that should have been plain, and write down when."""
    if _blocks:
        since = now()
        time.sleep(_blocks.popleft())
        recorder.write("block", since, now())


def _fill(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Keep all threads of the loop's default executor busy, as handlers do that use `asyncio.to_thread`."""
    for _ in range(40):  # it has 32 threads at most; the rest waits in its queue, as it may
        loop.run_in_executor(None, time.sleep, seconds)
