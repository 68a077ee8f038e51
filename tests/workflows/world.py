"""What the tests of workflows run: steps that note what they did, and runs in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from schedq.workflows.context import WorkflowContext
from tests.workflows.simulated import BEGAN_MS, Lives, Stored, in_virtual_time, live, now_ms

DAY = 86_400


class World:
    """What the steps of a test did, and when."""

    def __init__(self) -> None:
        self.done: list[tuple[str, float]] = []
        self.fails: dict[str, list[BaseException]] = {}

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.done]

    async def act(self, name: str, seconds: float = 0.0) -> str:
        self.done.append((name, round((now_ms() - BEGAN_MS) / 1000, 1)))
        await asyncio.sleep(seconds)
        if self.fails.get(name):
            raise self.fails[name].pop(0)
        return name

    def say(self, name: str) -> str:
        self.done.append((name, round((now_ms() - BEGAN_MS) / 1000, 1)))
        return name

    def step(self, ctx: WorkflowContext, name: str, seconds: float = 0.0) -> Any:
        return ctx.options(name=name).step(self.act, name, seconds)


def run(workflow: Any, *sent: tuple[float, str, Any], stored: list[Stored] | None = None, **options: Any) -> Lives:
    """Run a workflow to its end; messages (seconds, topic, value) arrive meanwhile."""

    async def both() -> Lives:
        store = Stored()
        if stored is not None:
            stored.append(store)
        for seconds, topic, value in sent:
            asyncio.get_running_loop().call_later(seconds, store.send, topic, value)
        return await live(workflow, store, **options)

    return in_virtual_time(both())
