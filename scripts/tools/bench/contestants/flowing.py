"""Common to the contestants with workflows: `python flow_NAME.py VERB WORD...` prints one line of JSON.

A contestant's file passes a class to `main` that has the methods of the rows in which it takes part:
    batch(numbers, turn): enqueue a child for each number, and the call that follows the last of them.
    chain(numbers, turn): enqueue a job for each number, each of which begins when the one before has ended.
    steps(numbers, turn): enqueue one run that has a durable step for each number.

Everything is marked in the file of `marking`, with instants of the monotonic clock, which all processes of a Linux
machine share; the reference of a mark is the turn.
"""

import json
import os
import sys
import time
from pathlib import Path

import marking

HELD = 1_000_000
"""Number of the child that sleeps when it runs for the first time."""
CALLED = 2_000_000
"""Number in the mark before the call of a turn."""
AFTER = 3_000_000
"""Number in the mark of the call that follows the last child."""
HOLD_S = 60
ENOUGH_S = 10
"""How long turns are repeated; one is made in any case."""
PATIENCE_S = 60
"""How long a turn may make no progress."""
WARM_UP = -1
"""Number in the marks of the warm-up."""

_file = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def mark(number, turn):
    """Record that a child, step or call is about to end, or to begin."""
    os.write(_file, marking.RECORD.pack(number, turn, time.monotonic(), os.getpid()))


def after(turn):
    """Mark the call that follows the last child; turns below 0 belong to the warm-up."""
    mark(WARM_UP if turn < 0 else AFTER, turn)


def must_hold(number, turn):
    """Whether this child must sleep: the held one, when it runs for the first time, which is marked."""
    if number != HELD or any(record[0] == HELD for record in _records()):
        return False
    mark(HELD, turn)
    return True


def _records():
    return marking.RECORD.iter_unpack(Path(os.environ["BENCH_MARKS"]).read_bytes())


def fill(producer, kind, count):
    """Warm up."""
    producer.batch([WARM_UP] * int(count), -1)
    return {}


def wait(producer, count):
    """Enqueue children, for which there is no worker."""
    producer.batch(list(range(int(count))), 0)
    return {}


def hold(producer, count):
    """Enqueue children of which the last one sleeps."""
    producer.batch([*range(int(count) - 1), HELD], 0)
    return {}


def turns(producer, shape, count, times):
    """Let a producer enqueue over and over, each time once all of the time before has ended."""
    numbers, began = list(range(int(count))), time.monotonic()
    for turn in range(int(times)):
        if turn and time.monotonic() - began > ENOUGH_S:
            break
        until_marked = marking.marked() + 1 + len(numbers) + (shape == "batch")
        mark(CALLED, turn)
        getattr(producer, shape)(numbers, turn)
        if not _have_come(until_marked):
            return {"error": f"turn {turn} of {shape} makes no progress"}
        time.sleep(0.1)
    return {}


def _have_come(count):
    seen, since = -1, time.monotonic()
    while (now := marking.marked()) < count:
        if now > seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > PATIENCE_S:
            return False
        time.sleep(0.005)
    return True


VERBS = {verb.__name__: verb for verb in (fill, wait, hold, turns)}


def main(make, work):
    """Run the command line; `work(kind)` is called for `worker KIND COUNT` and does not return."""
    if sys.argv[1] == "worker":
        work(sys.argv[2])
    else:
        print(json.dumps(VERBS[sys.argv[1]](make(), *sys.argv[2:])), flush=True)
