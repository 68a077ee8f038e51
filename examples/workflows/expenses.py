"""An expense needs the approval of a person. After two days without a reply, the next one is asked."""

from __future__ import annotations

from dataclasses import dataclass

from schedq import Discard, WorkflowContext
from workflows.queues import DAY, queue


@dataclass(frozen=True)
class Expense:
    """What an employee has paid.

    Attributes:
        who: the employee.
        cents: the amount.
        managers: those that may approve it, in the order in which they are asked.
    """

    who: str
    cents: int
    managers: tuple[str, ...]


asked: list[str] = []
paid: list[str] = []


def ask(manager: str, expense: Expense) -> None:
    """Send a mail with two links. A click sends the verdict: `queue.job(job_id).send("verdict", ...)`."""
    asked.append(manager)
    print(f"{manager}: {expense.who} asks for {expense.cents / 100:.2f}")


def pay(expense: Expense, manager: str) -> str:
    """Pay it with the next salary."""
    paid.append(expense.who)
    return f"paid, approved by {manager}"


@queue.workflow
async def approve(ctx: WorkflowContext, expense: Expense) -> str:
    """Ask one manager after the other for a verdict, true or false."""
    for manager in expense.managers:
        await ctx.step(ask, manager, expense)
        try:
            verdict: bool = await ctx.receive("verdict", timeout=2 * DAY)
        except TimeoutError:
            continue
        return await ctx.step(pay, expense, manager) if verdict else f"declined by {manager}"
    raise Discard(f"none of {', '.join(expense.managers)} has replied")
