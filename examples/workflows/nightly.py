"""Every night: two extracts at the same time, then a model. A clean-up follows; if it went wrong, a person is paged.

It is declared as a graph: its shape is the same every night.
"""

from __future__ import annotations

from schedq import Flow, FlowNode
from workflows.queues import queue

done: list[str] = []
broken: set[str] = set()
"""Sources that are away. Tests put one in."""


@queue.task(max_attempts=5)
def extract(source: str) -> int:
    """Copy a source; returns how many rows it had."""
    if source in broken:
        raise ConnectionError(f"{source} is away")
    done.append(f"extracted {source}")
    return len(source) * 1000


@queue.task(timeout=3600)
def train(*rows: int) -> str:
    """Make a model of the rows of all sources."""
    return f"model of {sum(rows)} rows"


@queue.task
def publish(model: str) -> str:
    """Let the applications use it."""
    done.append(f"published {model}")
    return model


@queue.task
def page(text: str | None) -> None:
    """Page the person on call."""
    done.append(f"paged: {text}")


@queue.task
def clean_up() -> None:
    """Delete the copies."""
    done.append("cleaned up")


@queue.cron("0 2 * * *", tz="Europe/Berlin", overlap="skip")
@queue.flow
def nightly(flow: Flow) -> FlowNode[str]:
    """Make tonight's model. The next night is skipped if this one has not ended by then."""
    crm, shop = flow.call(extract, "crm"), flow.call(extract, "shop")
    model = flow.call(train, crm.result, shop.result)
    published = flow.call(publish, model.result)
    flow.options(after=model, when="ended").call(clean_up)
    flow.options(after=published, when="failure").call(page, published.error)
    return published
