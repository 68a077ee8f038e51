"""Records when the attempts of handlers began and ended; `limits_records` reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from schedq import current_job
from scripts.tools.chaos.record import Recorder

VISIBILITY_MS: Final = 4000
"""How long a lease lasts."""
_LOOK_S: Final = 0.01
_STEP_S: Final = 0.002


def now_ms() -> float:
    """The machine's time, which is Redis's time, too."""
    return round(time.time() * 1000, 3)


def clock_steps() -> list[float]:
    """Record each step of the machine's clock from now on, in ms. A virtual machine may step its clock by itself."""
    steps: list[float] = []

    def watch() -> None:
        last = time.time() - time.monotonic()
        while True:
            time.sleep(_LOOK_S)
            offset = time.time() - time.monotonic()
            if abs(offset - last) > _STEP_S:
                steps.append(round((offset - last) * 1000, 1))
            last = offset

    threading.Thread(target=watch, name="chaos-clock", daemon=True).start()
    return steps


@contextmanager
def noted(recorder: Recorder | None, gate: str, key: str, number: int, unique: str = "") -> Iterator[list[Any]]:
    """Record the attempt's start and end.

    Yields how it ends, `done` unless it raises. Code that raises may say so in its own words.
    """
    assert recorder is not None
    job, how = current_job(), ["done"]
    token, claimed_ms = job.claim_token, job._job.claimed_at_ms
    recorder.write("begin", now_ms(), job.id, token, gate, key, job.attempts, claimed_ms, number, unique)
    try:
        yield how
    except BaseException as error:
        if how == ["done"]:
            how[0] = type(error).__name__
        raise
    finally:
        recorder.write("left", now_ms(), job.id, token, *how)
