"""Common to all contestants: `python with_NAME.py VERB WORD...` prints one line of JSON.

A contestant's file passes a class with these coroutines to `main` (those of a blocking library simply block):
    one(kind, number, reference): enqueue one job for the handler of that kind, `plain` or `async`.
    many(kind, calls): the library's bulk call, if it has one; calls are (number, reference).
    later(kind, number, due): enqueue one job due at that Unix second.
    letter(number, due): enqueue one delayed job with the small payload of the memory row.
    nap(): enqueue the job that sleeps.
"""

import asyncio
import json
import random
import sys
import time

import marking

WARM = 50
"""Calls before the clock starts: connecting, loading scripts."""
PART = 500
"""Jobs in one bulk call."""


async def one(producer, kind, count):
    """Enqueue one job at a time."""
    for _ in range(WARM):
        await producer.one(kind, -1, 0.0)
    began = time.perf_counter()
    for number in range(int(count)):
        await producer.one(kind, number, 0.0)
    return {"seconds": time.perf_counter() - began, "jobs": int(count) + WARM}


async def many(producer, kind, count):
    """Enqueue in batches."""
    await producer.many(kind, [(-1, 0.0)] * WARM)
    began = time.perf_counter()
    await _parts(producer, kind, int(count))
    return {"seconds": time.perf_counter() - began, "jobs": int(count) + WARM}


async def fill(producer, kind, count):
    """Enqueue in the fastest way available."""
    if hasattr(producer, "many"):
        await _parts(producer, kind, int(count))
    else:
        for number in range(int(count)):
            await producer.one(kind, number, 0.0)
    return {}


async def _parts(producer, kind, count):
    for first in range(0, count, PART):
        await producer.many(kind, [(number, 0.0) for number in range(first, min(first + PART, count))])


async def pace(producer, kind, count, low, high, seed):
    """Enqueue each job once the previous one has started and `low` to `high` seconds have passed."""
    draw = random.Random(int(seed))
    for number in [-1] * 20 + list(range(int(count))):
        before = marking.marked()
        await producer.one(kind, number, time.time())
        await asyncio.sleep(0.005 if number < 0 else draw.uniform(float(low), float(high)))
        until = time.monotonic() + 60
        while marking.marked() <= before:
            if time.monotonic() > until:
                return {"error": f"job {number} has not started within 60 s"}
            await asyncio.sleep(0.001)
    return {}


async def spread(producer, kind, count, seconds, lead, seed):
    """Enqueue jobs due evenly over `seconds`, in random order; reports if the first was due before the end."""
    first = time.time() + float(lead)
    draw, gap = random.Random(int(seed)), float(seconds) / int(count)
    # A random place in each gap: of evenly spaced instants, all would be rounded to milliseconds by the same amount.
    instants = [(number, first + (number + draw.random()) * gap) for number in range(int(count))]
    draw.shuffle(instants)
    for number, due in instants:
        await producer.later(kind, number, due)
    return {"was_too_slow": time.time() > first}


async def letters(producer, count, seconds):
    """Enqueue delayed jobs with a small payload."""
    due = time.time() + float(seconds)
    for number in range(int(count)):
        await producer.letter(number, due)
    return {}


async def nap(producer):
    """Enqueue the job that sleeps."""
    await producer.nap()
    return {}


VERBS = {verb.__name__: verb for verb in (one, many, fill, pace, spread, letters, nap)}


def main(make, work, run=asyncio.run):
    """Run the command line.

    `make` returns the producer, or an awaitable of it, within the event loop that `run` starts. For `worker KIND COUNT`
    `work` is called with both words and does not return.
    """

    async def act():
        made = make()
        producer = await made if asyncio.iscoroutine(made) else made
        return await VERBS[sys.argv[1]](producer, *sys.argv[2:])

    if sys.argv[1] == "worker":
        work(sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps(run(act())), flush=True)
