"""Enqueues jobs of gates until it is stopped: python -m scripts.tools.chaos.limits_producer JOBS_PER_SECOND SEED."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from typing import Any, Final

from schedq import SchedqError
from scripts.tools.chaos.limits_app import LIMITED_S, TASKS, queue, recorder

MOST_WAITING: Final = 500
"""Waiting jobs above which it pauses: a slow machine gets fewer jobs instead of a backlog."""
_KEYS: Final = {"calls": 5, "keyed": 8, "solo": 6, "ledger": 6, "paced": 8}
_WEIGHTS: Final = {"plain": 12, "calls": 14, "keyed": 22, "solo": 16, "ledger": 14, "paced": 14, "refresh": 8}
_BURST_SHARE: Final = 0.04
_BURSTS: Final = (6, 12, 24)
_SECONDS: Final = (0.0, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
_LONG_SHARE, _LONG_S = 0.004, 6.0
"""Some jobs take longer than a lease."""


class Specs:
    """What to enqueue: now and then many jobs of one key, so that limits are reached.

    In each key, jobs are numbered in the order in which they are enqueued.
    """

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._numbers: Counter[str] = Counter()
        self._gate, self._key = "", ""
        self.left = 0

    def next(self) -> tuple[str, list[Any], float]:
        """The task of the next job, its arguments and its delay."""
        draw = self._draw
        if not self.left:
            self._gate = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            self._key = f"k{draw.randrange(_KEYS.get(self._gate, 5))}"
            self.left = draw.choice(_BURSTS) if draw.random() < _BURST_SHARE else 1
        self.left -= 1
        seconds = _LONG_S if draw.random() < _LONG_SHARE else draw.choice(_SECONDS)
        delay = 0.0 if self._gate == "ledger" or draw.random() < 0.85 else draw.choice((0.1, 0.6, 2.0))
        return (*self._call(seconds), delay)

    def _call(self, seconds: float) -> tuple[str, list[Any]]:
        draw, gate, key = self._draw, self._gate, self._key
        if gate == "plain":
            return "plain", [0, seconds]
        if gate == "refresh":
            return "refresh", [0, key, f"{draw.randrange(12)}", seconds]
        self._numbers[f"{gate} {key}"] += 1
        kind = draw.choices(("nap", "doze", "stumble"), (8, 2, 1))[0]
        args: list[Any] = [self._numbers[f"{gate} {key}"], key, seconds]
        if kind == "nap" and draw.random() < 0.03:
            args.append((draw.choice(LIMITED_S), draw.choice(("key", "key", "gate"))))
        return f"{kind}_{gate}", args


def accept(job_id: str, task: str, args: list[Any], delay: float) -> str:
    """Enqueue a job, as often as it takes; returns the id of the job that is there."""
    while True:
        try:
            return TASKS[task].options(job_id=job_id, delay=delay).enqueue(*args).id
        except SchedqError:
            time.sleep(0.1)  # whether it was stored is open, so the id is the same


def main() -> None:
    assert recorder is not None
    rate, draw = float(sys.argv[1]), random.Random(sys.argv[2])
    is_stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: is_stopped.append(number))
    specs = Specs(draw)
    began, count = time.monotonic(), 0
    print("ready", flush=True)
    while not is_stopped:
        if count % 25 == 0:
            try:
                found = queue.stats()
            except SchedqError:
                continue
            if found["pending_depth"] + found["delayed_depth"] > MOST_WAITING:
                time.sleep(0.5)
                continue
        ahead = count / rate - (time.monotonic() - began)
        if ahead > 0 and not specs.left:
            time.sleep(min(ahead, 0.2))
            continue
        began = max(began, time.monotonic() - count / rate - 1)
        recorder.write("accepted", accept(f"j{count}", *specs.next()))
        count += 1


if __name__ == "__main__":
    main()
