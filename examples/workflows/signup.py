"""Four letters in the thirty days after a signup, for as long as the user wants them."""

from __future__ import annotations

from schedq import WorkflowContext
from workflows.queues import DAY, queue

LETTERS = ((0, "welcome"), (3, "tips"), (10, "a story"), (30, "an offer"))
"""Days after the signup, and what is sent then."""
unsubscribed: set[str] = set()
sent: list[tuple[str, str]] = []


def is_subscribed(user: str) -> bool:
    """Whether the user still wants letters."""
    return user not in unsubscribed


def send(user: str, letter: str) -> None:
    """Send a letter."""
    sent.append((user, letter))
    print(f"{user}: {letter}")


@queue.workflow
async def welcome(ctx: WorkflowContext, user: str) -> int:
    """Send the letters; returns how many."""
    for number, (day, letter) in enumerate(LETTERS):
        await ctx.sleep_until(ctx.started_at + day * DAY)
        if not await ctx.step(is_subscribed, user):
            return number
        await ctx.options(name=letter).step(send, user, letter)
    return len(LETTERS)
