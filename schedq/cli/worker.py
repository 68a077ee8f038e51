"""`schedq worker`: run the jobs of an application."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from schedq.application import Application
from schedq.cli import lasting, logs
from schedq.cli.monitoring import monitor_options, prepared, watching
from schedq.cli.options import load_queue, log_options
from schedq.errors import UsageError
from schedq.fleet import Fleet
from schedq.logs import AttemptLog
from schedq.monitor import Wanted
from schedq.service import PARENT_FD, run_worker
from schedq.tracing import instrument
from schedq.worker import Worker
from schedq.worker.order import ORDERS


@click.command(
    epilog="Examples:  schedq worker app:emails app:reports --concurrency 20 --processes 2   |   "
    "schedq worker 'app:emails*3' app:reports",
    no_args_is_help=True,
)
@click.argument("apps", metavar="APP[*WEIGHT]...", nargs=-1, required=True)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    help="strict: a queue's jobs are taken when no queue before it has any (with weights: the heavier is before); "
    "weighted: in proportion to the weights, so that none waits for ever.  [default: weighted if a weight is given, "
    "else strict]",
)
@click.option("--redis", "redis_url", metavar="URL", help="Where Redis is, for queues that do not say so themselves.")
@click.option(
    "-c", "--concurrency", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Jobs at a time."
)
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Worker processes; dead ones are replaced.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="What running jobs get to end after SIGTERM; then they are given back.",
)
@click.option("--burst", is_flag=True, help="Leave when nothing is pending, delayed or running.")
@click.option(
    "--watchdog",
    type=click.FloatRange(0, 86_400),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Log, with the stack and the job, when the event loop stands still for so long; 0: never.",
)
@click.option(
    "--slow",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    metavar="SECONDS",
    help="Log a handler that still runs after so long, once, with its stack.  [default: never]",
)
@click.option("--tracing", is_flag=True, help="OpenTelemetry spans of attempts; needs the extra tracing.")
@click.option("--no-promoter", is_flag=True, help="Leave waking and reclaiming to others, such as `schedq promoter`.")
@monitor_options
@log_options
def worker(
    apps: tuple[str, ...],
    order: str | None,
    redis_url: str | None,
    concurrency: int,
    processes: int,
    grace: float,
    burst: bool,  # noqa: FBT001 - click passes flags by name
    watchdog: float,
    slow: float,
    tracing: bool,  # noqa: FBT001
    no_promoter: bool,  # noqa: FBT001
    metrics_port: int | None,
    health_port: int | None,
    metrics_host: str,
    health_limit: float,
    log_format: str,
    verbose: int,
    quiet: bool,  # noqa: FBT001
) -> None:
    """Run the jobs of the queues that APP (module:object) names.

    SIGTERM and Ctrl-C stop it in order: no new claims, running jobs get the grace, the rest is given back and is next
    in line elsewhere. A second signal gives back at once. SIGUSR1 logs where every thread and task is, and its job.
    """
    logs.set_up(log_format, verbose, quiet=quiet)
    lasting.heed_signals()
    if redis_url is not None:
        os.environ["SCHEDQ_REDIS_URL"] = redis_url
    named = [_weighed(app) for app in apps]
    queues = [load_queue(app) for app, _ in named]
    wanted = Wanted(metrics_port, health_port, metrics_host, health_limit)
    observers, serve = prepared(wanted, queues)
    try:
        if tracing:
            instrument()
        made = Worker(
            queues,
            order=order or ("strict" if all(weight is None for _, weight in named) else "weighted"),
            weights=[1 if weight is None else weight for _, weight in named],
            concurrency=concurrency,
            grace=grace,
            burst=burst,
            promotes=not no_promoter,
            observers=[*observers, *([AttemptLog()] if verbose else [])],
            watchdog=watchdog,
            slow=slow,
        )
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    if processes > 1 and PARENT_FD not in os.environ:
        _lead(processes, grace, wanted, queues)
    serve(made)
    lasting.run(run_worker(made))


def _lead(processes: int, grace: float, wanted: Wanted, queues: Sequence[Application]) -> NoReturn:
    """Be the parent: processes as this one was started, with all options of the interpreter."""
    fleet = Fleet([sys.executable, *sys.orig_argv[1:]], processes, grace, watched=wanted.is_any)
    with watching(fleet, wanted, queues):
        sys.exit(fleet.run())


def _weighed(app: str) -> tuple[str, int | None]:
    """`app:queue*3` in its two parts."""
    path, mark, weight = app.partition("*")
    if not mark:
        return path, None
    if not (weight.isascii() and weight.isdigit()):
        raise click.BadParameter(f"{app!r} must be MODULE:QUEUE*WEIGHT, the weight a whole number of at least 1")
    return path, int(weight)
