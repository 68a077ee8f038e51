"""An agent: a model that calls tools. Its provider fails at times, and refuses with 429 what comes too fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedq import Depends, Discard, Exponential, RateLimited, WorkflowContext
from workflows.queues import queue

TURNS = 10


class TooManyRequestsError(Exception):
    """The status 429.

    Attributes:
        retry_after: seconds, from the header `Retry-After`.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__("429 Too Many Requests")
        self.retry_after = retry_after


class Model:
    """Stands for a model at a provider: it looks up two cities, and then compares them.

    Attributes:
        replies: what it does at each call: an error, or a reply that names tools to call or is done.
        calls: the calls so far; each one costs money.
    """

    def __init__(self, replies: Sequence[dict[str, Any] | Exception] = ()) -> None:
        tools = {"tools": [{"tool": "temperature", "city": "Oslo"}, {"tool": "temperature", "city": "Lima"}]}
        warmest = {"done": "Lima is warmer"}
        self.replies: list[dict[str, Any] | Exception] = [
            *(replies or (TooManyRequestsError(0.5), tools, ConnectionError("reset by peer"), warmest))
        ]
        self.calls = 0

    async def complete(self, notes: list[str]) -> dict[str, Any]:
        """The model's reply to the notes so far.

        Raises:
            TooManyRequestsError: the provider refuses.
            ConnectionError: the provider is away.
        """
        reply = self.replies[min(self.calls, len(self.replies) - 1)]
        self.calls += 1
        print(f"the model reads {len(notes)} notes")
        if isinstance(reply, Exception):
            raise reply
        return reply


def get_model() -> Model:
    """Return the model of this process. Tests replace this function."""
    return _model


_model = Model()


async def think(model: Model, notes: list[str]) -> dict[str, Any]:
    """Ask the model. A refusal makes the workflow wait, and is not a failed attempt."""
    try:
        return await model.complete(notes)
    except TooManyRequestsError as refused:
        raise RateLimited(after=refused.retry_after) from refused


def temperature(city: str) -> str:
    """A tool."""
    return f"{city}: {20 if city == 'Lima' else 3} degrees"


TOOLS = {"temperature": temperature}


@queue.workflow
async def research(ctx: WorkflowContext, question: str, *, model: Model = Depends(get_model)) -> str:
    """Let the model think and call tools, until it is done."""
    notes = [question]
    thinking = ctx.options(max_attempts=6, backoff=Exponential(base=1))
    for _ in range(TURNS):
        reply = await thinking.step(think, model, notes)
        if "done" in reply:
            return str(reply["done"])
        notes += await ctx.gather(*(ctx.step(TOOLS[call["tool"]], call["city"]) for call in reply["tools"]))
    raise Discard(f"not done in {TURNS} turns")
