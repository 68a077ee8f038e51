"""`schedq pause` and `schedq resume`."""

from __future__ import annotations

import click

from schedq.cli import show
from schedq.cli.options import json_option, redis_option
from schedq.cli.queues import must_be_known, must_not_be_mistyped, used, visited
from schedq.cli.typed import QUEUE_NAME


@click.command(
    short_help="Let no worker take jobs of a queue.", epilog="Example:  schedq pause emails", no_args_is_help=True
)
@click.argument("name", type=QUEUE_NAME)
@click.option(
    "--force", is_flag=True, help="Also a queue of which nothing is stored, and whose name is like another's."
)
@redis_option
@json_option
def pause(
    name: str,
    force: bool,  # noqa: FBT001 - click passes flags by name
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Let no worker take jobs of the queue NAME. What runs, runs on; new jobs are taken in; `resume` ends it.

    A queue may be paused before its first job. One of which nothing is stored while there is another of a like name
    is refused, as it may be mistyped; --force pauses it all the same.
    """
    with used(name, redis_url) as queue:
        way_out = f"(--force pauses {name} all the same)"
        is_new = not force and must_not_be_mistyped(queue, redis_url, way_out)
        before = queue.stats()["paused_since_ms"]
        queue.pause()
        found = queue.stats()
    if as_json:
        show.out_json({"queue": name, "was_paused": before is not None, "paused_since_ms": found["paused_since_ms"]})
        return
    since = show.moment(found["paused_since_ms"] or 0, found["now_ms"])
    said = f"is paused since {since} already" if before is not None else "is paused"
    if is_new:
        said += ", though nothing is stored of it yet"
    show.line(f"queue {name} {said}; {found['processing_depth']:,} running, {found['pending_depth']:,} waiting")


@click.command(short_help="Let workers take jobs again.", epilog="Example:  schedq resume emails", no_args_is_help=True)
@click.argument("name", type=QUEUE_NAME)
@redis_option
@json_option
def resume(name: str, redis_url: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Let workers take jobs of the queue NAME again."""
    with visited(name, redis_url) as queue:
        must_be_known(queue, redis_url)
        was_paused = queue.resume()
        waiting = queue.stats()["pending_depth"]
    if as_json:
        show.out_json({"queue": name, "was_paused": was_paused})
    else:
        show.line(f"queue {name} {'goes on' if was_paused else 'was not paused'}; {waiting:,} waiting")
