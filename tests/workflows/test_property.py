"""Random workflows come to the same as if they were never suspended, however their attempts are cut."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cases import for_each
from tests.workflows.programs import Author, NeverSuspended, Node, World, perform
from tests.workflows.simulated import BEGAN_MS, Lives, Stored, in_virtual_time, live, now_ms

BACKOFF_S = 30
TOLERANCE_S = 20.0
"""Steps, requests and queries take a while, and another one in each run."""
Cut = Callable[[int], float | None]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of failed steps are not worth a log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def never(_: int) -> float | None:
    return None


async def reference(program: Node, author: Author, seed: int) -> tuple[Any, World, float]:
    """What the program comes to without suspension: its result, what it did, and how long it took."""
    world = World(random.Random(seed))
    context = NeverSuspended(author.messages, BACKOFF_S)
    result = await perform(context, world, program)
    return result, world, (now_ms() - BEGAN_MS) / 1000


async def suspended(
    program: Node, author: Author, seed: int, *, kill_after: Cut = never, release_after: Cut = never
) -> tuple[Lives, World, float, Stored]:
    """What it comes to in as many attempts as it takes."""
    world, stored, loop = World(random.Random(seed + 1)), Stored(), asyncio.get_running_loop()
    for seconds, topic, value in author.messages:
        loop.call_later(seconds, stored.send, topic, value)
    lives = await live(
        lambda ctx: perform(ctx, world, program), stored, seed=seed, kill_after=kill_after, release_after=release_after
    )
    return lives, world, (now_ms() - BEGAN_MS) / 1000, stored


def results(seed: int, *, kill_after: Cut = never, release_after: Cut = never) -> tuple[Any, Any]:
    """The results of a random workflow in as many attempts as it takes, and in one; its effects are compared here."""
    author = Author(seed)
    program = author.program()
    result, expected, expected_s = in_virtual_time(reference(program, author, seed))
    lives, world, took_s, stored = in_virtual_time(
        suspended(program, author, seed, kill_after=kill_after, release_after=release_after)
    )
    assert lives.error is None, repr(lives.error)
    assert abs(took_s - expected_s) < TOLERANCE_S + 10 * lives.attempts
    if kill_after is never and release_after is never:
        assert Counter(world.calls) == Counter(expected.calls), "each effect once"
        for (name, at), (other, expected_at) in zip(sorted(world.effects), sorted(expected.effects), strict=True):
            assert name == other
            assert abs(at - expected_at) < TOLERANCE_S, f"{name} at {at}, without suspensions at {expected_at}"
    else:
        more = sum((Counter(world.calls) - Counter(expected.calls)).values())
        assert not Counter(expected.calls) - Counter(world.calls), "each effect at least once"
        assert more <= lives.attempts * 4, "an effect is repeated only if its attempt was cut"
    assert len(stored.writes) == len(set(stored.writes)), "each memo is written once"
    return lives.result, result


@for_each(range(100))
def test_a_run_is_what_it_would_be_without_suspensions(seed: int):
    found, expected = results(seed)
    assert found == expected


@for_each(range(1000, 1030))
def test_a_run_whose_workers_die_is_the_same(seed: int):
    chance = random.Random(seed)
    found, expected = results(seed, kill_after=lambda attempt: chance.uniform(0.001, 0.2) if attempt % 2 else None)
    assert found == expected


@for_each(range(2000, 2030))
def test_a_run_whose_workers_stop_is_the_same(seed: int):
    chance = random.Random(seed)
    found, expected = results(seed, release_after=lambda attempt: chance.uniform(0.001, 0.2) if attempt % 3 else None)
    assert found == expected
