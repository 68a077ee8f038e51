"""`schedq purge`: delete a queue's jobs."""

from __future__ import annotations

from typing import cast

import click

from schedq.cli import show
from schedq.cli.options import ask, json_option, redis_option, yes_option
from schedq.cli.queues import visited, warn_if_nowhere
from schedq.cli.typed import QUEUE_NAME
from schedq.lifecycle import PLACES


@click.command(
    short_help="Delete every job of a queue.", epilog="Example:  schedq purge emails --yes", no_args_is_help=True
)
@click.argument("name", type=QUEUE_NAME)
@yes_option
@redis_option
@json_option
def purge(name: str, is_sure: bool, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001 - click's way
    """Delete every job of the queue NAME: waiting, running and finished ones. Asks first.

    What runs is not stopped, but its outcome is dropped. Jobs that are enqueued meanwhile stay, and so do schedules,
    totals and a pause.
    """
    with visited(name, redis_url) as queue:
        found = cast("dict[str, int]", queue.stats())
        there = {place: found[f"{place}_depth"] for place in PLACES if found[f"{place}_depth"]}
        if there:
            parts = ", ".join(f"{depth:,} {place}" for place, depth in there.items())
            total = show.count(sum(there.values()), "job")
            ask(f"Delete {total} of queue {name} at {queue.address.label} ({parts})?", is_sure=is_sure)
        else:
            warn_if_nowhere(queue, redis_url)
        gone = queue.purge() if there else 0
    if as_json:
        show.out_json({"queue": name, "purged": gone})
    else:
        show.line(f"queue {name}: {show.count(gone, 'job')} deleted" if there else f"queue {name} holds no jobs")
