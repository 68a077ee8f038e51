"""Every night: two extracts at the same time, then a model. A clean-up follows; if it went wrong, a person is paged."""

from __future__ import annotations

from schedq import Discard, StepFailed, WorkflowContext
from workflows.queues import queue

SOURCES = ("crm", "shop")
done: list[str] = []
broken: set[str] = set()
"""Sources that are away. Tests put one in."""


def extract(source: str) -> int:
    """Copy a source; returns how many rows it had."""
    if source in broken:
        raise ConnectionError(f"{source} is away")
    done.append(f"extracted {source}")
    return len(source) * 1000


def train(rows: int) -> str:
    """Make a model."""
    return f"model of {rows} rows"


def publish(model: str) -> None:
    """Let the applications use it."""
    done.append(f"published {model}")


def page(text: str) -> None:
    """Page the person on call."""
    done.append(f"paged: {text}")


def clean_up() -> None:
    """Delete the copies."""
    done.append("cleaned up")


@queue.cron("0 2 * * *", tz="Europe/Berlin", overlap="skip")
@queue.workflow(max_attempts=5)
async def nightly(ctx: WorkflowContext) -> str:
    """Make tonight's model. The next night is skipped if this one has not ended by then."""
    try:
        rows = await ctx.gather(*(ctx.step(extract, source) for source in SOURCES))
        model = await ctx.options(timeout=3600).step(train, sum(rows))
        await ctx.step(publish, model)
    except StepFailed as failed:
        await ctx.step(page, str(failed))
        raise Discard(str(failed)) from failed
    finally:
        await ctx.step(clean_up)
    return model
