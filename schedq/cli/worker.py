"""`schedq worker` and `schedq promoter`: the daemons that run jobs and wake them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, NoReturn

import click

from schedq.cli import daemon
from schedq.cli.params import QUEUE_NAME, option_group, redis_option
from schedq.cli.queues import load_queue, open_queue, warn_if_new, wrong_usage
from schedq.errors import SchedqError
from schedq.logs import AttemptLog, log
from schedq.metrics.health import LIMIT_S
from schedq.metrics.serving import Monitor, MonitorConfig, serve_processes
from schedq.observer import Observer
from schedq.queue.queue import Queue, QueueBase
from schedq.tracing import instrument
from schedq.worker import Worker
from schedq.worker.capacity import ORDERS
from schedq.worker.process import PARENT_FD, Supervisor, run_promoters, run_worker

_PORT: Final = click.IntRange(0, 65_535)


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
@option_group(
    "monitored",
    MonitorConfig,
    click.option(
        "--metrics-port",
        type=_PORT,
        metavar="N",
        help="Serve /metrics for Prometheus there, /healthz and /livez too; 0: on any port. Needs schedq[metrics].",
    ),
    click.option("--health-port", type=_PORT, metavar="N", help="Serve /healthz and /livez there; 0: on any port."),
    click.option(
        "--metrics-host",
        "host",
        default="127.0.0.1",
        show_default=True,
        metavar="HOST",
        help="Where both ports listen.",
    ),
    click.option(
        "--health-limit",
        "limit_s",
        type=click.FloatRange(0.1, 3600),
        default=LIMIT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long the event loop may be blocked, or Redis be away, before health says so.",
    ),
)
@daemon.log_options
def worker(
    apps: tuple[str, ...],
    order: str | None,
    redis_url: str | None,
    processes: int,
    tracing: bool,
    no_promoter: bool,
    monitored: MonitorConfig,
    **settings: Any,
) -> None:
    """Run the jobs of the queues that APP (module:object) names.

    SIGTERM and Ctrl-C stop it in order: no new claims, running jobs get the grace, the rest is given back and is next
    in line elsewhere. A second signal gives back at once. SIGUSR1 logs where every thread and task is, and its job.
    """
    daemon.handle_signals()
    observers: list[Observer] = [AttemptLog()] if log.isEnabledFor(logging.DEBUG) else []
    if redis_url is not None:
        os.environ["SCHEDQ_REDIS_URL"] = redis_url
    named = [_weighed(app) for app in apps]
    queues = [load_queue(app) for app, _ in named]
    monitor = Monitor(monitored, queues) if monitored.is_any else None
    if monitor is not None:
        observers = [*monitor.observers, *observers]
    with wrong_usage():
        if tracing:
            instrument()
        order = order or ("strict" if all(weight is None for _, weight in named) else "weighted")
        weights = [1 if weight is None else weight for _, weight in named]
        made = Worker(queues, order=order, weights=weights, promotes=not no_promoter, observers=observers, **settings)
    if processes > 1 and PARENT_FD not in os.environ:
        _lead(processes, settings["grace"], monitored, queues)
    if monitor is not None:
        monitor.serve(made)
    daemon.run(run_worker(made))


def _lead(processes: int, grace: float, monitored: MonitorConfig, queues: Sequence[QueueBase]) -> NoReturn:
    """Supervise processes that are started as this one was, with the same options of the interpreter."""
    supervisor = Supervisor([sys.executable, *sys.orig_argv[1:]], processes, grace, watched=monitored.is_any)
    with ExitStack() as stack:
        if monitored.is_any:
            for site in serve_processes(supervisor, monitored, queues):
                stack.callback(site.close)
        sys.exit(supervisor.run())


def _weighed(app: str) -> tuple[str, int | None]:
    """Split `app:queue*3` into path and weight."""
    path, mark, weight = app.partition("*")
    if not mark:
        return path, None
    if not (weight.isascii() and weight.isdigit()):
        raise click.BadParameter(f"{app!r} must be MODULE:QUEUE*WEIGHT, the weight a whole number of at least 1")
    return path, int(weight)


@click.command(
    epilog="Example:  schedq promoter emails reports --redis redis://redis.internal:6379/0",
    no_args_is_help=True,
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=QUEUE_NAME)
@redis_option
@daemon.log_options
def promoter(names: tuple[str, ...], redis_url: str | None) -> None:
    """Move due jobs to the workers and take back what dead workers held, for the queues named NAME.

    Needs no application code. Workers do this too, unless they are told not to; any number of promoters may run,
    one per queue is at work and the others stand by.
    """
    daemon.handle_signals()
    with wrong_usage():
        queues = [Queue(name, redis=redis_url) for name in dict.fromkeys(names)]
    with suppress(SchedqError):  # Redis may come up later, and a promoter's user may lack the rights to read
        for queue in queues:
            with open_queue(queue.name, redis_url) as looked_at:
                warn_if_new(looked_at, redis_url, log.warning)
    daemon.run(run_promoters(queues))
