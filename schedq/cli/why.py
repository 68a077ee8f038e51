"""`schedq why`: the one reason why a job is not running."""

from __future__ import annotations

from typing import Any, Final

import click

from schedq.cli import output
from schedq.cli.params import JOB_ID, UNIQUE_KEY, json_option, queue_of_id_option, redis_option
from schedq.cli.queues import all_names, holders, must_be_known, one_of, open_queue
from schedq.errors import Conflict
from schedq.inspect import display
from schedq.inspect.why import Why

_NO_QUEUE: Final = "there is no queue here"


@click.command(
    epilog="""\b
Examples:
  schedq why 0d4s3…k8 --queue emails
  schedq why --unique nightly""",
    no_args_is_help=True,
)
@click.argument("job_id", metavar="[ID]", required=False, type=JOB_ID)
@click.option(
    "--unique", "key", type=UNIQUE_KEY, metavar="KEY", help="The job that holds this unique key, instead of ID."
)
@queue_of_id_option
@redis_option
@json_option
def why(job_id: str | None, key: str | None, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Explain why the job ID is not running now; without --queue, every queue is searched.

    Exit code 1: no queue knows the job, or no job holds the key.
    """
    if (job_id is None) == (key is None):
        raise click.UsageError("give either ID or --unique KEY")
    names = [queue_name] if queue_name is not None else _candidates(job_id, redis_url)
    found = _found(names, job_id, key, redis_url)
    if as_json:
        output.show_json(_unknown(names, job_id, key) if found is None else found.to_dict())
    elif found is not None and found.is_known:
        _show_reason(found)
    else:
        if queue_name is not None:
            with open_queue(queue_name, redis_url) as queue:
                must_be_known(queue, redis_url)
        where = f"queue {names[0]}" if len(names) == 1 else f"{len(names)} queues"
        what = f"job {job_id}" if key is None else f"unique key {key!r}"
        text = _unknown(names, job_id, key)["text"] if found is None else found.text
        raise click.ClickException(f"{what}, searched for in {where}: {text}")
    if found is None or not found.is_known:
        raise click.exceptions.Exit(1)


def _candidates(job_id: str | None, redis_url: str | None) -> list[str]:
    """The queues to search: the one that stores the job, or all if none does.

    Raises:
        click.UsageError: several store it.
    """
    where, _ = holders(redis_url, [job_id] if job_id else [])
    there = where[job_id] if job_id else []
    return [one_of(there, "job")] if there else all_names(redis_url)


def _unknown(names: list[str], job_id: str | None, key: str | None) -> dict[str, Any]:
    """The reason if no queue has one."""
    text = "no job holds it" if key is not None and names else _NO_QUEUE
    more = {} if key is None else {"unique": key}
    return {"reason": "unknown", "text": text, "queue": None, "id": job_id, **more}


def _found(names: list[str], job_id: str | None, key: str | None, redis_url: str | None) -> Why | None:
    """The reason in the first queue that knows the job, else in the last queue; None if there is no queue.

    Raises:
        Conflict: no queue knows it, and one is too damaged to be read.
    """
    found: Why | None = None
    damage: Conflict | None = None
    for name in names:
        with open_queue(name, redis_url) as queue:
            try:
                found = queue.inspector.holder(key) if key is not None else queue.inspector.why(job_id or "")
            except Conflict as error:
                damage = damage or error
        if found is not None and (found.is_known or key is not None):
            return found
    if damage is not None:
        raise damage
    return found


def _show_reason(found: Why) -> None:
    output.line(f"job {found.id} in queue {found.queue}: {found.text}")
    instants = {
        name.removesuffix("_ms").replace("_", " "): display.moment(value, found.now_ms)
        for name, value in found.facts.items()
        if name.endswith(("_at_ms", "since_ms")) and value
    }
    if instants:
        output.show(output.facts(instants.items()))
