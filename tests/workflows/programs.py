"""Random workflows, and what they come to if they are never suspended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from schedq.errors import StepFailed
from tests.workflows.simulated import BEGAN_MS, now_ms

Node = tuple[Any, ...]
Shuffle = Callable[[float, float], float]
LONG = (100.0, 500_000.0)
"""Seconds of waits: two that begin together rarely end so close together that a step may decide which is first."""


@dataclass
class World:
    """What happened outside of the workflow.

    Attributes:
        effects: (what, instant in seconds) of each call of a step's function.
        calls: how often each was called.
    """

    chance: random.Random
    effects: list[tuple[str, float]] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)

    async def act(self, name: str, fails: int) -> str:
        """A step: takes a random time, which differs from attempt to attempt, and fails at first."""
        number = self.calls[name] = self.calls.get(name, 0) + 1
        self.effects.append((f"{name} {number}", (now_ms() - BEGAN_MS) / 1000))
        await self.io()
        if number <= fails:
            raise ValueError(name)
        return name

    async def io(self) -> None:
        """Plain input and output, such as a query."""
        await asyncio.sleep(self.chance.uniform(0, 0.05))


class Author:
    """Writes random programs."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._count = 0
        self.messages: list[tuple[float, str, int]] = []

    def program(self) -> Node:
        """A sequence of statements."""
        return ("seq", [self._statement(3) for _ in range(self._chance.randint(2, 4))])

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _seconds(self) -> float:
        return round(self._chance.uniform(*LONG), 1)

    def _statement(self, depth: int) -> Node:
        simple = [self._step, self._step, self._sleep, self._receive, self._io]
        nested = [self._gather, self._gather, self._first, self._finally, self._caught, self._generated, self._grouped]
        nested += [self._queued, self._shielded, self._limited, self._seq]
        return self._chance.choice(simple + (nested if depth else []))(depth - 1)

    def _step(self, depth: int) -> Node:
        return ("step", f"s{self._number()}", self._chance.choice([0, 0, 0, 0, 1, 2]))

    def _sleep(self, depth: int) -> Node:
        return ("sleep", self._chance.choice([self._seconds(), self._seconds(), 0.2]))

    def _receive(self, depth: int) -> Node:
        topic = f"t{self._number()}"
        if self._chance.random() < 0.8:
            self.messages.append((self._seconds(), topic, self._number()))
        return ("receive", topic, self._seconds())

    def _io(self, depth: int) -> Node:
        return ("io",)

    def _seq(self, depth: int) -> Node:
        return ("seq", [self._statement(depth) for _ in range(self._chance.randint(1, 3))])

    def _gather(self, depth: int) -> Node:
        return ("gather", [self._seq(depth) for _ in range(self._chance.randint(1, 4))])

    def _first(self, depth: int) -> Node:
        """Each branch begins with a long wait of its own, so that steps do not decide which is the first."""
        waits = [("seq", [("sleep", self._seconds()), self._seq(depth)]) for _ in range(self._chance.randint(1, 3))]
        return ("first", waits)

    def _finally(self, depth: int) -> Node:
        return ("finally", self._seq(depth), self._step(depth))

    def _caught(self, depth: int) -> Node:
        """A branch fails for good, is caught, and something else is done."""
        failing = ("seq", [("sleep", self._seconds()), ("step", f"s{self._number()}", 99)])
        return ("caught", ("gather", [self._seq(depth), failing, self._seq(depth)]), self._step(depth))

    def _generated(self, depth: int) -> Node:
        return ("generated", [self._statement(depth) for _ in range(self._chance.randint(1, 3))])

    def _grouped(self, depth: int) -> Node:
        return ("grouped", self._seq(depth))

    def _queued(self, depth: int) -> Node:
        return ("queued", self._seq(depth))

    def _shielded(self, depth: int) -> Node:
        return ("shielded", self._seq(depth))

    def _limited(self, depth: int) -> Node:
        return ("limited", self._step(depth))


async def perform(ctx: Any, world: World, node: Node) -> Any:
    """Do what a program says; `ctx` is the real context or one that never suspends."""
    kind, *rest = node
    found = await _KINDS[kind](ctx, world, *rest)
    if world.chance.random() < 0.2:
        await world.io()
    return found


async def _seq(ctx: Any, world: World, nodes: list[Node]) -> Any:
    return [await perform(ctx, world, node) for node in nodes]


