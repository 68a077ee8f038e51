"""Changes limits, pauses and holds in several steps until it is killed.

python -m scripts.tools.chaos.limits_changer SEED. With `end` it resets all limits, resumes everything, and exits.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from schedq import SchedqError
from schedq.transitions import Operation, gates
from scripts.tools.chaos.attempts import now_ms
from scripts.tools.chaos.limits_app import SCHEDULES, queue, recorder

CHANGES: Final[Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    # gate: what may be set; each change sets all of it, so that the last one tells the limits in force
    "": {"concurrency": (6, 10, 14), "rate": ([[40, 1000, 1]], [[60, 1000, 20]], 0)},
    "calls": {"concurrency": (1, 2, 4, 0)},
    "keyed": {"concurrency": (3, 7, 0), "key_concurrency": (1, 2, 4)},
    "solo": {"concurrency": (0, 2)},
    "ledger": {"concurrency": (0, 3)},
    "paced": {
        "rate": ([[8, 1000, 3], [400, 60_000, 60]], [[12, 1000, 1]], [[20, 2000, 10]]),
        "key_rate": ([[3, 1000, 1]], [[8, 2000, 4]], 0),
    },
}
NAMES: Final = ("calls", "keyed", "paced", "calls k1", "keyed k2", "solo k1", "ledger k1", "paced k1")
"""What is paused and held."""


def say(kind: str, name: str, what: Any, operation: Operation[bool]) -> None:
    """Record a step, carry it out and record that it is done."""
    assert recorder is not None
    recorder.write("change", now_ms(), kind, name, what)
    while True:
        try:
            queue.connections.blocking.ask(operation)
            break
        except SchedqError:
            time.sleep(0.1)
    recorder.write("changed", now_ms())


def limit(name: str, limits: Mapping[str, Any] | None) -> None:
    """Set limits, or reset them."""
    settings = queue.settings
    if limits is None:
        say("limits", name, {}, gates.reset(settings, name))
    else:
        say("limits", name, limits, gates.set_limits(settings, name, json.dumps(limits)))


def hold(name: str, action: Any, ms: int = 0) -> None:
    """Pause, hold or resume a gate or a key."""
    gate, _, key = name.partition(" ")
    say(action, name, ms, gates.hold(queue.settings, gate, key or None, action, ms))


def stop_schedules() -> None:
    """Pause all schedules, so that the queue can become empty."""
    for name in SCHEDULES:
        while True:
            try:
                queue.schedules.pause(name)
                break
            except SchedqError:
                time.sleep(0.1)


def steps(draw: random.Random) -> Iterator[Callable[[], None]]:
    """The steps of one change."""
    if draw.random() < 0.6:
        for name in draw.sample(list(CHANGES), 3):
            values = {field: draw.choice(choices) for field, choices in CHANGES[name].items()}
            yield lambda name=name, values=values: limit(name, values if draw.random() < 0.8 else None)  # type: ignore[misc]
    elif draw.random() < 0.5:
        names = draw.sample(NAMES, 2)
        for action in ("pause", "resume"):
            for name in names:
                yield lambda name=name, action=action: hold(name, action)  # type: ignore[misc]
    else:
        for name in draw.sample(NAMES, 2):
            yield lambda name=name: hold(name, "hold", draw.choice((200, 600, 1500)))  # type: ignore[misc]


def main() -> None:
    for name in NAMES:  # what one that was killed has left
        hold(name, "resume")
    if sys.argv[1] == "end":
        stop_schedules()
        for name in CHANGES:
            limit(name, None)
        return
    draw = random.Random(sys.argv[1])
    while True:
        for step in steps(draw):
            step()
            time.sleep(draw.uniform(0, 0.3))
        time.sleep(draw.uniform(0.1, 0.8))


if __name__ == "__main__":
    main()
