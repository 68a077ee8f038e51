"""`schedq top`: a live screen of the queues, or of one."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict

import click

from schedq.cli import show
from schedq.cli.options import json_option, redis_option
from schedq.cli.queues import all_names, must_be_known, visited
from schedq.cli.typed import QUEUE_NAME


@click.command(
    short_help="A live screen: throughput, depths, lateness, workers, slow and failing tasks.",
    epilog="""\b
Examples:
  schedq top
  schedq top emails --interval 0.5
  schedq top emails --once""",
)
@click.argument("name", required=False, type=QUEUE_NAME)
@click.option("--once", is_flag=True, help="Print one screen and leave.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@redis_option
@json_option
def top(
    name: str | None,
    once: bool,  # noqa: FBT001 - click passes flags by name
    interval: float,
    redis_url: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """A live screen of the queue NAME, else of all queues, of which one can be opened.

    Keys: p pauses and resumes, r requeues failed jobs, w d x f c list the jobs that are pending, delayed, running,
    failed, completed; there arrows and Enter open a job, r requeues it, n runs it now, k cancels it. Each asks first.
    Esc goes back, q leaves. Rates come from samples that a promoter takes every 10 s; start and run times from the
    newest records. --json prints what one look finds.
    """
    with ExitStack() as stack:
        names = [name] if name is not None else all_names(redis_url)
        queues = [stack.enter_context(visited(one, redis_url)) for one in names]
        if name is not None:
            must_be_known(queues[0], redis_url)
        if as_json:
            found = [asdict(queue.inspector.pulse()) for queue in queues]
            show.out_json(found[0] if name is not None else {"queues": found})
            return
        from schedq.cli.top.desk import Desk, OneQueue, Queues

        desk = Desk()
        desk.open(OneQueue(desk, queues[0]) if len(queues) == 1 else Queues(desk, queues))
        if once:
            desk.views[-1].look()
            show.out(desk.views[-1].draw(_PRINTED))
        elif not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise click.UsageError("the live screen needs a terminal; --once prints one, --json is for programs")
        else:
            from schedq.cli.top.live import run

            run(desk, interval)


_PRINTED = 60
"""Lines of a screen that is printed: as much as there is to see."""
