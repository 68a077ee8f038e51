"""`schedq purge`: delete a queue's jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import click

from schedq.cli import show
from schedq.cli.chosen import Chosen, act_on_chosen, dry_run_option, filter_options, state_option
from schedq.cli.options import ask, json_option, redis_option, yes_option
from schedq.cli.queues import must_be_known, visited
from schedq.cli.typed import QUEUE_NAME
from schedq.lifecycle import PLACES
from schedq.operations.acting import ACTIONS
from schedq.queue import Queue


@click.command(
    short_help="Delete every job of a queue, or those of a filter.",
    epilog="""\b
Examples:
  schedq purge emails --yes
  schedq purge emails --state failed --older 7d --dry-run""",
    no_args_is_help=True,
)
@click.argument("name", type=QUEUE_NAME)
@state_option(
    ACTIONS["delete"],
    f"Only jobs of this state: {', '.join(ACTIONS['delete'])}; may be given again. With a filter alone: of all these.",
)
@filter_options
@dry_run_option
@yes_option
@redis_option
@json_option
def purge(
    name: str,
    states: tuple[str, ...],
    task: str | None,
    older: timedelta | None,
    newer: timedelta | None,
    text: str | None,
    error: str | None,
    is_dry: bool,  # noqa: FBT001 - click passes flags by name
    is_sure: bool,  # noqa: FBT001
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Delete every job of the queue NAME: waiting, running and finished ones. Asks first.

    What runs is not stopped, but its outcome is dropped. Jobs that are enqueued meanwhile stay, and so do schedules,
    totals and a pause. With a state or a filter, jobs that match are deleted, and none that runs.
    """
    chosen = Chosen(task, older, newer, text, error)
    with visited(name, redis_url) as queue:
        if states or chosen:
            must_be_known(queue, redis_url)
            act_on_chosen(
                queue,
                "delete",
                list(dict.fromkeys(states or ACTIONS["delete"])),
                chosen,
                words=("Delete", "deleted"),
                is_sure=is_sure,
                is_dry=is_dry,
                as_json=as_json,
                known_as="purged",
            )
        else:
            _purge_all(queue, redis_url, is_sure=is_sure, is_dry=is_dry, as_json=as_json)


def _purge_all(queue: Queue, redis_url: str | None, *, is_sure: bool, is_dry: bool, as_json: bool) -> None:
    found = cast("dict[str, int]", queue.stats())
    there = {place: found[f"{place}_depth"] for place in PLACES if found[f"{place}_depth"]}
    parts = ", ".join(f"{depth:,} {place}" for place, depth in there.items())
    total = show.count(sum(there.values()), "job")
    if not there:
        must_be_known(queue, redis_url)
    elif not is_dry:
        ask(f"Delete {total} of queue {queue.name} at {queue.address.label} ({parts})?", is_sure=is_sure)
    gone = queue.purge() if there and not is_dry else 0
    if as_json:
        dry = {"dry_run": True, "matched": sum(there.values())} if is_dry else {}
        show.out_json({"queue": queue.name, "purged": gone} | dry)
    elif not there:
        show.line(f"queue {queue.name} holds no jobs")
    elif is_dry:
        show.line(f"queue {queue.name}: {total} would be deleted ({parts})")
    else:
        show.line(f"queue {queue.name}: {show.count(gone, 'job')} deleted")
