"""`schedq batches`: shows batches and chains, and acts on them."""

from __future__ import annotations

from typing import Final

import click
from rich.table import Table

from schedq.cli import offers, output
from schedq.cli.lazy_group import LazyGroup
from schedq.cli.params import (
    QUEUE_NAME,
    Offered,
    ask,
    json_option,
    queue_of_id_option,
    queue_option,
    redis_option,
    yes_option,
)
from schedq.cli.queues import queue_of_batch, queue_of_job
from schedq.inspect import display
from schedq.inspect.batch_timeline import BatchEvent, BatchTimeline
from schedq.inspect.batches import arguments, batch_facts
from schedq.model.groups import DAMAGED, BatchProgress, checked_group_id

_TABLE: Final = {
    "ls": ("batches:ls", "List batches and chains: how many children have completed, failed, run or wait."),
    "show": ("batches:show_one", "Show one batch or chain."),
    "failures": ("batches:failures", "List children that failed, with their arguments and errors."),
    "retry": ("batches:retry", "Run the children that failed again, or a chain from the call that failed."),
    "cancel": ("batches:cancel", "Let no child begin any more; ask running ones to stop."),
    "delete": ("batches:delete", "Delete the record of a batch; its children stay jobs."),
}
_batch_argument: Final = click.argument(
    "batch_id", metavar="ID", type=Offered("batch id", checked_group_id, offers.batches)
)


@click.group(
    cls=LazyGroup,
    table=_TABLE,
    epilog="""\b
Examples:
  schedq batches ls --queue etl
  schedq batches failures etl-2027-03
  schedq batches retry etl-2027-03""",
)
def batches() -> None:
    """Show batches and chains, retry and cancel them.

    A batch is many calls of one task with one end. A chain is calls of which each begins when the one before has
    completed.
    """


@click.command(
    epilog="""\b
Example:
  schedq batches ls --queue etl""",
)
@click.argument("name", required=False, type=QUEUE_NAME)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="The most to list.")
@queue_option
@redis_option
@json_option
def ls(name: str | None, limit: int, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """List the batches and chains of the queue NAME, first those that have not ended."""
    with queue_of_job(name or queue_name, redis_url) as queue:
        found, name = queue.list_batches(limit), queue.name
    if as_json:
        output.show_json({"queue": name, "batches": [batch._asdict() for batch in found]})
    elif not found:
        output.line(f"queue {name} has no batches")
    else:
        titles = ["batch", *_facts(found[0])]
        output.show(output.table(titles, [(batch.id, *_facts(batch).values()) for batch in found], right=titles[3:]))
        for batch in found:
            if batch.status == DAMAGED:
                output.line(f"batch {batch.id} is damaged: {batch.error}")


def _facts(batch: BatchProgress) -> dict[str, str]:
    return {name: it if isinstance(it, str) else f"{it:,}" for name, it in batch_facts(batch).items()}


@click.command(
    "show",
    epilog="""\b
Example:
  schedq batches show etl-2027-03""",
)
@_batch_argument
@queue_of_id_option
@redis_option
@json_option
def show_one(batch_id: str, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Show the batch or chain ID."""
    with queue_of_batch(queue_name, redis_url, batch_id) as queue:
        batch, name = queue.batch(batch_id), queue.name
        found, line = batch.progress(), batch.timeline()
    if as_json:
        output.show_json({"queue": name, **found._asdict(), "timeline": line.to_dict()})
        return
    began, ended = (_instant(ms) for ms in (found.began_at_ms, found.ended_at_ms))
    facts = [("batch", found.id), ("queue", name), *_facts(found).items(), ("began", began), ("ended", ended)]
    output.show(output.facts([*facts, ("error", found.error)]))
    output.show("", output.heading("timeline"), _timeline(line))


def _timeline(line: BatchTimeline) -> Table:
    rows = [(display.moment(it.at_ms, line.now_ms)[: output.TO_MS], _what(it), it.note) for it in line.events]
    return output.table(["", "", "note"], rows, whole=1, times=(0,))


def _what(it: BatchEvent) -> str:
    return it.what if it.number is None else f"child {it.number:,} failed"


def _instant(ms: int) -> str:
    found = display.instant(ms) if ms else None
    return "" if found is None else found.isoformat(" ", "seconds")


@click.command(
    epilog="""\b
Example:
  schedq batches failures etl-2027-03""",
)
@_batch_argument
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="The most to list.")
@queue_of_id_option
@redis_option
@json_option
def failures(batch_id: str, limit: int, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """List children of the batch ID that failed, in the order in which they did."""
    with queue_of_batch(queue_name, redis_url, batch_id) as queue:
        found, name = queue.batch(batch_id).failures(limit=limit), queue.name
    if as_json:
        output.show_json({"queue": name, "batch": batch_id, "failures": [one._asdict() for one in found]})
    elif not found:
        output.line(f"no child of batch {batch_id} of queue {name} failed")
    else:
        rows = [(f"{one.number:,}", arguments(one), one.error) for one in found]
        output.show(output.table(["child", "arguments", "error"], rows, right=["child"]))


@click.command(
    epilog="""\b
Example:
  schedq batches retry etl-2027-03""",
)
@_batch_argument
@queue_of_id_option
@redis_option
@json_option
def retry(batch_id: str, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Run the children of the batch ID that failed again. A chain continues with the call that failed."""
    with queue_of_batch(queue_name, redis_url, batch_id) as queue:
        count, name = queue.batch(batch_id).retry(), queue.name
    if as_json:
        output.show_json({"queue": name, "batch": batch_id, "retried": count})
    else:
        output.line(f"batch {batch_id} of queue {name}: {count:,} run again")


@click.command(
    epilog="""\b
Example:
  schedq batches cancel etl-2027-03""",
)
@_batch_argument
@queue_of_id_option
@redis_option
@json_option
def cancel(batch_id: str, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Cancel the batch or chain ID: no child begins any more, and running ones are asked to stop."""
    with queue_of_batch(queue_name, redis_url, batch_id) as queue:
        is_cancelled, name = queue.batch(batch_id).cancel(), queue.name
    if as_json:
        output.show_json({"queue": name, "batch": batch_id, "cancelled": is_cancelled})
    elif is_cancelled:
        output.line(f"batch {batch_id} of queue {name} is being cancelled")
    else:
        raise click.ClickException(f"queue {name} has no batch {batch_id} that has not ended")


@click.command(
    epilog="""\b
Example:
  schedq batches delete etl-2027-03 --yes""",
)
@_batch_argument
@yes_option
@queue_of_id_option
@redis_option
@json_option
def delete(batch_id: str, is_sure: bool, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Delete the record of the batch or chain ID. Its children stay jobs; nothing is done at their end."""
    with queue_of_batch(queue_name, redis_url, batch_id) as queue:
        found, name = queue.batch(batch_id).progress(), queue.name
        ask(f"delete batch {batch_id} of queue {name}, which is {found.status}?", is_sure=is_sure)
        is_deleted = queue.batch(batch_id).delete()
    if as_json:
        output.show_json({"queue": name, "batch": batch_id, "deleted": is_deleted})
    elif is_deleted:
        output.line(f"batch {batch_id} of queue {name} is deleted")
    else:
        why = f"its jobs are in queue {found.stands_for}; it goes with its run"
        raise click.ClickException(f"batch {batch_id} of queue {name} is not deleted: {why}")
