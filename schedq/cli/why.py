"""`schedq why`: the one reason that a job is not running."""

from __future__ import annotations

from typing import Any

import click

from schedq.cli import show
from schedq.cli.options import json_option, queue_option, redis_option
from schedq.cli.queues import all_names, must_be_known, visited
from schedq.cli.typed import JOB_ID
from schedq.errors import Conflict
from schedq.operations.why import Why


@click.command(
    short_help="Say why a job is not running.",
    epilog="Example:  schedq why 0d4s3…k8 --queue emails",
    no_args_is_help=True,
)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@queue_option
@redis_option
@json_option
def why(job_id: str, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001 - click's way
    """The one reason that the job ID is not running now; without --queue it is looked for in every queue.

    Exit code 1: nothing is known of it.
    """
    names = all_names(redis_url) if queue_name is None else [queue_name]
    found = _found(names, job_id, redis_url)
    if as_json:
        show.out_json(_unknown(job_id, names) if found is None else found.to_dict())
    elif found is not None and found.is_known:
        _say(found)
    else:
        if queue_name is not None:
            with visited(queue_name, redis_url) as queue:
                must_be_known(queue, redis_url)
        where = f"queue {names[0]}" if len(names) == 1 else f"{len(names)} queues"
        text = _unknown(job_id, names)["text"] if found is None else found.text
        raise click.ClickException(f"job {job_id}, looked for in {where}: {text}")
    if found is None or not found.is_known:
        raise click.exceptions.Exit(1)


def _found(names: list[str], job_id: str, redis_url: str | None) -> Why | None:
    """What the first queue says that knows it, else what the last one says; None if there is no queue.

    Raises:
        Conflict: no queue knows it, and one is too damaged to say.
    """
    answer: Why | None = None
    damage: Conflict | None = None
    for name in names:
        with visited(name, redis_url) as queue:
            try:
                answer = queue.inspector.why(job_id)
            except Conflict as error:
                damage = damage or error
                continue
        if answer.is_known:
            return answer
    if damage is not None:
        raise damage
    return answer


def _unknown(job_id: str, names: list[str]) -> dict[str, Any]:
    text = "there is no queue here" if not names else "nothing is stored of it"
    return {"reason": "unknown", "text": text, "queue": None, "id": job_id}


def _say(found: Why) -> None:
    show.line(f"job {found.id} in queue {found.queue}: {found.text}")
    instants = {
        name.removesuffix("_ms").replace("_", " "): show.moment(value, found.now_ms)
        for name, value in found.facts.items()
        if name.endswith(("_at_ms", "since_ms")) and value
    }
    if instants:
        show.out(show.facts(instants.items()))
