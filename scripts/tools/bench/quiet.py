"""Waits until the machine is quiet before a run, and tells how quiet it was."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

MOST_LOAD: Final = 0.3
_FOR_S: Final = 60.0
_PATIENCE_S: Final = 900.0
_LOOK_S: Final = 2.0
_STAT: Final = Path("/proc/stat")


def wait(say: Callable[[str], None], load: Callable[[], float] | None = None, clock: Any = time) -> float:
    """Wait until the load average has been below 0.3 for a minute, 15 minutes at most; return the load."""
    load = load or (lambda: os.getloadavg()[0])
    began = busy_at = clock.monotonic()
    while (now := clock.monotonic()) - busy_at < _FOR_S:
        if now - began >= _PATIENCE_S:
            say(f"the machine does not become quiet: load {load():.2f}")
            break
        if load() >= MOST_LOAD:
            busy_at = now
        clock.sleep(_LOOK_S)
    return round(load(), 2)


@contextmanager
def watched(found: dict[str, Any], say: Callable[[str], None]) -> Iterator[None]:
    """Measure while it is open: note the load before, and how much time the host gave to other machines meanwhile."""
    load = wait(say)
    before = _ticks()
    yield
    after = _ticks()
    stolen = 100 * (after[1] - before[1]) / max(1, after[0] - before[0])
    found.setdefault("quiet", []).append({"load": load, "steal %": round(stolen, 2)})
    say(f"load before this run {load:.2f}, {stolen:.2f} % of its time stolen")


def _ticks() -> tuple[int, int]:
    """All ticks of the processors so far, and those that the host gave to other machines."""
    ticks = [int(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks), ticks[7]
