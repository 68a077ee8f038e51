"""`schedq schedules upsert`: write the schedules of an application's code."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Final, cast

import click

from schedq.cli import show
from schedq.cli.options import json_option, load_queue
from schedq.operations.schedules import Registration
from schedq.queue import Queue

_SAID: Final = {
    "created": "created",
    "changed": "changed",
    "unchanged": "unchanged",
    "kept": "kept: a higher version of the application wrote it",
}


@click.command(
    short_help="Write the schedules of an application's code.",
    epilog="""\b
Examples:
  schedq schedules upsert app:emails
  schedq schedules upsert app:emails --prune""",
    no_args_is_help=True,
)
@click.argument("app", metavar="APP")
@click.option("--prune", is_flag=True, help="Delete those that the code has no more, without asking.")
@click.option("--redis", "redis_url", metavar="URL", help="Where Redis is, for a queue that does not say so itself.")
@json_option
def upsert(
    app: str,
    prune: bool,  # noqa: FBT001 - click passes flags by name
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Write the schedules of the queue that APP (module:object) names, as a worker does when it starts.

    For hosts that have only a promoter. The next slot of what did not change stays.
    """
    if redis_url is not None:
        os.environ["SCHEDQ_REDIS_URL"] = redis_url
    loaded = load_queue(app)
    with cast(Queue, loaded.blocking) as queue:
        found = queue.schedules.register(prune=prune)
    if as_json:
        show.out_json({"queue": loaded.name, **asdict(found)})
    else:
        _tell(loaded.name, found)


def _tell(name: str, found: Registration) -> None:
    for word, said in _SAID.items():
        for schedule_id in getattr(found, word):
            show.line(f"{schedule_id}: {said}")
    for schedule_id in found.missing:
        is_removed = schedule_id in found.removed
        show.line(f"{schedule_id}: {'deleted' if is_removed else 'kept'}: the code has it no more")
    total = sum(len(getattr(found, word)) for word in _SAID)
    hint = "; --prune deletes those that it has no more" if set(found.missing) - set(found.removed) else ""
    show.line(f"queue {name}: the code has {show.count(total, 'schedule')}{hint}")