async def _step(ctx: Any, world: World, name: str, fails: int) -> Any:
    return await ctx.options(max_attempts=3).step(world.act, name, fails)


async def _sleep(ctx: Any, world: World, seconds: float) -> Any:
    await ctx.sleep(seconds)
    return "slept"


async def _receive(ctx: Any, world: World, topic: str, timeout: float) -> Any:
    try:
        return await ctx.receive(topic, timeout=timeout)
    except TimeoutError:
        return "too late"


async def _io(ctx: Any, world: World) -> Any:
    await world.io()
    return "io"


async def _gather(ctx: Any, world: World, nodes: list[Node]) -> Any:
    return list(await ctx.gather(*(perform(ctx, world, node) for node in nodes)))


async def _first(ctx: Any, world: World, nodes: list[Node]) -> Any:
    return list(await ctx.first(**{f"b{number}": perform(ctx, world, node) for number, node in enumerate(nodes)}))


async def _finally(ctx: Any, world: World, node: Node, last: Node) -> Any:
    try:
        return await perform(ctx, world, node)
    finally:
        await perform(ctx, world, last)


async def _caught(ctx: Any, world: World, node: Node, instead: Node) -> Any:
    try:
        return await perform(ctx, world, node)
    except StepFailed as error:
        return [str(error.error), await perform(ctx, world, instead)]


async def _generated(ctx: Any, world: World, nodes: list[Node]) -> Any:
    async def results() -> Any:
        for node in nodes:
            yield await perform(ctx, world, node)

    return [each async for each in results()]


async def _grouped(ctx: Any, world: World, node: Node) -> Any:
    """A group of the standard library, for plain I/O next to operations in the branch itself."""
    async with asyncio.TaskGroup() as group:
        group.create_task(world.io())
        task = group.create_task(world.io())
        found = await perform(ctx, world, node)
        await task
    return found


async def _queued(ctx: Any, world: World, node: Node) -> Any:
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def produce() -> None:
        await world.io()
        await queue.put("item")

    task = asyncio.create_task(produce())
    found = [await queue.get(), await perform(ctx, world, node)]
    await task
    return found


async def _shielded(ctx: Any, world: World, node: Node) -> Any:
    await asyncio.shield(world.io())
    return await perform(ctx, world, node)


async def _limited(ctx: Any, world: World, node: Node) -> Any:
    async with asyncio.timeout(10):
        await world.io()
    return await perform(ctx, world, node)


_KINDS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    "seq": _seq,
    "step": _step,
    "sleep": _sleep,
    "receive": _receive,
    "io": _io,
    "gather": _gather,
    "first": _first,
    "finally": _finally,
    "caught": _caught,
    "generated": _generated,
    "grouped": _grouped,
    "queued": _queued,
    "shielded": _shielded,
    "limited": _limited,
}


class NeverSuspended:
    """A context whose operations simply happen, in one attempt. Messages are futures that are set when they arrive."""

    def __init__(self, messages: list[tuple[float, str, int]], backoff_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._backoff_s = backoff_s
        self._boxes: dict[str, asyncio.Future[int]] = {}
        for seconds, topic, value in messages:
            box = self._boxes[topic] = loop.create_future()
            loop.call_later(seconds, box.set_result, value)

    def options(self, *, max_attempts: int) -> NeverSuspended:
        self._attempts = max_attempts
        return self

    async def step(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        attempts = self._attempts
        for number in range(1, attempts + 1):
            try:
                return await function(*args)
            except ValueError as error:
                if number == attempts:
                    raise StepFailed("act", f"ValueError: {error}") from None
                await asyncio.sleep(self._backoff_s)
        raise AssertionError

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def receive(self, topic: str, timeout: float) -> Any:
        box = self._boxes.get(topic) or asyncio.get_running_loop().create_future()
        async with asyncio.timeout(timeout):
            return await asyncio.shield(box)

    async def gather(self, *works: Coroutine[Any, Any, Any]) -> list[Any]:
        tasks = [asyncio.create_task(work) for work in works]
        try:
            return await asyncio.gather(*tasks)
        finally:
            await self._end(tasks)

    async def first(self, **works: Coroutine[Any, Any, Any]) -> tuple[str, Any]:
        tasks = {name: asyncio.create_task(work) for name, work in works.items()}
        try:
            done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            return next((name, task.result()) for name, task in tasks.items() if task in done)
        finally:
            await self._end(tasks.values())

    async def _end(self, tasks: Any) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
